"""The disk is full, read-only or broken while a token is refreshed: found before the refresh token is sent, or the new
token is kept in memory, handed out and stored as soon as the disk is well. Never is one burnt in silence."""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.records import Grant
from oauthbroker.testing import IdentityProvider, TestClock
from tests.faults.crash_kit import FailAtChange
from tests.faults.refresh_kit import Expired, FailFrom, Moment, asked, grant_in, is_live
from tests.kit.crashfs import HookedFs

MOST_CHANGES = 100
UNWELL = [errno.ENOSPC, errno.EROFS, errno.EIO]
SHORT_WAIT = Limits(provider_seconds=0.2)  # of the process that another one keeps waiting all the time
UNSTORED = "a refreshed token is not stored yet"


@pytest.mark.slow
@pytest.mark.case("49", "71")
@pytest.mark.parametrize("number_of_error", UNWELL, ids=errno.errorcode.get)
async def test_one_change_that_fails_is_found_before_anything_is_sent_or_made_good_after(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, number_of_error: int
):
    """In each case there is one request to the provider in all, and its answer is on disk."""
    story = await Expired.prepare(tmp_path, identity_provider, test_clock)
    before, ends = Moment.of(story), set()
    for number in range(MOST_CHANGES):
        before.again()
        root, fs, sent = story.copy(tmp_path / str(number)), FailAtChange(), story.requests
        process = story.start(root, fs)
        fs.arm(number, number_of_error)
        result = await asked(process)
        if isinstance(result, Failed):
            assert Code.STORE_UNAVAILABLE is result.code
            assert sent == story.requests
            ends.add("found before")
        else:
            ends.add("ready")
        fs.disarm()
        left = (await grant_in(process.store)).refresh_state.intent
        if isinstance(result, Failed) and left is not None:  # its rename may be durable: only a pause
            story.clock.advance(2)
            ends.add("an intent is left")
        assert is_live(story, await asked(process))
        await process.die()
        assert story.requests == sent + 1
        again = story.start(root)
        assert (await asked(again)).status == "ready"
        assert (await grant_in(again.store)).refresh_state.intent is None
        assert story.requests == sent + 1
        await again.die()
        assert [] == list(root.rglob("*.tmp"))
        shutil.rmtree(tmp_path / str(number))
        if fs.fired is None:
            break
    assert fs.fired is None
    assert {"found before", "ready", "an intent is left"} == ends


@pytest.fixture(params=UNWELL, ids=errno.errorcode.get)
def number_of_error(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


async def changes_before_the_request(story: Expired, place: Path) -> int:
    """How many changes come before it: with one more of them done, a failure is noticed when the answer is there."""
    before, number = Moment.of(story), 0
    while True:
        root, fs, sent = story.copy(place / f"look-{number}"), FailFrom(), story.requests
        process = story.start(root, fs)
        fs.arm(number, errno.EIO)
        await asked(process)
        fs.repair()
        await process.die()
        before.again()
        if story.requests > sent:
            return number
        number += 1
        assert number < MOST_CHANGES


@pytest.mark.case("49")
async def test_a_disk_that_fails_before_the_request_keeps_the_refresh_token_unsent(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, number_of_error: int
):
    story = await Expired.prepare(tmp_path, identity_provider, test_clock)
    fs = FailFrom()
    async with story.running(story.folder / "store", fs) as harness:
        fs.arm(0, number_of_error)
        for _ in range(3):
            reported = await harness.ask("mail")
            assert isinstance(reported, Failed)
            assert (Code.STORE_UNAVAILABLE, True) == (reported.code, reported.retryable)
        assert 0 == story.requests
        fs.repair()
        assert is_live(story, await harness.ask("mail"))
        assert 1 == story.requests


@pytest.mark.slow
@pytest.mark.case("49")
async def test_a_disk_that_fails_after_the_answer_does_not_lose_the_token(
    identity_provider: IdentityProvider, tmp_path: Path, test_clock: TestClock, number_of_error: int
):
    """It is served from memory, an operator hears of it, another process sends nothing meanwhile; the disk gets well,
    and the token is stored without a further call."""
    story = await Expired.prepare(tmp_path, identity_provider, test_clock)
    number, before = await changes_before_the_request(story, tmp_path), story.requests
    fs, clock = FailFrom(), TestClock(test_clock.now(), frozen=True)
    first = story.running(story.folder / "store", fs, clock)
    async with first as harness, story.running(tmp_path / "store", limits=SHORT_WAIT) as other:
        fs.arm(number, number_of_error)
        served = await harness.ask("mail")
        assert is_live(story, served), served
        again = await harness.ask("mail")
        assert isinstance(served, Ready)
        assert isinstance(again, Ready)
        assert served.access_token == again.access_token
        assert 1 == harness.log.getvalue().count(UNSTORED)
        assert 1 == harness.broker.metrics.value(Metric.REFRESHES_UNSTORED, "mail")
        assert ("storeUnavailable",) == harness.broker.health().problems

        elsewhere = await other.ask("mail")
        assert isinstance(elsewhere, Failed)
        assert (Code.REFRESH_IN_PROGRESS, True) == (elsewhere.code, elsewhere.retryable)
        assert story.requests == before + 1

        await until(lambda: harness.log.getvalue().count(UNSTORED) > 1, clock)
        fs.repair()
        await until(lambda: harness.broker.metrics.value(Metric.REFRESHES, "mail") == 1, clock)
        assert "ok" == harness.broker.health().status
        found = await other.ask("mail")
        assert isinstance(found, Ready)
        assert (served.access_token, before + 1) == (found.access_token, story.requests)


class FullFromNowOn(HookedFs):
    """The disk is full: no new file can be made; reserved space can still be written to."""

    is_full = False

    def _step(self, call: str, _args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        if self.is_full and call == "create_file":
            raise OSError(errno.ENOSPC, "a full disk")
        return run()


@pytest.mark.case("49")
async def test_a_disk_that_fills_up_while_the_provider_thinks_fits_its_answer(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
):
    story, fs = await Expired.prepare(tmp_path, identity_provider, test_clock), FullFromNowOn()
    async with story.running(story.folder / "store", fs) as harness:
        hold = story.idp.script.refresh.hang(after_work=True)
        asking = asyncio.create_task(harness.ask("mail"))
        await hold.arrived()
        fs.is_full = True
        hold.release()
        served = await asking
        assert is_live(story, served)
        assert UNSTORED not in harness.log.getvalue()
        assert (None, served.access_token) == stored(await harness.grant())


def stored(grant: Grant | None) -> tuple[object, object]:
    assert grant is not None
    assert grant.token is not None
    return grant.refresh_state.intent, grant.token.access_token


@pytest.mark.slow
@pytest.mark.case("49")
@pytest.mark.parametrize("well", [True, False], ids=["the disk is well again", "it is not"])
async def test_leaving_the_broker_tries_once_more_and_at_once(
    identity_provider: IdentityProvider, tmp_path: Path, test_clock: TestClock, well: bool
):
    story = await Expired.prepare(tmp_path, identity_provider, test_clock)
    number, before = await changes_before_the_request(story, tmp_path), story.requests
    fs, clock = FailFrom(), TestClock(test_clock.now(), frozen=True)  # no pause ever ends by itself
    async with asyncio.timeout(60):
        async with story.running(story.folder / "store", fs, clock) as harness:
            fs.arm(number, errno.ENOSPC)
            served = await harness.ask("mail")
            assert is_live(story, served), served
            if well:
                fs.repair()
    fs.repair()
    assert ("never stored" in harness.log.getvalue()) is not well
    process = story.start(story.folder / "store")
    found = await asked(process)
    assert isinstance(served, Ready)
    if well:
        assert isinstance(found, Ready)
        assert (served.access_token, before + 1) == (found.access_token, story.requests)
    else:  # as after a crash: the old token is tried once, and what came of it is said
        assert "error" == found.status
        story.clock.advance(2)
        assert "refreshUncertain" == getattr(await asked(process), "reason", "")
        assert before + 2 == story.requests
    await process.die()


async def until(claim, clock: TestClock | None = None) -> None:
    """A pause may begin after the clock was advanced: so it is advanced again."""
    async with asyncio.timeout(60):
        while not claim():
            if clock is not None:
                clock.advance(0.1)
            await asyncio.sleep(0.002)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with space for little."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = "size=256k,mode=0700"
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("this user may not mount a small tmpfs here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.case("49")
async def test_a_disk_that_is_really_full_keeps_the_refresh_token_unsent(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, small_disk: Path
):
    story = await Expired.prepare(tmp_path, identity_provider, test_clock)
    process = story.start(story.copy(small_disk))
    fill = small_disk / "something else"
    with fill.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    reported = await asked(process)
    assert isinstance(reported, Failed)
    assert (Code.STORE_UNAVAILABLE, 0) == (reported.code, story.requests)
    fill.unlink()
    assert is_live(story, await asked(process))
    assert 1 == story.requests
    await process.die()
