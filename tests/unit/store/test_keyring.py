"""Key files and keyrings: made once, opened with the right key, and left alone by every failure."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import EnvKek, FileKek
from oauthbroker.store.keys.keyring import SeedState
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.posix import atomic_files
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.clock import TestClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def kek(tmp_path: Path, root: Path) -> FileKek:
    return FileKek.create(tmp_path / "broker.kek", outside=[root])


@pytest.fixture
def path(root: Path) -> Path:
    return root / "data" / "keyring"


def code_of(call: Callable[[], object]) -> Code:
    with pytest.raises(BrokerError) as caught:
        call()
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value.code


def tree(root: Path) -> dict[str, str]:
    """Every file with its mode, inode, times of change and contents."""
    found = {}
    for path in root.rglob("*"):
        stat = path.lstat()
        body = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = f"{stat.st_mode:o} {stat.st_ino} {stat.st_mtime_ns} {stat.st_ctime_ns} {body}"
    return found


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_key_file_is_ours_alone_and_opens_again(tmp_path, root, kek):
    assert 0o600 == mode(tmp_path / "broker.kek")
    again = FileKek.open(tmp_path / "broker.kek", outside=[root])
    assert kek.id() == again.id()
    assert b"secret" == again.unwrap(kek.wrap(b"secret", b"here"), b"here")
    again.health()


def test_the_same_text_from_the_environment_is_the_same_key(tmp_path, kek):
    text = (tmp_path / "broker.kek").read_text()
    assert kek.id() == EnvKek(text).id() == EnvKek(f"  {text.strip()} ").id()


def test_two_key_files_are_two_keys(tmp_path, kek):
    assert kek.id() != FileKek.create(tmp_path / "other.kek").id()


@pytest.mark.case("69")
def test_a_wrapped_key_opens_with_no_other_key_and_in_no_other_context(tmp_path, kek):
    wrapped = kek.wrap(b"secret", b"here")
    other = FileKek.create(tmp_path / "other.kek")
    assert Code.KEY_MISMATCH == code_of(lambda: other.unwrap(wrapped, b"here"))
    assert Code.RECORD_CORRUPT == code_of(lambda: kek.unwrap(wrapped, b"there"))


def test_a_key_file_is_never_overwritten(tmp_path, kek):
    before = (tmp_path / "broker.kek").read_bytes()
    assert Code.KEY_EXISTS == code_of(lambda: FileKek.create(tmp_path / "broker.kek"))
    assert before == (tmp_path / "broker.kek").read_bytes()


def test_a_key_file_below_the_store_is_refused(root):
    (root / "keys").mkdir(parents=True, mode=0o700)
    inside = root / "keys" / "broker.kek"
    assert Code.STORE_PERMISSIONS == code_of(lambda: FileKek.create(inside, outside=[root]))
    FileKek.create(inside)
    assert Code.STORE_PERMISSIONS == code_of(lambda: FileKek.open(inside, outside=[root]))
    detour = root.parent / "elsewhere" / ".." / "store" / "keys" / "broker.kek"
    assert Code.STORE_PERMISSIONS == code_of(lambda: FileKek.open(detour, outside=[root]))


def test_a_key_file_reached_through_a_linked_folder_below_the_store_is_refused(tmp_path, root):
    (root / "keys").mkdir(parents=True, mode=0o700)
    (tmp_path / "outside").symlink_to(root / "keys")
    FileKek.create(root / "keys" / "broker.kek")
    path = tmp_path / "outside" / "broker.kek"
    assert Code.STORE_PERMISSIONS == code_of(lambda: FileKek.open(path, outside=[root]))


def no_file(path: Path) -> None:
    path.unlink()


def link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def hard_link(path: Path) -> None:
    path.with_name("second").hardlink_to(path)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def text(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


SPOILT: dict[str, tuple[Callable[[Path], object], Code]] = {
    "missing": (no_file, Code.KEY_UNKNOWN),
    "readable by the group": (lambda path: path.chmod(0o640), Code.STORE_PERMISSIONS),
    "readable by all": (lambda path: path.chmod(0o644), Code.STORE_PERMISSIONS),
    "another user's": (lambda path: os.chown(path, 4242, 4242), Code.STORE_PERMISSIONS),
    "a link": (link, Code.STORE_PERMISSIONS),
    "a hard link": (hard_link, Code.STORE_PERMISSIONS),
    "a FIFO": (fifo, Code.STORE_PERMISSIONS),
    "a folder": (folder, Code.STORE_PERMISSIONS),
    "in a folder open to all": (lambda path: path.parent.chmod(0o777), Code.STORE_PERMISSIONS),
    "empty": (text(b""), Code.KEY_MISMATCH),
    "half": (text(b"oab-kek-1:AAAA"), Code.KEY_MISMATCH),
    "no base64": (text(b"oab-kek-1:" + b"*" * 43), Code.KEY_MISMATCH),
    "no text": (text(bytes(range(256))), Code.KEY_MISMATCH),
    "another format": (text(b"oab-kek-2:" + b"A" * 43), Code.KEY_MISMATCH),
}


@pytest.mark.case("69", "72", "73")
@pytest.mark.parametrize(("spoil", "code"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_key_file_is_refused(tmp_path, root, kek, spoil, code):
    if spoil is SPOILT["another user's"][0] and os.geteuid():
        pytest.skip("only root can give a file away")
    spoil(tmp_path / "broker.kek")
    assert code == code_of(lambda: FileKek.open(tmp_path / "broker.kek", outside=[root]))
    assert code == code_of(kek.health)


def test_a_replaced_key_file_is_noticed_before_the_next_start(tmp_path, kek):
    (tmp_path / "broker.kek").unlink()
    FileKek.create(tmp_path / "broker.kek")
    assert Code.KEY_MISMATCH == code_of(kek.health)


@pytest.mark.case("72")
def test_a_keyring_is_private_under_any_umask(root, kek, path):
    before = os.umask(0)
    try:
        KeyringFile(path, kek).create()
    finally:
        os.umask(before)
    assert (0o600, 0o700, 0o700) == (mode(path), mode(path.parent), mode(root))


def test_a_loaded_keyring_is_the_one_that_was_made(kek, path):
    made = KeyringFile(path, kek).create(clock=TestClock())
    loaded = KeyringFile(path, kek).load()
    assert (made.store_id, made.epoch, made.seeds) == (loaded.store_id, loaded.epoch, loaded.seeds)
    assert made.name("grants", "a") == loaded.name("grants", "a")
    assert (3, b"body") == loaded.unseal("grants", "0a" * 32, made.seal("grants", "0a" * 32, 3, b"body"))
    assert [SeedState.ACTIVE] == [seed.state for seed in loaded.seeds]


def test_two_stores_share_nothing(tmp_path, kek):
    one, two = (KeyringFile(tmp_path / name / "data" / "keyring", kek).create() for name in ("one", "two"))
    assert one.store_id != two.store_id
    assert one.name("grants", "a") != two.name("grants", "a")
    assert one.mac("csrf", "a") != two.mac("csrf", "a")
    assert Code.KEY_UNKNOWN == code_of(lambda: two.unseal("grants", "0a" * 32, one.seal("grants", "0a" * 32, 1, b"")))


def test_a_keyring_is_never_overwritten(kek, path):
    KeyringFile(path, kek).create()
    before = path.read_bytes()
    assert Code.KEY_EXISTS == code_of(lambda: KeyringFile(path, kek).create())
    assert before == path.read_bytes()


def test_a_lost_keyring_is_not_replaced_while_its_records_lie_there(kek, path):
    """A new keyring could never open them: the operator must hear of the loss."""
    KeyringFile(path, kek).create()
    (path.parent / "grants").mkdir(mode=0o700)
    (path.parent / "locks").mkdir(mode=0o700)
    (path.parent / "locks" / "write-00").touch()
    (path.parent / "README").touch()
    path.unlink()
    (path.parent / "grants" / ("0a" * 32)).touch()
    for attempt in (KeyringFile(path, kek).create, KeyringFile(path, kek).load):
        with pytest.raises(BrokerError, match="Restore the keyring from a backup") as refused:
            attempt()
        assert (Code.KEY_UNKNOWN, f"keyring: {path}") == (refused.value.code, refused.value.note)
    (path.parent / "grants" / ("0a" * 32)).unlink()
    KeyringFile(path, kek).create()


def test_of_many_creators_at_once_one_makes_the_keyring(kek, path):
    made, refused = [], []

    def create() -> None:
        try:
            made.append(KeyringFile(path, kek).create().store_id)
        except BrokerError as exc:
            refused.append(exc.code)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [KeyringFile(path, kek).load().store_id] == made
    assert [Code.KEY_EXISTS] * 7 == refused
    assert [path] == list(path.parent.iterdir())


def test_many_keys_are_made_in_one_folder_at_once(tmp_path):
    with ThreadPoolExecutor(16) as threads:
        keys = threads.map(lambda number: FileKek.create(tmp_path / f"{number}.kek").id(), range(64))
        assert 64 == len(set(keys))


def test_a_key_folder_that_stays_locked_is_named_by_the_refusal(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(Fs, "try_lock", lambda *_: False)
    with pytest.raises(BrokerError) as raised:
        FileKek.create(tmp_path / "broker.kek")
    assert (Code.STORE_LOCKED, "another process makes a file in this folder") == (raised.value.code, raised.value.note)


def test_a_wait_for_a_locked_folder_looks_200_times_a_second_at_most(tmp_path):
    class Locked(Fs):
        looks, now = 0, 0.0

        def try_lock(self, folder: int) -> bool:
            self.looks += 1
            return False

        def give_way(self, seconds: float = 0.000_05) -> None:
            self.now += seconds

        def monotonic(self) -> float:
            return self.now

    fs = Locked()
    assert Code.STORE_LOCKED == code_of(lambda: atomic_files.lock_soon(fs, 0))
    assert 1_900 < fs.looks < 2_100


@pytest.mark.case("69")
def test_a_missing_keyring_is_an_unknown_key(tmp_path, kek, path):
    assert Code.KEY_UNKNOWN == code_of(lambda: KeyringFile(path, kek).load())
    path.parent.mkdir(parents=True, mode=0o700)
    assert Code.KEY_UNKNOWN == code_of(lambda: KeyringFile(path, kek).load())


@pytest.mark.case("69")
def test_another_key_does_not_open_a_keyring_and_changes_nothing(tmp_path, root, kek, path):
    KeyringFile(path, kek).create()
    before = tree(tmp_path)
    other = EnvKek("oab-kek-1:" + "A" * 43)
    assert Code.KEY_MISMATCH == code_of(lambda: KeyringFile(path, other).load())
    assert before == tree(tmp_path)


@pytest.mark.case("69")
def test_a_half_written_keyring_is_refused_at_each_length_and_not_touched(tmp_path, kek, path):
    KeyringFile(path, kek).create()
    whole = path.read_bytes()
    for length in range(len(whole) - 2):
        path.write_bytes(whole[:length])
        before = tree(path.parent)
        assert Code.KEY_MISMATCH == code_of(lambda: KeyringFile(path, kek).load())
        assert before == tree(path.parent)


@pytest.mark.slow
@pytest.mark.case("66", "69")
def test_no_flipped_bit_of_a_keyring_is_accepted_as_another_keyring(kek, path):
    """A flip in white space or in an unused base64 bit may be read as the same keyring; none is read as another."""
    made = KeyringFile(path, kek).create()
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        path.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        try:
            loaded = KeyringFile(path, kek).load()
        except BrokerError as exc:
            assert exc.code in {Code.KEY_MISMATCH, Code.STORE_FORMAT}  # noqa: PT017 - both ends are fine, one of them is this
        else:
            assert (made.store_id, made.seeds, made.epoch) == (loaded.store_id, loaded.seeds, loaded.epoch)


@pytest.mark.parametrize("document", ["null", "[]", "{}", '{"format": "oauthbroker-store-1"}', "[" * 100_000, '"text"'])
def test_a_document_that_is_no_keyring_is_refused(kek, path, document):
    KeyringFile(path, kek).create()
    path.write_text(document)
    assert Code.KEY_MISMATCH == code_of(lambda: KeyringFile(path, kek).load())


PLANTED: dict[str, Callable[[Path], object]] = {
    "open to all": lambda path: path.chmod(0o644),
    "a link": link,
    "a hard link": hard_link,
    "a FIFO": fifo,
    "a folder": folder,
    "in an open folder": lambda path: path.parent.chmod(0o755),
}


@pytest.mark.case("72", "73")
@pytest.mark.parametrize("spoil", PLANTED.values(), ids=PLANTED)
def test_a_keyring_that_others_can_reach_is_refused(kek, path, spoil):
    KeyringFile(path, kek).create()
    spoil(path)
    assert Code.STORE_PERMISSIONS == code_of(lambda: KeyringFile(path, kek).load())


def test_a_store_below_a_world_writable_folder_is_not_made(root, kek, path):
    root.mkdir()
    root.chmod(0o777)
    assert Code.STORE_PERMISSIONS == code_of(lambda: KeyringFile(path, kek).create())


def test_keys_are_neither_shown_nor_pickled(kek, path, tmp_path):
    ring = KeyringFile(path, kek).create()
    shown = f"{kek!r}{ring!r}{ring.seeds!r}{ring.seeds[0]!s}"
    for secret in (kek._key, ring.seeds[0].key, ring._name_key):
        assert secret.hex() not in shown
        assert str(secret) not in shown
    for thing in (kek, ring, ring.seeds[0]):
        with pytest.raises(TypeError):
            pickle.dumps(thing)


def test_the_keyring_file_shows_no_key(kek, path, tmp_path):
    ring = KeyringFile(path, kek).create()
    document = json.loads(path.read_text())
    assert ["format", "storeId", "epoch", "wraps", "sealed"] == list(document)
    raw = path.read_bytes()
    for secret in (ring.seeds[0].key, ring.seeds[0].kid, ring._name_key):
        assert secret not in raw
        assert secret.hex().encode() not in raw
