"""`python -m tests.faults.memory_worker STORY SEED SAMPLES FOLDER`: one allocation of memory fails, somewhere in a refresh
or between a callback and its acknowledged event. The next broker finds no token pair lost.

Prints how often a story did not end as usual. Runs in a process of its own: the allocation may be any.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.faults.crash_kit import BeforeCallback, before_callback
from tests.faults.refresh_kit import Expired, asked, is_live
from tests.kit.broker_process import AFTER_CLAIMS
from tests.kit.running_broker import ALICE, BASE

_testcapi: Any = import_module("_testcapi")
MOST_ALLOCATIONS = {"refresh": 20_000, "callback": 120_000}
PATIENCE = 15  # seconds of a child
PAUSES = (2, 10, 60, 600)  # after lost answers


def in_a_child(work: Callable[[], Coroutine[Any, Any, str]], number: int) -> str:
    """Do work in a process whose `number`-th allocation fails, and which then ends as if killed. Return its result, or
    "" where it failed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE)
        with suppress(BaseException):
            _testcapi.set_nomemory(number, number + 1)
            os.write(write, asyncio.run(work()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def refresh(idp: IdentityProvider, place: Path, number: int) -> bool:
    """Refresh a grant, and look at the store as the next broker does. Return whether the refresh ended as usual."""
    clock = idp.clock
    assert isinstance(clock, TestClock)
    story = asyncio.run(Expired.prepare(place, idp, clock))

    async def refreshed() -> str:
        result = await asked(story.start(place / "store"))
        return result.access_token.reveal() if isinstance(result, Ready) else ""

    before = story.requests
    first = in_a_child(refreshed, number)
    asyncio.run(_check_grant(story, place, first, was_asked=story.requests > before))
    return bool(first)


async def _check_grant(story: Expired, place: Path, first: str, *, was_asked: bool) -> None:
    process = story.start(place / "store")
    result = await asked(process)
    for pause in PAUSES:
        if isinstance(result, Failed):
            assert result.retryable, result
            story.clock.advance(pause)
            result = await asked(process)
    if isinstance(result, AuthorizationRequired):  # the answer was lost
        assert (True, "refreshUncertain", "") == (was_asked, result.reason, first)
    else:
        assert is_live(story, result), result
        assert isinstance(result, Ready)
        assert first in {"", result.access_token.reveal()}
    await process.die()


def callback(idp: IdentityProvider, place: Path, number: int) -> bool:
    """Come back with a code, and enqueue and receive the events. Return whether the user was told that it worked."""
    story = asyncio.run(before_callback(place, idp))

    async def lived() -> str:
        process = story.start()
        story.browser.serve(BASE, process.broker.asgi.app)
        page = await story.browser.follow(story.callback)
        while page.location is not None:
            page = await story.browser.follow()
        await process.tend()
        await process.drain()
        return " ".join([str(page.status), *process.heard.acknowledged])

    status, *acknowledged = in_a_child(lived, number).split() or [""]
    asyncio.run(_check_events(story, {*acknowledged}, was_told=status == "200"))
    return status == "200"


async def _check_events(story: BeforeCallback, acknowledged: set[str], *, was_told: bool) -> None:
    process = story.start()
    for _ in range(2):
        await process.tend(after=AFTER_CLAIMS)
        await process.drain()
    received = {*process.heard.received}
    assert not acknowledged & received
    grant, granted = await process.grant("mail", ALICE), story.granted(story.first)
    assert grant is not None or not was_told
    assert granted not in received | acknowledged or grant is not None
    assert not was_told or granted in received | acknowledged
    assert 0 == (await process.counts(("due",)))["due"]
    await process.die()


def main() -> None:
    name, seed, samples, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    dice, play, unusual = Random(seed), {"refresh": refresh, "callback": callback}[name], 0
    for sample in range(samples):
        number = dice.randrange(1, MOST_ALLOCATIONS[name])
        place = folder / str(sample)
        place.mkdir()
        try:
            with IdentityProvider(clock=TestClock()) as idp:
                unusual += not play(idp, place, number)
        except Exception:
            print(f"allocation {number} of {name}", flush=True)
            raise
    print(f"{unusual} of {samples} did not end as usual")


if __name__ == "__main__":
    main()
