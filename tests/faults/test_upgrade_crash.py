"""An upgrade that is killed, or meets a failing disk, at every change of the disk: the next opening finishes it."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import Depth
from oauthbroker.events.queue import StoreQueues
from oauthbroker.model.settings import Limits
from oauthbroker.observability.metrics import Metrics
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.upgrade_steps import STEPS
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.keyring import Upgrades
from oauthbroker.store.keys.upgrade import UpgradeStep, names_of
from oauthbroker.testing.clock import TestClock
from oauthbroker.testing.crashfs import Crash
from tests.faults.crash_kit import CrashAtChange, FailAtChange
from tests.faults.sync_kit import different
from tests.kit.forms import swept
from tests.kit.old_store import MADE_AT, open_upgraded, ring_of, unpack

MOST_CHANGES = 400  # far more than an upgrade makes; the sweeps end by themselves


async def write_note(store: Store) -> None:
    """A step as they are to be: each entry is written once, and found written by the next run."""
    for number in range(3):
        key = store.key("secrets", f"note {number}")
        if await store.get(key) is None:
            await store.put(key, b"written", expect=0)


PLANTED = (*STEPS, UpgradeStep("notes", write_note))


async def contents(store: FileStore) -> tuple[list[str], list[str], Depth]:
    """The grants, the sessions and the queues: what an old store has, an upgraded one has too."""
    repository = Repository(store)
    grants = sorted([f"{held.record.app} {held.record.subject}" async for held in repository.grants()])
    by_tag = sorted([held.record.app async for held in repository.grants_with("acme:user:1")])
    assert ["calendar", "mail"] == by_tag
    sessions = [held.record.id async for held in repository.sessions()]
    queues = StoreQueues(repository=repository, clock=TestClock(MADE_AT), limits=Limits(), metrics=Metrics())
    return grants, sessions, Depth.of(await queues.depths())


async def upgraded(root: Path, key_file: Path) -> tuple[list[str], list[str], Depth]:
    """What an opening without faults finds, after which nothing is left to do."""
    store = await open_upgraded(root, key_file, steps=PLANTED)
    found = await contents(store)
    assert 3 == sum([1 async for entry in store.scan("secrets") if entry.body == b"written"])
    await store.close()
    assert Upgrades(names_of(PLANTED)) == ring_of(root, key_file).upgrades
    assert [] == list(root.rglob("*.tmp"))
    return found


@pytest.mark.slow
@pytest.mark.case("63", "71")
async def test_an_upgrade_that_is_killed_at_any_change_is_finished_by_the_next_opening(tmp_path):
    key_file = tmp_path / "whole" / "test.kek"
    expected = await upgraded(unpack(tmp_path / "whole"), key_file)
    assert 4 == len(expected[0])
    for number in swept(MOST_CHANGES):
        place = tmp_path / str(number)
        root = unpack(place)
        fs = CrashAtChange(root)
        fs.arm(number)
        try:
            await (await open_upgraded(root, key_file, steps=PLANTED, fs=fs)).close()
        except Crash:
            await asyncio.sleep(0)
        for clone in different(fs.clones(tmp_path / f"clones-{number}", seeds=1)):
            assert expected == await upgraded(clone, key_file), (number, clone.name)
        fs.restore()
        shutil.rmtree(place)
        shutil.rmtree(tmp_path / f"clones-{number}")
        if fs.fired is None:
            break
    assert fs.fired is None
    assert number > 20


@pytest.mark.slow
@pytest.mark.case("63")
@pytest.mark.parametrize("number_of", [errno.ENOSPC, errno.EIO])
async def test_an_upgrade_that_meets_a_failing_disk_is_finished_by_the_next_opening(tmp_path, number_of):
    key_file = tmp_path / "whole" / "test.kek"
    expected = await upgraded(unpack(tmp_path / "whole"), key_file)
    for number in swept(MOST_CHANGES):
        root = unpack(tmp_path / str(number))
        fs = FailAtChange()
        fs.arm(number, number_of)
        try:
            await (await open_upgraded(root, key_file, steps=PLANTED, fs=fs)).close()
        except BrokerError as error:
            assert error.code is Code.STORE_UNAVAILABLE  # noqa: PT017 - or it is open
        assert expected == await upgraded(root, key_file), number
        shutil.rmtree(tmp_path / str(number))
        if fs.fired is None:
            break
    assert fs.fired is None
