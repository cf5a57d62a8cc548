"""The machine stops at every single change while a runtime in another process receives and acknowledges its events over
the API (case 93).

What must hold on every disk that this may leave: an event whose ack was answered does not come again; an
ack that was cut off before its answer counts or does not; everything else comes again under the same id; settling a lease that has passed to another owner is refused, and nothing
changes.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from oauthbroker.broker import Broker
from oauthbroker.model.settings import Limits
from oauthbroker.testing import IdentityProvider
from tests.faults.crash_kit import MOST_CHANGES, POWER_LOSS_STATES, BeforeCallback, CrashAtChange, before_callback
from tests.kit.broker_process import Heard, Process
from tests.kit.crashfs import Crash
from tests.kit.forms import swept
from tests.kit.running_broker import BASE, Harness
from tests.story.api.kit import Caller

LEASE_IS_OVER = Limits().queue_lease_seconds + 1


@dataclass(frozen=True)
class Listener:
    """The part of a harness that a caller needs."""

    broker: Broker
    origin: str = BASE


@dataclass
class Runtime:
    """A runtime that speaks HTTP to any broker process that runs."""

    process: Process
    key: str
    heard: Heard
    settling: str = ""  # an event whose ack was sent and not answered yet

    @property
    def caller(self) -> Caller:
        return Caller(cast("Harness", Listener(self.process.broker)), self.key)

    async def receive(self) -> dict[str, Any] | None:
        answer = await self.caller.get("/v1/agents/planner/events")
        if answer.status == 204:
            return None
        assert 200 == answer.status, answer.text
        found: dict[str, Any] = answer.json()
        self.heard.received.append(found["event"]["eventId"])
        return found

    async def settle(self, found: dict[str, Any], how: str = "ack") -> int:
        event = found["event"]["eventId"]
        self.settling = event
        answer = await self.caller.post(f"/v1/agents/planner/events/{event}/{how}", {"lease": found["lease"]})
        self.settling = ""
        assert answer.status in {204, 409}, answer.text
        if (how, answer.status) == ("ack", 204):
            self.heard.acknowledged.add(event)
        return answer.status

    async def drain(self) -> None:
        while (found := await self.receive()) is not None:
            assert 204 == await self.settle(found)


async def queued(place: Path, idp: IdentityProvider) -> tuple[BeforeCallback, str]:
    """Two events lie in the queue; and the key of a runtime."""
    story = await before_callback(place, idp)
    process = story.start()
    story.browser.serve(BASE, process.broker.asgi.app)
    page = await story.browser.follow(story.callback)
    while page.location is not None:
        page = await story.browser.follow()
    assert 200 == page.status
    await process.tend()
    _, key = await process.broker.api_keys.create("runtime", ["runtime"])
    await process.die()
    return story, key.reveal()


@pytest.mark.slow
@pytest.mark.case("93")
async def test_a_crash_at_any_change_of_an_ack_over_the_api_loses_no_event_and_brings_none_back(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    story, key = await queued(origin, identity_provider)
    wanted = {story.granted(story.first), story.granted(story.second)}
    seen_before_crash, cut_off = set[int](), set[bool]()
    for number in swept(MOST_CHANGES):
        place = tmp_path / str(number)
        shutil.copytree(story.root, place / "store")
        fs = CrashAtChange(place / "store")
        process = story.start(place / "store", fs)
        runtime = Runtime(process, key, Heard())
        fs.arm(number)
        try:
            await runtime.drain()
        except Crash:
            assert fs.fired
        clones = list(fs.clones(place / "clones", seeds=1, only=POWER_LOSS_STATES))
        fs.restore()
        await process.die()
        seen_before_crash.add(len(runtime.heard.acknowledged))
        for clone in clones:
            again = await heard_again(story, clone, key, runtime.heard)
            lost = wanted - runtime.heard.acknowledged - again
            assert lost <= {runtime.settling}
            if runtime.settling:
                cut_off.add(bool(lost))
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert fs.fired is None
    assert {0, 1, 2} == seen_before_crash, "it was cut before, between and after the two"
    assert {True, False} == cut_off, "an ack without its answer counted on some disks and not on others"
    assert number > 10


async def heard_again(story: BeforeCallback, root: Path, key: str, before: Heard) -> set[str]:
    """What the next process delivers from this disk, each once, and none that was acknowledged."""
    process = story.start(root, after=LEASE_IS_OVER)
    runtime = Runtime(process, key, Heard())
    await process.tend()
    await runtime.drain()
    again = runtime.heard.received
    assert len(again) == len(set(again))
    assert not before.acknowledged & set(again)
    await process.tend()
    assert {"due": 0, "events": 0} == await process.counts(("due", "events"))
    await process.die()
    return set(again)


@pytest.mark.case("93")
async def test_a_consumer_that_died_is_followed_by_one_that_settles_the_same_event_and_the_first_settles_nothing(
    identity_provider: IdentityProvider, tmp_path: Path
) -> None:
    """Delivery twice: the id is the same, the count says so, and the second settling of one lease is a no-op."""
    story, key = await queued(tmp_path, identity_provider)
    process = story.start()
    runtime = Runtime(process, key, Heard())
    first = await runtime.receive()
    assert first is not None
    process.clock.advance(LEASE_IS_OVER)
    second = await runtime.receive()
    assert second is not None
    assert [(first["event"]["eventId"], 1), (first["event"]["eventId"], 2)] == [
        (each["event"]["eventId"], each["attempt"]) for each in (first, second)
    ]
    assert first["event"] == second["event"]
    assert first["lease"] != second["lease"]
    for how in ("ack", "nack"):
        assert 409 == await runtime.settle(first, how)
    assert 204 == await runtime.settle(second)
    for how, status in (("ack", 204), ("nack", 409), ("ack", 204)):  # a repeated call is answered alike, without effect
        assert status == await runtime.settle(second, how)
    other = await runtime.receive()
    assert other is not None
    assert other["event"]["eventId"] != first["event"]["eventId"]
    assert await runtime.receive() is None
    await process.die()
