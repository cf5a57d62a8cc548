"""The disk is full at any one step of any durable operation: it says so, the next try works, and nothing is left over."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing.stores import open_keyring
from tests.faults.durable_stories import STORIES, Story
from tests.kit.broker_process import Process
from tests.kit.crashfs import HookedFs

STEPS = frozenset({"create_file", "reserve", "write", "fsync", "rename", "link", "unlink"})
NUMBERS = (*range(6), *range(6, 200, 5))  # one whole write, and of what follows it every fifth step


class FullAt(HookedFs):
    """The `number`-th step after `arm` finds no space, once."""

    def __init__(self) -> None:
        self.left, self.failed = -1, False

    def arm(self, number: int) -> None:
        self.left, self.failed = number, False

    def _step(self, call: str, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if call not in STEPS or self.left < 0:
            return run()
        self.left -= 1
        if self.left >= 0:
            return run()
        self.failed = True
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.sample(10)
@pytest.mark.slow
@pytest.mark.case("71")
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_disk_that_is_full_once_keeps_no_operation_from_its_next_try_and_is_left_tidy(
    identity_provider, tmp_path, story
):
    ring, apps, live = open_keyring(tmp_path), [story.app(identity_provider)], tmp_path / "live"
    for number in NUMBERS:
        shutil.rmtree(live, ignore_errors=True)
        shutil.copytree(tmp_path / "store", live)
        process = Process.start(live, ring, apps, identity_provider.clock.now())
        known = await story.prepare(process, identity_provider)
        at = process.clock.now()
        await process.die()
        fs = FullAt()
        process = Process.start(live, ring, apps, at, fs)
        fs.arm(number)
        acknowledged = await acknowledges(process, story, known)
        fs.left = -1
        assert acknowledged or fs.failed
        await process.die()
        assert [] == [path.name for path in (live / "data").rglob("*.tmp")]
        later = Process.start(live, ring, apps, process.clock.now(), Fs())
        assert not acknowledged or await story.holds(later, known), number
        await later.die()
        if not fs.failed:
            break
    assert 0 < number < NUMBERS[-1]


async def acknowledges(process: Process, story: Story, known: Any) -> bool:
    """Tries until it is acknowledged. False when the attempt is used up."""
    for _ in range(6):
        try:
            await story.do(process, known)
        except BrokerError as error:
            if error.code in story.gives_up and not error.retryable:
                return False
            if not error.retryable:
                return True
            process.clock.advance(61)
        else:
            return True
    raise AssertionError("full once, and it never works again")
