"""One sync fails, the caller tries again until it is acknowledged, and then the power goes: it holds on every disk.

The write that failed may lie there, unsynced: who finds it done makes it durable before saying so.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.stores import open_keyring
from tests.faults.durable_stories import STORIES, Story
from tests.faults.sync_kit import FailingSync, different
from tests.kit.broker_process import Process
from tests.kit.forms import swept

MOST_SYNCS = 60  # far more than an operation makes; the sweeps end by themselves
TRIES = 6
SAMPLE = (
    "a revocation", "a disconnection", "a link", "a withdrawal", "a turn's end", "a key's end", "a sign-out",
    "an acknowledgement", "a dead letter's end", "a secret's end",
)  # fmt: skip

ANOTHER = "another process"
PAIRS = [(name, process) for name in STORIES for process in ("the same process", ANOTHER)]
"""One column, so that the short form takes about 20 pairs. Every story runs in the long form, in both ways."""


class Trial:
    """Runs one story on copies of a store."""

    def __init__(self, story: Story, idp: IdentityProvider, tmp_path: Path) -> None:
        self.story, self.idp, self.apps = story, idp, [story.app(idp)]
        self.ring, self.origin, self.place = open_keyring(tmp_path), tmp_path / "store", tmp_path / "trial"

    def start(self, root: Path, at: datetime, fs: FailingSync | None = None) -> Process:
        return Process.start(root, self.ring, self.apps, at, fs)

    async def run(self, number: int, *, cold: bool, then: int = -1, late: bool = False) -> int:
        """Fail the syncs, retry until the story is acknowledged, and check every disk. Return how many syncs failed."""
        shutil.rmtree(self.place, ignore_errors=True)
        live = self.place / "live"
        shutil.copytree(self.origin, live)
        process = self.start(live, self.idp.clock.now())
        known = await self.story.prepare(process, self.idp)
        at = process.clock.now()
        await process.die()
        fs = FailingSync(live)
        first = self.start(live, at, fs)
        fs.arm_sync(number, then=then, late=late)
        last = await self._until_acknowledged(first, known, fs, cold=cold)
        if last is not None:
            for clone in different(fs.clones(self.place / "clones", seeds=1)):
                later = self.start(clone, last.clock.now())
                assert await self.story.holds(later, known), (number, then, clone.name)
                await later.die()
        assert last is not None or fs.failed
        return fs.failed

    async def _until_acknowledged(self, process: Process, known: Any, fs: FailingSync, *, cold: bool) -> Process | None:
        """Return the process that acknowledged it. `cold`: each attempt is made by a new process."""
        started = [process]
        try:
            for _ in range(TRIES):
                try:
                    await self.story.do(started[-1], known)
                except BrokerError as error:
                    if error.code in self.story.gives_up and not error.retryable:
                        return None
                    if not error.retryable:
                        return started[-1]
                    started[-1].clock.advance(61)  # after a pause that a lost answer may ask for
                    if cold:
                        with fs.sound():  # what a start does is tried by itself
                            started.append(self.start(self.place / "live", started[-1].clock.now(), fs))
                else:
                    return started[-1]
            raise AssertionError("failed syncs, and it never works again")
        finally:
            for each in started:
                await each.die()


@pytest.mark.sample(12)
@pytest.mark.slow
@pytest.mark.case("63", "71")
@pytest.mark.parametrize("trial_of", PAIRS, ids=[f"{name}, {process}" for name, process in PAIRS])
async def test_a_write_acknowledged_after_a_failed_sync_survives_a_loss_of_power(identity_provider, tmp_path, trial_of):
    name, process = trial_of
    trial = Trial(STORIES[name], identity_provider, tmp_path)
    for number in swept(MOST_SYNCS):
        if not await trial.run(number, cold=process == ANOTHER):
            break
    assert 0 < number < MOST_SYNCS - 1


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.case("63", "71")
@pytest.mark.parametrize("name", SAMPLE)
async def test_a_write_acknowledged_after_two_failed_syncs_survives_a_loss_of_power(identity_provider, tmp_path, name):
    """The second one fails soon after, in what another process does to try again."""
    trial = Trial(STORIES[name], identity_provider, tmp_path)
    both = 0
    for number in range(MOST_SYNCS):
        failed = await trial.run(number, cold=True, then=number % 3)
        both += failed == 2
        if not failed:
            break
    assert both


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.case("63", "71")
@pytest.mark.parametrize("name", SAMPLE)
async def test_a_sync_that_worked_and_was_not_told_of_is_acknowledged_at_the_next_try(
    identity_provider, tmp_path, name
):
    trial = Trial(STORIES[name], identity_provider, tmp_path)
    for number in range(0, MOST_SYNCS, 2):
        if not await trial.run(number, cold=bool(number % 4), late=True):
            break
    assert number


async def test_a_sync_of_a_kind_syncs_its_folder_and_tells_of_a_failure(tmp_path):
    ring = open_keyring(tmp_path)
    fs = FailingSync(tmp_path / "store")
    store = FileStore(tmp_path / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=SystemClock(), fs=fs)
    fs.arm_sync(0)
    with pytest.raises(BrokerError) as caught:
        await store.sync("grants")
    assert Code.STORE_UNAVAILABLE is caught.value.code
    await store.sync("grants")
    with pytest.raises(ValueError, match="keeps no"):
        await store.sync("pair")
    await store.close()
