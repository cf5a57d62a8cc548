"""A store is exported while brokers use it, and restored in an empty place: whole or not at all, and closed until accepted."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyrage
import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import Refused
from oauthbroker.repository.repository import KINDS
from oauthbroker.repository.store_age import PLACE, StoreAge
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration import age
from oauthbroker.store.migration.archive import ArchiveReader, Export, Import
from oauthbroker.store.migration.copying import CopiedKind, RecordDigest
from oauthbroker.store.migration.raw import RawRecord
from oauthbroker.store.posix.migration_marker import MigrationState
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit import postgres
from tests.kit.age_identity import identity_file
from tests.kit.cli import BROKER, Desk, age_after_a_start, serving
from tests.kit.raw_world import RECORDS, Dying, Killed, World

ENV = "BROKER_DATABASE_URL"
PLACES = ("database", "others")


class Vault:
    """A world with an identity, and archives in it."""

    def __init__(self, world: World, canaries: Canaries) -> None:
        self.world, self.path = world, world.folder / "store.age"
        self.identity = pyrage.x25519.Identity.generate()
        canaries.add(str(self.identity), "identity")

    def export(
        self, word: str = "files", *, ring: Keyring | None = None, change: Callable[[], None] | None = None
    ) -> Export:
        with closing(self.world.place(word)) as store:
            export = Export(store=store, document=store.keyring() or b"", ring=ring or self.world.ring, known=KINDS, clock=SystemClock())  # fmt: skip
            age.encrypt(self.path, changed_before_the_end(export.lines(), change), [self.identity.to_public()])
        return export

    def restore(self, word: str, *, identity: Any = None, at: int = -1, after: bool = False) -> list[CopiedKind]:
        with closing(self.world.place(word, make=True)) as target, age.archive_file(self.path) as file:

            def read(reader: ArchiveReader) -> None:
                age.decrypt(file, reader, [identity or self.identity])

            dying: Any = Dying(target, iter(range(1_000)), at, after=after)
            done = Import(target=dying, opened=self.opened, known=KINDS, clock=SystemClock())
            return done.run(read)

    def opened(self, document: bytes) -> Keyring:
        return Keyring.opened(document, self.world.kek)

    def lines(self) -> list[bytes]:
        text: bytes = pyrage.decrypt(self.path.read_bytes(), [self.identity])
        return text.splitlines(keepends=True)

    def rewrite(self, lines: list[bytes]) -> None:
        self.path.write_bytes(pyrage.encrypt(b"".join(lines), [self.identity.to_public()]))

    def state(self, word: str) -> MigrationState | None:
        with closing(self.world.place(word, make=True)) as store:
            mark = store.mark()
            return mark.state if mark else None

    def accept(self, word: str) -> None:
        with closing(self.world.place(word)) as store:
            store.set_mark(None, expect=store.mark())


def changed_before_the_end(lines: Iterator[bytes], change: Callable[[], None] | None) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number == 2 and change:
            change()
        yield line


@pytest.fixture
def vault(postgres_server: postgres.Server, tmp_path: Path, canaries: Canaries) -> Iterator[Vault]:
    postgres_server.empty_database("migration")
    world = World(tmp_path, postgres_server)
    asyncio.run(world.filled())
    yield Vault(world, canaries)
    postgres_server.run("drop database migration with (force)")


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("source", ["files", "database"])
def test_a_restored_store_has_every_record_and_opens_when_it_is_accepted(
    vault: Vault, source: str, target: str
) -> None:
    if source == "database":
        vault.world.move("files", "database")
    before = vault.world.all(source)
    exported = {each.kind: each for each in vault.export(source).kinds}
    if source == target:
        vault.world.begin_anew()
    kinds = vault.restore(target)
    assert (RECORDS, exported) == ({it.kind: it.records for it in kinds if it.records}, {it.kind: it for it in kinds})
    assert before == vault.world.all(target)
    assert (MigrationState.RESTORED, False) == (vault.state(target), asyncio.run(vault.world.opens(target)))
    assert kinds == vault.restore(target)
    with closing(vault.world.place(target)) as store:
        mark = store.mark()
        assert mark is not None
        assert Code.STORE_ROLLED_BACK is mark.refusal().code
    vault.accept(target)
    assert asyncio.run(vault.world.opens(target))


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("target", PLACES)
def test_an_import_that_is_killed_at_any_step_goes_on_and_never_opens(vault: Vault, target: str, after: bool) -> None:
    before, _ = vault.world.all("files"), vault.export()
    for at in range(100):
        vault.world.empty(target)
        try:
            vault.restore(target, at=at, after=after)
            break
        except Killed:
            assert not asyncio.run(vault.world.opens(target)), at
        vault.restore(target)
        assert (before, MigrationState.RESTORED) == (vault.world.all(target), vault.state(target))
        assert not asyncio.run(vault.world.opens(target)), at
    assert at >= 6


def another_record(lines: list[bytes]) -> list[bytes]:
    line = json.loads(lines[1])
    record = bytearray(base64.b64decode(line["record"]))
    record[-1] ^= 1
    return [lines[0], encoded(line | {"record": base64.b64encode(record).decode()}), *lines[2:]]


def encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def with_member(number: int, **members: Any) -> Callable[[list[bytes]], list[bytes]]:
    def change(lines: list[bytes]) -> list[bytes]:
        return [*lines[:number], encoded(json.loads(lines[number]) | members), *lines[number + 1 :]]

    return change


def with_fitting_digests(lines: list[bytes]) -> list[bytes]:
    """Give the archive the last line that its writer would have given it."""
    kinds = defaultdict[str, RecordDigest](RecordDigest)
    for each in map(json.loads, lines[1:-1]):
        tags = frozenset(map(tuple, each["tags"]))
        kinds[each["kind"]].add(RawRecord(each["name"], base64.b64decode(each["record"]), tags))
    found = [digest.of(kind) for kind, digest in kinds.items()]
    return [*lines[:-1], encoded({"kinds": {each.kind: [each.records, each.digest] for each in found}})]


REFUSED_TEXTS: dict[str, tuple[str, Callable[[list[bytes]], list[bytes]]]] = {
    "a newer format": ("newer oauthbroker", with_member(0, format="oab-archive-2")),
    "a newer kind": ("newer oauthbroker", with_member(1, kind="dreams")),
    "a record that does not open": ("damaged", another_record),
    "a record of another name": ("damaged", with_member(1, name="0" * 64)),
    "a name that leaves its folder": ("damaged", with_member(1, name="../../keyring")),
    "a tag that leaves its folder": ("damaged", with_member(1, tags=[["../x", "0" * 32]])),
    "a tag that leaves its folder, under a fitting digest": (
        "damaged",
        lambda lines: with_fitting_digests(with_member(1, tags=[["../x", "0" * 32]])(lines)),
    ),
    "other tags": ("damaged", with_member(1, tags=[["app", "0" * 32]])),
    "a record is missing": ("damaged", lambda lines: [lines[0], *lines[2:]]),
    "the end is missing": ("damaged", lambda lines: lines[:-1]),
    "no keyring": ("damaged", lambda lines: [b'{"format": "oab-archive-1"}\n', *lines[1:]]),
    "no lines": ("damaged", lambda _: []),
    "no JSON": ("damaged", lambda lines: [lines[0], b"[" * 100_000 + b"\n"]),
    "a list": ("damaged", lambda lines: [lines[0], b"[1]\n"]),
}


@pytest.mark.parametrize("what", REFUSED_TEXTS)
def test_an_archive_with_a_problem_changes_nothing(vault: Vault, what: str) -> None:
    text, change = REFUSED_TEXTS[what]
    vault.export()
    vault.rewrite(change(vault.lines()))
    assert text in refused(lambda: vault.restore("others"))
    assert (None, {}) == (vault.state("others"), vault.world.all("others"))


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("damaged or cut off", lambda data: data[:-1]),
        ("damaged or cut off", lambda data: data[: len(data) // 2]),
        ("damaged or cut off", lambda data: data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]),
        ("No identity", lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:]),
        ("No identity", lambda data: b""),
        ("No identity", lambda data: b"PK\x03\x04" + data),
    ],
    ids=["cut", "half", "changed", "head", "empty", "no archive"],
)
def test_a_damaged_file_changes_nothing(vault: Vault, text: str, change: Callable[[bytes], bytes]) -> None:
    vault.export()
    vault.path.write_bytes(change(vault.path.read_bytes()))
    assert text in refused(lambda: vault.restore("others"))
    assert (None, {}) == (vault.state("others"), vault.world.all("others"))


def test_another_identity_opens_nothing(vault: Vault) -> None:
    vault.export()
    assert "No identity" in refused(lambda: vault.restore("others", identity=pyrage.x25519.Identity.generate()))


@pytest.mark.parametrize("target", ["files", *PLACES])
def test_a_place_that_is_not_empty_stays_as_it_is(vault: Vault, target: str) -> None:
    vault.export()
    if target != "files":
        vault.world.move("files", target)
    before = vault.world.all(target)
    with pytest.raises(BrokerError) as found:
        vault.restore(target)
    assert (Code.KEY_EXISTS, before) == (found.value.code, vault.world.all(target))


def test_the_import_of_one_archive_does_not_go_on_with_another(vault: Vault) -> None:
    vault.export()
    with pytest.raises(Killed):
        vault.restore("others", at=3)
    vault.path.unlink()
    vault.export()
    with pytest.raises(BrokerError) as found:
        vault.restore("others")
    assert (Code.STORE_CLOSED, True) == (found.value.code, "not finished" in str(found.value))


def test_a_record_that_an_archive_lacks_stops_the_import_at_its_end(vault: Vault) -> None:
    vault.export()
    with pytest.raises(Killed):
        vault.restore("others", at=4)
    stranger = vault.world.folder / "others" / "data" / "grants" / ("0" * 64)
    stranger.write_bytes(b"OAB1 a stranger's")
    stranger.chmod(0o600)
    with pytest.raises(BrokerError) as found:
        vault.restore("others")
    assert (Code.RECORD_CORRUPT, MigrationState.IMPORTING) == (found.value.code, vault.state("others"))


def test_an_archive_is_for_its_owner_and_has_no_plain_text(vault: Vault) -> None:
    vault.export()
    assert 0o600 == vault.path.stat().st_mode & 0o777
    assert b"age-encryption.org/v1" in vault.path.read_bytes()[:40]
    assert not {b"oab-archive", b"keyring"} & set(vault.path.read_bytes().split(b'"'))
    assert "exists" in refused(vault.export)
    assert [vault.path] == [*vault.world.folder.glob("*store.age*")]


def test_an_export_that_fails_leaves_no_file(vault: Vault) -> None:
    def rewrapped() -> None:
        home = vault.world.folder / "files" / "data" / "keyring"
        home.write_bytes(vault.world.ring.wrapped_for([vault.world.kek]).document())

    with pytest.raises(BrokerError) as found:
        vault.export(change=rewrapped)
    assert (Code.STORE_LOCKED, True) == (found.value.code, "keys of the store" in str(found.value))
    vault.world.move("files", "others")
    with pytest.raises(BrokerError) as found:
        vault.export()
    assert Code.STORE_CLOSED is found.value.code
    assert {"files", "others", "kek"} == {path.name for path in vault.world.folder.iterdir()}


def test_a_record_that_does_not_open_is_left_out_and_named(vault: Vault) -> None:
    name = vault.world.all("files")["sessions"][0].name
    (vault.world.folder / "files" / "data" / "sessions" / name).write_bytes(b"OAB1 damaged")
    assert [f"sessions/{name[:16]}"] == vault.export().damaged
    vault.restore("others")
    assert 1 == len(vault.world.all("others")["sessions"])


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(Refused) as found:
        work()
    return str(found.value)


@pytest.fixture
def desk(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    return Desk(tmp_path, canaries, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["files", "database"])
def test_the_commands_restore_a_store_that_a_broker_used(
    desk: Desk,
    place: str,
    postgres_server: postgres.Server,
    monkeypatch: pytest.MonkeyPatch,
    identity_provider: IdentityProvider,
) -> None:
    desk.ready_to_serve(identity_provider)
    desk.connect("alice", identity_provider)
    identity, recipient = identity_file(desk)
    (desk.folder / "recipients").write_text(f"# who restores\n{recipient}\n")
    listed = desk.type("grants", "list", "--json").out
    with serving(desk):
        done = desk.type("store", "export", "store.age", "--recipients-file", "recipients", "--json")
    assert (0, [], 1) == (done.code, json.loads(done.out)["damaged"], records_of(done.out, "grants"))
    full = desk.type("store", "import", "store.age", "--identity", identity)
    assert (2, "keyExists") == (full.code, full.err.partition(":")[0])

    text, root = BROKER.format(base=desk.base, port=desk.port), "{root: ../anew}"
    if place == "database":
        postgres_server.empty_database("restored")
        monkeypatch.setenv(ENV, postgres_server.url("restored").reveal())
        root = f"{{root: ../anew, url: {{valueFrom: {{env: {ENV}}}}}}}"
    desk.write("broker", text.replace("{root: ../store}", root))
    reported = desk.type("store", "import", "store.age", "--identity", identity)
    assert (0, True) == (reported.code, "accept-restore" in reported.out)
    for words in (["grants", "list"], ["keys", "status"], ["store", "reopen"]):
        closed = desk.type(*words)
        assert (2, "storeRolledBack", True) == (
            closed.code,
            closed.err.partition(":")[0],
            "accept-restore" in closed.err,
        )
    asked = desk.type("store", "accept-restore")
    assert (2, True, True) == (asked.code, "--yes" in asked.err, "Refresh tokens" in asked.err)
    assert 2 == desk.type("grants", "list").code
    accepted = desk.type("store", "accept-restore", "--yes", "--json")
    assert (0, {"accepted": True}) == (accepted.code, json.loads(accepted.out))
    assert listed == desk.type("grants", "list", "--json").out
    assert json.loads(desk.type("store", "verify", "--json").out)["ok"]
    assert '"RestoreAccepted"' in desk.type("audit", "tail", "--json").out
    assert 0 == desk.type("audit", "verify").code
    assert {"accepted": False} == json.loads(desk.type("store", "accept-restore", "--json").out)
    desk.connect("bob", identity_provider)


def records_of(text: str, kind: str) -> int:
    [found] = [each["records"] for each in json.loads(text)["kinds"] if each["kind"] == kind]
    return int(found)


REFUSED_WORDS: dict[str, tuple[list[str], str]] = {
    "no recipient": (["export", "x.age"], "--recipient"),
    "a strange recipient": (["export", "x.age", "-r", "age1nobody"], "age1..."),
    "an identity as a recipient": (["export", "x.age", "-r", "AGE-SECRET-KEY-1X"], "age1..."),
    "no file of recipients": (["export", "x.age", "--recipients-file", "none"], "cannot be read"),
    "no folder": (["export", "none/x.age", "-r", "RECIPIENT"], "ENOENT"),
    "no archive": (["import", "none.age", "-i", "IDENTITY"], "cannot be read"),
    "no identity": (["import", "store.age", "-i", "none"], "no file"),
    "an empty identity": (["import", "store.age", "-i", "empty"], "no identity"),
    "a strange identity": (["import", "store.age", "-i", "strange"], "AGE-SECRET-KEY-1"),
    "an identity that others can read": (["import", "store.age", "-i", "open"], "storePermissions"),
}


@pytest.mark.parametrize("what", REFUSED_WORDS)
def test_a_command_that_cannot_work_says_why(desk: Desk, identity_provider: IdentityProvider, what: str) -> None:
    desk.ready_to_serve(identity_provider)
    identity, recipient = identity_file(desk)
    for name, text, mode in (("empty", "# nothing\n", 0o600), ("strange", "hello\n", 0o600), ("open", "x\n", 0o644)):
        (desk.folder / name).write_text(text)
        (desk.folder / name).chmod(mode)
    words, said = REFUSED_WORDS[what]
    given = {"RECIPIENT": recipient, "IDENTITY": identity}
    done = desk.type("store", *(given.get(word, word) for word in words))
    assert (2, True) == (done.code, said in done.err), done.err
    assert [] == [*desk.folder.glob("*x.age*")]


def test_without_the_library_the_message_names_the_extra(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oauthbroker.wiring.backup.find_spec", lambda _: None)
    for words in (["export", "x.age"], ["import", "x.age", "--identity", "x"]):
        done = desk.type("store", *words)
        assert (2, True) == (done.code, 'pip install "oauthbroker[backup]"' in done.err)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["files", "database"])
def test_an_older_copy_of_a_store_does_not_open_beside_the_audit_log_that_knows_a_later_one(
    desk: Desk,
    place: str,
    postgres_server: postgres.Server,
    monkeypatch: pytest.MonkeyPatch,
    identity_provider: IdentityProvider,
) -> None:
    if place == "database":
        postgres_server.empty_database("aging")
        monkeypatch.setenv(ENV, postgres_server.url("aging").reveal())
        text = BROKER.format(base=desk.base, port=desk.port)
        desk.write(
            "broker", text.replace("{root: ../store}", f"{{root: ../store, url: {{valueFrom: {{env: {ENV}}}}}}}")
        )
    desk.ready_to_serve(identity_provider)
    data, copy = desk.folder / "store" / "data", desk.folder / "copy"
    env = {ENV: os.environ.get(ENV, "")}
    age_after_a_start(desk, 1, **env)
    if place == "database":
        postgres_server.empty_database("older", "template aging")
    else:
        shutil.copytree(data, copy)
    assert 0 == desk.type("grants", "list").code
    age_after_a_start(desk, 2, **env)
    if place == "database":
        postgres_server.empty_database("aging", "template older")
    else:
        for each in copy.iterdir():  # a restore that leaves the audit log alone
            if each.is_dir() and each.name != "audit":
                shutil.rmtree(data / each.name)
                shutil.copytree(each, data / each.name)
    for words in (["grants", "list"], ["keys", "status"], ["serve"]):
        closed = desk.type(*words)
        assert (2, "storeRolledBack", True) == (
            closed.code,
            closed.err.partition(":")[0],
            "accept-restore" in closed.err,
        )
    asked = desk.type("store", "accept-restore")
    assert (2, True) == (asked.code, "Refresh tokens" in asked.err)
    assert 0 == desk.type("store", "accept-restore", "--yes").code
    assert 0 == desk.type("grants", "list").code
    assert '"RestoreAccepted"' in desk.type("audit", "tail", "--json").out
    assert {"accepted": False} == json.loads(desk.type("store", "accept-restore", "--json").out)
    age_after_a_start(desk, 2, **env)
    if place == "database":
        postgres_server.run("drop database older")
        postgres_server.run("drop database aging with (force)")


async def test_a_running_broker_does_not_forget_that_its_store_was_set_back(vault: Vault) -> None:
    store, data = vault.world.store(), vault.world.folder / "files" / "data"
    age = StoreAge(store=store, store_id=vault.world.ring.store_id, data=data, clock=SystemClock())
    await age.check()
    await age.grow()
    await age.grow()
    first = store.key("plugins", *PLACE)
    await store.delete(first, expect=2)  # as in a copy from before the first of them
    for _ in range(2):
        with pytest.raises(BrokerError) as found:
            await age.grow()
        assert Code.STORE_ROLLED_BACK is found.value.code
    with pytest.raises(BrokerError):
        await age.check()
    await store.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "[" * 3000,
        '{"storeId": "STORE", "number": "9", "at": ""}',
        '{"storeId": "x", "number": 9, "at": ""}',
    ],
)
async def test_a_note_of_another_store_or_a_damaged_one_closes_nothing(vault: Vault, text: str) -> None:
    store, data = vault.world.store(), vault.world.folder / "files" / "data"
    note = data / "audit.seen"
    note.write_text(text.replace("STORE", vault.world.ring.store_id))
    note.chmod(0o600)
    age = StoreAge(store=store, store_id=vault.world.ring.store_id, data=data, clock=SystemClock())
    await age.check()
    await age.grow()
    assert 1 == json.loads(note.read_text())["number"]
    await store.close()


async def test_an_age_that_does_not_open_is_no_older_one(vault: Vault) -> None:
    store, data = vault.world.store(), vault.world.folder / "files" / "data"
    age = StoreAge(store=store, store_id=vault.world.ring.store_id, data=data, clock=SystemClock())
    for _ in range(3):
        await age.grow()
    name = store.key("plugins", *PLACE).name
    (data / "plugins" / name).write_bytes(b"OAB1 damaged")
    await age.check()
    await age.grow()
    assert 4 == json.loads((data / "audit.seen").read_text())["number"]
    await store.close()
