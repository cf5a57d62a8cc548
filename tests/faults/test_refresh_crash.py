"""The machine stops at every single change of the disk between the call that finds a token ended and its answer.

With any disk that this leaves, the next broker hands out a token that lives, or says that the provider's answer was
lost; it finds that out by itself at start, and asks the person once.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.testing import IdentityProvider, TestClock
from tests.faults.crash_kit import CrashAtChange
from tests.faults.refresh_kit import Expired, Moment, asked, grant_in, is_live
from tests.kit.broker_process import Process
from tests.kit.crashfs import Crash
from tests.kit.forms import swept
from tests.kit.running_broker import tree

MOST_CHANGES = 100
GRACE = 60
PAUSE = 2  # longer than the pause after one lost answer
LONG_PAUSE = 10  # than that after three


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """For the copies."""
    return tmp_path / "copies"


class Cut:
    """One story that was cut at its `number`-th change: the steps until then, and the possible disks."""

    def __init__(self, story: Expired, place: Path, number: int) -> None:
        self.story, self.place, self.number = story, place, number
        self.reported: TokenResult | None = None
        self.answered = False
        self.fired = False
        self.clones: list[Path] = []

    async def play(self) -> Cut:
        root = self.story.copy(self.place)
        fs = CrashAtChange(root)
        process, before = self.story.start(root, fs), self.story.requests
        fs.arm(self.number)
        try:
            reported = await asked(process)
        except Crash:
            reported = None
        self.fired, self.answered = fs.fired is not None, self.story.requests > before
        self.reported = None if self.fired else reported
        self.clones = list(different(fs.clones(self.place / "clones", seeds=1)))
        fs.restore()
        await process.die()
        return self


def different(clones: Iterator[Path]) -> Iterator[Path]:
    """Of disks that are equal byte for byte, one."""
    seen = set()
    for clone in clones:
        picture = tuple(sorted(tree(clone).items()))
        if picture not in seen:
            seen.add(picture)
            yield clone


async def cuts(story: Expired, place: Path) -> AsyncIterator[Cut]:
    """Every cut, and last the whole story."""
    before = Moment.of(story)
    for number in swept(MOST_CHANGES):
        before.again()
        cut = await Cut(story, place / f"cut-{number}", number).play()
        yield cut
        shutil.rmtree(cut.place)
        if not cut.fired:
            return
    raise AssertionError("the story does not end")


async def disks(found: AsyncIterator[Cut], dice: random.Random) -> AsyncIterator[tuple[Cut, Path]]:
    """Yield each cut with each disk that it leaves once the provider has answered, and with one of them before."""
    async for cut in found:
        after = Moment.of(cut.story)
        for clone in cut.clones if cut.answered else [dice.choice(cut.clones)]:
            after.again()
            yield cut, clone


async def found_at_start(process: Process, story: Expired, pause: float = PAUSE) -> TokenResult:
    """The intent is settled without a call, and not before its pause is over."""
    before, intent = story.requests, (await grant_in(process.store)).refresh_state.intent
    is_early = intent is not None and intent.retry_at > story.clock.now()
    await process.parts.background_refresh.recover()
    assert before == story.requests or not is_early
    story.clock.advance(pause)
    await process.parts.background_refresh.recover()
    assert (await grant_in(process.store)).refresh_state.intent is None
    assert story.requests == before + (intent is not None)
    return await asked(process)


async def found_at_next_use(process: Process, story: Expired, pause: float = PAUSE) -> TokenResult:
    """A call at once is told to come back."""
    before, lost = story.requests, (await grant_in(process.store)).refresh_state.intent is not None
    result = await asked(process)
    if lost:
        assert isinstance(result, Failed), result
        assert (Code.PROVIDER_UNREACHABLE, True) == (result.code, result.retryable)
        assert before == story.requests
        story.clock.advance(pause)
        result = await asked(process)
    return result


async def check_end(process: Process, story: Expired, result: TokenResult) -> str:
    """Return the final state. Repeated calls must not reach the provider again."""
    end = "ready"
    if isinstance(result, AuthorizationRequired):
        end = str(result.reason)
        assert "refreshUncertain" == end
    else:
        assert is_live(story, result), result
    requests = story.requests
    for _ in range(2):
        story.clock.advance(600)
        again = await asked(process)
        assert result.status == again.status
        if isinstance(result, Ready) and isinstance(again, Ready):
            assert result.access_token == again.access_token
    await process.tend()
    assert (requests, 0) == (story.requests, (await process.counts(("due",)))["due"])
    return end


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.case("48")
@pytest.mark.parametrize("find", [found_at_start, found_at_next_use])
@pytest.mark.parametrize("grace", [0, GRACE], ids=["reuse ends the family", "reuse is forgiven for a minute"])
async def test_a_crash_at_any_change_ends_with_a_living_token_or_says_that_an_answer_was_lost(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, place: Path, grace, find
):
    story = await Expired.prepare(tmp_path, identity_provider, test_clock, grace)
    ends: set[tuple[bool, str]] = set()
    async for cut in cuts(story, place):
        after = Moment.of(story)
        for clone in cut.clones:
            after.again()
            before = story.requests
            process = story.start(clone)
            result = await find(process, story)
            asked_again = story.requests - before
            if isinstance(cut.reported, Ready):
                assert isinstance(result, Ready)
                assert (cut.reported.access_token, 0) == (result.access_token, asked_again)
            elif not cut.answered:
                assert is_live(story, result), result
                assert 1 == asked_again
            assert asked_again <= 1
            end = await check_end(process, story, result)
            assert cut.answered or end == "ready"
            ends.add((cut.answered, end))
            await process.die()
    assert cut.reported is not None
    assert cut.number > 15  # it was cut everywhere
    uncertain = {(True, "refreshUncertain")} if not grace else set()
    assert {(False, "ready"), (True, "ready"), *uncertain} == ends


@pytest.mark.slow
@pytest.mark.case("48")
@pytest.mark.parametrize("grace", [0, GRACE], ids=["reuse ends the family", "reuse is forgiven for a minute"])
async def test_a_second_crash_while_the_first_one_is_made_good_changes_nothing_about_that(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, place: Path, grace
):
    story, dice = await Expired.prepare(tmp_path, identity_provider, test_clock, grace), random.Random(48)
    ends: set[str] = set()
    async for cut, clone in disks(cuts(story, place), dice):
        fs, before = CrashAtChange(clone), story.requests
        process = story.start(clone, fs)
        fs.arm(dice.randrange(30))
        try:
            await found_at_start(process, story)
        except (Crash, AssertionError):
            assert fs.fired
        left = dice.choice(list(different(fs.clones(cut.place / f"second-{clone.name}", seeds=1))))
        fs.restore()
        await process.die()
        process = story.start(left)
        ends.add(await check_end(process, story, await found_at_start(process, story, LONG_PAUSE)))
        assert story.requests - before <= 2
        await process.die()
    assert ends == ({"ready"} if grace else {"ready", "refreshUncertain"})
