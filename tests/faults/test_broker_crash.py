"""The machine stops, or the disk fails, at every single change between the callback and the acknowledged event.

What must hold on every disk that this may leave: the grant is there if and only if its event is delivered, at least
once and always under the same id; every conversation whose scopes it covers is woken too; the session ends; no file is
left behind.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.testing import IdentityProvider
from tests.faults.crash_kit import (
    MOST_CHANGES,
    POWER_LOSS_STATES,
    BeforeCallback,
    CrashAtChange,
    FailAtChange,
    before_callback,
)
from tests.kit.broker_process import AFTER_CLAIMS, Heard, Process
from tests.kit.crashfs import Crash
from tests.kit.running_broker import ALICE, BASE

SHARDS = 6
FAILING = [(shard, (errno.ENOSPC, errno.EIO)[shard % 2]) for shard in range(SHARDS)]


async def lived(process: Process, story: BeforeCallback) -> bool:
    """From the callback to the acknowledged events; whether the person was told that it worked."""
    story.browser.serve(BASE, process.broker.asgi.app)
    page = await story.browser.follow(story.callback)
    while page.location is not None:
        page = await story.browser.follow()
    reported = page.status == 200
    await process.tend()
    await process.drain()
    return reported


async def check(process: Process, story: BeforeCallback, before: Heard, *, reported: bool) -> bool:
    """A broker starts on the remaining files: the claims of this page. Returns whether there was a grant."""
    await check_proof(process, story)
    process.heard.received.clear()
    await process.tend()
    await process.drain()
    await process.tend(after=AFTER_CLAIMS)
    await process.drain()
    delivered = process.heard.received
    assert len(delivered) == len(set(delivered))
    assert not before.acknowledged & set(delivered)
    heard, grant = {*before.received, *delivered}, await process.grant("mail", ALICE)
    assert grant is not None or not reported
    assert (grant is not None) is (story.granted(story.first) in heard)
    assert (grant is not None) is (story.granted(story.second) in heard)
    assert story.granted(story.other_account) not in heard
    await check_first(process, story, heard, granted=grant is not None)
    await check_end(process, story, heard)
    return grant is not None


async def check_proof(process: Process, story: BeforeCallback) -> None:
    """Until its session is terminal, the outbox is the proof that it succeeded."""
    grant, session = await process.grant("mail", ALICE), await process.session(story.first)
    if grant is not None and session is not None and session.open:
        assert [story.granted(story.first)] == [event.id for event in grant.outbox]


async def check_first(process: Process, story: BeforeCallback, heard: set[str], *, granted: bool) -> None:
    session = await process.session(story.first)
    assert session is not None
    failed = f"evt-{story.first}-auth.failed" in heard
    if granted:
        assert ("completed", False) == (session.status, failed)
    else:  # before the claim nothing happened, and the person may come back; after it, it failed and was told
        assert (session.status, failed) in {("pending", False), ("failed", True)}
        assert session.claim is None or not session.open


async def check_end(process: Process, story: BeforeCallback, heard: set[str]) -> None:
    """No session stays open, nothing stays due, and no event is told twice."""
    await process.tend(after=700)
    sessions = [await process.session(each) for each in (story.first, story.second, story.other_account)]
    assert not [session for session in sessions if session is not None and session.open]
    process.heard.received.clear()
    await process.drain()
    assert not heard & set(process.heard.received)
    await process.tend(after=7200)
    assert {"due": 0, "events": 0, "sessions": 0} == await process.counts()


def at_every(shard: int) -> Iterator[int]:
    return iter(range(shard, MOST_CHANGES, SHARDS))


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.case("36", "63", "93")
@pytest.mark.rule("12.5.6-6", "12.5.6-7")
@pytest.mark.parametrize("shard", range(SHARDS))
async def test_a_crash_at_any_change_loses_no_grant_and_no_event(identity_provider, tmp_path, shard):
    outcomes = set()
    for number in at_every(shard):
        place = tmp_path / str(number)
        place.mkdir()
        story = await before_callback(place, identity_provider)
        fs = CrashAtChange(story.root)
        process, reported = story.start(fs=fs), False
        fs.arm(number)
        try:
            reported = await lived(process, story)
        except Crash:
            assert fs.fired
        for clone in list(fs.clones(place / "clones", seeds=1, only=POWER_LOSS_STATES)):
            outcomes.add(await looked_at(story, clone, process.heard, number, reported=reported))
        fs.restore()
        await process.die()
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert fs.fired is None
    assert reported
    assert {True, False} == outcomes
    assert number > 60  # the story is long, and it was cut everywhere


async def looked_at(story: BeforeCallback, root: Path, heard: Heard, seed: int, *, reported: bool) -> bool:
    """`check` on one disk, after a second crash while the first one was being tidied up."""
    fs = CrashAtChange(root)
    process = story.start(root, fs)
    fs.arm(random.Random(seed).randrange(120))
    try:
        await process.tend()
        await process.drain()
        await process.tend(after=AFTER_CLAIMS)
        await process.drain()
    except Crash:
        assert fs.fired
    fs.restore()
    await process.die()
    again = story.start(root, after=AFTER_CLAIMS)
    granted = await check(again, story, heard.and_then(process.heard), reported=reported)
    await again.die()
    return granted


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.case("36", "71", "93")
@pytest.mark.parametrize(("shard", "number_of_error"), FAILING)
async def test_a_disk_that_fails_at_any_change_gives_a_grant_with_its_events_or_neither(
    identity_provider, tmp_path, shard, number_of_error
):
    """The broker lives on. Where a grant was kept, its token is alive: nothing that is kept was revoked."""
    outcomes = set()
    for number in at_every(shard):
        place = tmp_path / str(number)
        place.mkdir()
        story = await before_callback(place, identity_provider)
        fs = FailAtChange()
        process, reported = story.start(fs=fs), False
        fs.arm(number, number_of_error)
        try:
            reported = await lived(process, story)
        except BrokerError:
            assert fs.fired
        fs.disarm()
        outcomes.add(await check(process, story, process.heard.and_then(Heard()), reported=reported))
        await check_token(process, identity_provider)
        await process.die()
        shutil.rmtree(place)
        if fs.fired is None:
            break
    assert fs.fired is None
    assert reported
    assert {True, False} == outcomes


async def check_token(process: Process, idp: IdentityProvider) -> None:
    grant = await process.grant("mail", ALICE)
    if grant is not None:
        assert grant.token is not None
        assert idp.is_alive(grant.token.access_token)
