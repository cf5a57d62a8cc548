"""`pause` and `resume`: a run waits for its user in the broker's store, and goes on once, however the authorization ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, BrokerError, Turn
from oauthbroker.integrations import PausedRun, PauseEnd, RunAnswer, consent_for, pause, paused_runs
from oauthbroker.integrations.paused_runs import LOOK_SECONDS, PausedRuns, shown
from oauthbroker.integrations.resuming import kept, resume_kept
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.model.settings import Limits
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app
from tests.story.paused_runs_kit import Runs, records

PLUGINS = {"integrations": PluginResources(())}
TOOLS = {"Tool/mail": (ToolAuth("mail", ("read",), injected=True),), "Tool/files": (ToolAuth("files"),)}
LEASE = 3.0


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    monkeypatch.setattr(paused_runs, "LOOK_SECONDS", 0.5)  # of real time: the plug-in's background work
    apps = [user_app(identity_provider, name) for name in ("mail", "files")]
    limits = Limits(queue_lease_seconds=LEASE)
    async with running(
        identity_provider, apps, clock=test_clock, tools=TOOLS, plugins=PLUGINS, limits=limits
    ) as harness:
        yield harness


@pytest.fixture
def runs(harness: Harness) -> Runs:
    return Runs(harness)


async def asked_for(harness: Harness, app: str = "mail", of: Turn | None = None) -> AuthorizationRequired:
    result = await harness.ask_link(app, ["read"], of)
    assert isinstance(result, AuthorizationRequired)
    return result


async def consent(harness: Harness, asked: AuthorizationRequired) -> None:
    await harness.connect(asked)


async def deny(harness: Harness, asked: AuthorizationRequired) -> None:
    await harness.connect(asked, deny=True)


async def fail(harness: Harness, asked: AuthorizationRequired) -> None:
    await harness.connect(asked, "mallory")


async def expire(harness: Harness, asked: AuthorizationRequired) -> None:
    harness.clock.advance(harness.broker.bundle.settings.limits.session_seconds + LOOK_SECONDS + 1)


async def cancel(harness: Harness, asked: AuthorizationRequired) -> None:
    assert await harness.broker.cancel(asked.auth_session_id)
    harness.clock.advance(LOOK_SECONDS + 1)


ENDS = {
    consent: None,
    deny: "Access was not granted",
    fail: "account",
    expire: "expired",
    cancel: "expired",
}


@pytest.mark.case("143")
@pytest.mark.parametrize(("end", "says"), ENDS.items(), ids=[each.__name__ for each in ENDS])
async def test_every_end_resumes_the_run_once_and_says_how(harness: Harness, runs: Runs, end: Any, says: str | None):
    asked = await asked_for(harness)
    shown = await pause(harness.broker, turn(), asked, run="r", state={"n": 1})
    expected = {
        "authorizationUrl": asked.authorization_url,
        "message": asked.message,
        "sessionId": asked.auth_session_id,
    }
    assert expected == shown
    async with runs.resuming():
        await end(harness, asked)
        await runs.until(lambda: bool(runs.calls))
        await runs.settled()
    ((name, state, sentence),) = runs.calls
    assert ("r", {"n": 1}) == (name, state)
    assert (sentence is None) if says is None else says in str(sentence)


@pytest.mark.parametrize("end", [consent, deny])
async def test_an_authorization_that_ended_before_the_run_was_kept_resumes_it_too(
    harness: Harness, runs: Runs, end: Any
):
    asked = await asked_for(harness)
    async with runs.resuming():
        await end(harness, asked)
        await runs.settled()
        assert [] == runs.calls
        await pause(harness.broker, turn(), asked, run="r")
        await runs.until(lambda: bool(runs.calls))
        await runs.settled()
    assert [("r", end is consent)] == [(name, sentence is None) for name, _, sentence in runs.calls]


async def test_a_run_that_fails_is_tried_again_until_it_returns(harness: Harness, runs: Runs):
    async def then(_run: PausedRun, _end: PauseEnd) -> None:
        if len(runs.calls) < 3:
            raise RuntimeError("the model is busy")

    runs.then = then
    asked = await asked_for(harness)
    await pause(harness.broker, turn(), asked, run="r")
    async with runs.resuming():
        await consent(harness, asked)
        await runs.settled()
    assert 3 == len(runs.calls)


@pytest.mark.case("140")
async def test_two_consumers_resume_a_run_once(harness: Harness, runs: Runs):
    asked = await asked_for(harness)
    await pause(harness.broker, turn(), asked, run="r")
    async with runs.resuming(), runs.resuming():
        await consent(harness, asked)
        await runs.settled()
    assert 1 == len(runs.calls)


@pytest.mark.case("142")
async def test_two_runs_of_one_conversation_wait_for_one_authorization_and_both_go_on(harness: Harness, runs: Runs):
    asked = await asked_for(harness)
    for name in ("first", "second"):
        await pause(harness.broker, turn(), asked, run=name)
    async with runs.resuming():
        await consent(harness, asked)
        await runs.settled()
    assert {"first", "second"} == {name for name, *_ in runs.calls}


async def test_a_run_that_waits_for_two_goes_on_after_the_first_and_is_then_over(harness: Harness, runs: Runs):
    both = [await asked_for(harness, app) for app in ("mail", "files")]
    for asked in both:
        await pause(harness.broker, turn(), asked, run="r")
    async with runs.resuming():
        for asked in both:
            await consent(harness, asked)
            await runs.settled()
    assert 1 == len(runs.calls)


async def test_a_run_that_pauses_again_is_kept_with_its_new_state(harness: Harness, runs: Runs):
    mail, files = [await asked_for(harness, app) for app in ("mail", "files")]

    async def then(run: PausedRun, _end: PauseEnd) -> None:
        if run.state == "first":
            await pause(harness.broker, run.turn, files, run=run.name, state="second")

    runs.then = then
    await pause(harness.broker, turn(), mail, run="r", state="first")
    async with runs.resuming():
        await consent(harness, mail)
        await runs.until(lambda: len(runs.calls) == 1)
        await consent(harness, files)
        await runs.settled()
    assert ["first", "second"] == [state for _, state, _ in runs.calls]


async def test_a_consumer_that_ends_gives_its_event_to_the_next_one_at_once(harness: Harness, runs: Runs):
    async def then(_run: PausedRun, _end: PauseEnd) -> None:
        if len(runs.calls) == 1:
            await asyncio.Event().wait()

    runs.then = then
    asked = await asked_for(harness)
    await pause(harness.broker, turn(), asked, run="r")
    async with runs.resuming():
        await consent(harness, asked)
        await runs.until(lambda: len(runs.calls) == 1)
    async with runs.resuming():
        await runs.until(lambda: len(runs.calls) == 2)
        await runs.settled()


async def test_a_run_that_takes_longer_than_a_lease_is_not_resumed_by_another_consumer(harness: Harness, runs: Runs):
    finish = asyncio.Event()

    async def then(_run: PausedRun, _end: PauseEnd) -> None:
        await finish.wait()

    runs.then = then
    asked = await asked_for(harness)
    await pause(harness.broker, turn(), asked, run="r")
    async with runs.resuming(), runs.resuming():
        await consent(harness, asked)
        await runs.until(lambda: bool(runs.calls))
        for _ in range(3):
            harness.clock.advance(LEASE * 0.9)
            await asyncio.sleep(LEASE / 3 + 0.2)  # in which the lease is extended
        finish.set()
        await runs.settled()
    assert 1 == len(runs.calls)


async def test_work_whose_lease_was_lost_is_cancelled(harness: Harness, runs: Runs):
    ends: list[str] = []

    async def then(_run: PausedRun, _end: PauseEnd) -> None:
        if len(runs.calls) > 1:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    runs.then = then
    asked = await asked_for(harness)
    await pause(harness.broker, turn(), asked, run="r")
    async with runs.resuming(), runs.resuming():
        await consent(harness, asked)
        await runs.until(lambda: bool(runs.calls))
        harness.clock.advance(LEASE + 1)
        await runs.until(lambda: bool(ends))
        await runs.settled()
    assert 2 == len(runs.calls)


async def test_other_events_of_the_agent_go_to_their_own_consumer(harness: Harness, runs: Runs):
    of = turn()
    await harness.broker.events.enqueue("planner", "chat.message", {}, turn=of)
    async with runs.resuming(other=runs.other):
        await harness.connected("files", of=of)
        await runs.settled()
    assert ["chat.message", "auth.granted"] == runs.others
    assert [] == runs.calls


async def test_an_event_that_no_consumer_takes_is_a_dead_letter(harness: Harness, runs: Runs):
    await harness.broker.events.enqueue("planner", "chat.message", {}, turn=turn())
    async with runs.resuming(), asyncio.timeout(60):
        while not await harness.broker.events.dead("planner"):
            harness.clock.advance(60)
            await asyncio.sleep(0.01)


async def test_an_erased_user_leaves_no_paused_run(harness: Harness):
    await pause(harness.broker, turn(), await asked_for(harness), run="r", state={"text": "private"})
    assert 1 == len(await records(harness))
    harness.clock.advance(harness.broker.bundle.settings.limits.session_seconds + 1)
    await harness.broker.erase(ALICE)
    assert [] == await records(harness)


async def test_a_refused_app_is_asked_for_once_in_a_resumed_run_and_again_in_the_next(harness: Harness, runs: Runs):
    said: list[Any] = []

    async def then(run: PausedRun, _end: PauseEnd) -> None:
        said.append(await consent_for(harness.broker, run.turn, "mail"))
        said.append(await consent_for(harness.broker, run.turn, "files"))

    runs.then = then
    asked = await asked_for(harness)
    await pause(harness.broker, turn(), asked, run="r")
    async with runs.resuming():
        await deny(harness, asked)
        await runs.settled()
    refused, files = said
    assert "Access was not granted" in refused
    assert isinstance(files, AuthorizationRequired)
    assert isinstance(await consent_for(harness.broker, turn(), "mail"), AuthorizationRequired)


async def test_a_tool_runs_without_consent_if_it_declares_none_and_after_it(harness: Harness):
    assert await consent_for(harness.broker, turn(), "clock") is None
    await harness.connected("mail")
    assert await consent_for(harness.broker, turn(), "mail") is None


async def test_a_tool_that_cannot_run_is_told_so_in_a_sentence(harness: Harness):
    answer = await consent_for(harness.broker, turn(user=None), "mail")
    assert isinstance(answer, str)
    assert "user" in answer


async def test_private_links_are_in_no_pause(harness: Harness):
    asked = await consent_for(harness.broker, turn(), "mail", private_links=True)
    assert isinstance(asked, AuthorizationRequired)
    assert asked.authorization_url.endswith("/connect")


async def test_a_broker_whose_configuration_does_not_name_the_plugin_refuses_to_pause(identity_provider, test_clock):
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        asked = await asked_for(harness)
        with pytest.raises(BrokerError, match="requestInvalid"):
            await pause(harness.broker, turn(), asked, run="r")


async def test_a_state_replaces_only_the_state_of_a_run_that_is_there(harness: Harness):
    runs, asked = PausedRuns(harness.broker), await asked_for(harness)
    await pause(harness.broker, turn(), asked, run="r", state=1)
    (run,) = await runs.waiting(turn(), asked.auth_session_id)
    await runs.keep(run, 2)
    assert [2] == [each.state for each in await runs.waiting(turn(), asked.auth_session_id)]
    await runs.keep(replace(run, name="unknown"), 3)
    await runs.done(run)
    await runs.keep(run, 4)
    assert [] == await records(harness)


@pytest.mark.parametrize(("output", "times"), [("done", 1), ("x" * 2**20, 2)], ids=["kept", "too large to keep"])
async def test_a_finished_run_whose_answer_is_kept_does_not_run_again_if_delivery_fails(
    harness: Harness, runs: Runs, output: str, times: int
):
    ran: list[Any] = []
    delivered: list[RunAnswer] = []

    async def go_on_from(_turn: Turn, state: Any, _end: PauseEnd) -> tuple[RunAnswer, Any]:
        ran.append(state)
        return RunAnswer(output=output), None

    async def deliver(_turn: Turn, answer: RunAnswer) -> None:
        delivered.append(answer)
        if len(delivered) == 1:
            raise ConnectionError

    asked = await asked_for(harness)
    paused = RunAnswer(pauses=[shown(asked)])
    assert paused == await kept(harness.broker, turn(), (paused, {"n": 1}))
    async with resume_kept(harness.broker, "planner", go_on_from, deliver=deliver, other=None):
        await consent(harness, asked)
        await runs.settled()
    assert [{"n": 1}] * times == ran
    assert [RunAnswer(output=output)] * 2 == delivered
