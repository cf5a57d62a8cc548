"""What a store stands on, seen without touching it; and a store that is only looked at."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file import place_checks
from oauthbroker.store.file.place_checks import StoreProblem, file_system, locks_exclude, problems, space_at
from oauthbroker.store.file.read_only import ReadOnlyFs, look_at
from oauthbroker.store.posix import system_calls
from oauthbroker.testing import TestClock
from tests.kit.running_broker import file_store, tree

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:30 / /mnt/with\\040space rw - nfs4 server:/x rw
31 30 0:31 / /mnt/with\\040space/local rw - xfs /dev/sdb1 rw
32 22 0:32 / /mnt/over rw - cifs //server/x rw
33 32 0:33 / /mnt/over rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/mnt/with space/store", "nfs4"),
        ("/mnt/with space/local/store", "xfs"),
        ("/mnt/with spaces", "ext4"),
        ("/mnt/over/store", "tmpfs"),
    ],
)
def test_the_innermost_and_last_mount_holds_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    monkeypatch.setattr(place_checks, "_MOUNTS", table)
    assert kind == file_system(Path(path))


def test_where_the_system_does_not_tell_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(place_checks, "_MOUNTS", tmp_path / "gone")
    assert "" == file_system(tmp_path)


def test_locks_are_tried_on_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert locks_exclude(tmp_path) in {True, None}
    assert [] == list(tmp_path.iterdir())
    monkeypatch.setattr(system_calls.Fs, "try_lock", lambda *_: True)
    assert locks_exclude(tmp_path) in {False, None}


def test_reservation_is_the_space_free_to_this_user(tmp_path: Path):
    reservation = space_at(tmp_path)
    assert 0 < reservation.bytes_free <= shutil.disk_usage(tmp_path).total


async def test_every_problem_is_named_at_once(tmp_path: Path):
    store = file_store(tmp_path)
    await store.close()
    root, data = tmp_path / "store", tmp_path / "store" / "data"
    assert [] == list(problems(root))
    (data / "grants" / "open").write_bytes(b"")
    (data / "grants" / "open").chmod(0o640)
    (data / "grants" / "link").symlink_to("/etc/passwd")
    (data / "grants" / "twice").touch(0o600)
    os.link(data / "grants" / "twice", data / "sessions" / "twice")
    os.mkfifo(data / "events" / "pipe", 0o600)
    (data / "queues").chmod(0o750)
    root.chmod(0o777)
    assert {
        StoreProblem(".", "all users may write to this folder"),
        StoreProblem("data/grants/open", "open to others"),
        StoreProblem("data/grants/link", "a link"),
        StoreProblem("data/grants/twice", "has a second name"),
        StoreProblem("data/sessions/twice", "has a second name"),
        StoreProblem("data/events/pipe", "of the wrong type"),
        StoreProblem("data/queues", "open to others"),
    } == set(problems(root))


async def test_every_file_that_is_looked_at_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(place_checks, "_COUNTED", 4)
    await file_store(tmp_path).close()
    for number in range(9):
        (tmp_path / f"store/data/grants/{number}").touch(0o600)
    done = list[int]()
    assert [] == list(problems(tmp_path / "store", lambda _what, count, _total: done.append(count)))
    assert sum(1 for _ in (tmp_path / "store/data").rglob("*")) == done[-1]


def test_files_of_another_user_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert [StoreProblem("data", "owned by another user")] == list(problems(tmp_path))


def test_a_store_that_is_not_there_is_one_problem(tmp_path: Path):
    assert [StoreProblem("data", "missing")] == list(problems(tmp_path))


async def test_a_store_that_is_looked_at_reads_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oauthbroker.store.file.locked_writes.PATIENCE_SECONDS", 0.2)  # a reader never gets a lock
    store = file_store(tmp_path)
    key = store.key("grants", "mail", "alice")
    await store.put(key, b"held", expect=0)
    (tmp_path / "store/data/grants/.left.0123456789abcdef.tmp").touch(0o600)
    before = tree(tmp_path)
    looked = look_at(
        tmp_path / "store", store.keyring.ring, kinds=("grants", "of-a-later-version"), clock=TestClock(), on_damage=_ignore
    )  # fmt: skip
    assert looked is not None
    eyes, kinds = looked
    assert frozenset({"grants"}) == kinds
    entry = await eyes.get(key)
    assert entry is not None
    assert b"held" == entry.body
    for change in (eyes.put(key, b"changed", expect=1), eyes.delete(key, expect=1)):
        with pytest.raises(BrokerError) as caught:
            await change
        assert caught.value.code in {Code.STORE_UNAVAILABLE, Code.STORE_LOCKED}
    await eyes.close()
    assert before == tree(tmp_path)
    await store.close()


def _ignore(place: str, code: Code) -> None:
    """A socket without a listener."""


def test_a_store_that_no_broker_has_opened_is_not_made(tmp_path: Path):
    ring = object()
    assert look_at(tmp_path, ring, kinds=("grants",), clock=TestClock(), on_damage=_ignore) is None  # type: ignore[arg-type]
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["create_file", "write", "reserve", "truncate", "rename", "link", "unlink"])
def test_every_change_is_refused(name: str):
    with pytest.raises(OSError, match="Read-only file system"):
        getattr(ReadOnlyFs(), name)(0, "x", "y")


def test_a_look_at_locks_keeps_no_descriptor(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        locks_exclude(tmp_path)
    assert before == len(list(Path("/proc/self/fd").iterdir()))


def test_links_of_a_tag_are_looked_at_once_and_each_name_of_a_bad_one_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = tmp_path / "data" / "tags" / "grants.app" / "00"
    shard.mkdir(0o700, parents=True)
    for folder in (tmp_path / "data", *shard.parents[:2], shard):
        folder.chmod(0o700)
    (tmp_path / "data" / "tags" / "empty").touch(0o600)
    for number in range(99):
        (shard / f"tag-{number}").hardlink_to(tmp_path / "data" / "tags" / "empty")
    looked = Mock(side_effect=place_checks._problem_of)
    monkeypatch.setattr(place_checks, "_problem_of", looked)
    assert [] == list(problems(tmp_path))
    assert 6 == looked.call_count, "four folders, the empty file and one link"
    (tmp_path / "data" / "tags" / "empty").chmod(0o640)
    assert 100 == sum(each.what == "open to others" for each in problems(tmp_path))
