"""What an answer to a device leads to (RFC 8628 section 3.5): the end, the next poll, or nothing lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.authorization.device_polling import Polling
from oauthbroker.authorization.device_tokens import DeviceTokens
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.waiting_sessions import WaitingSessions
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import Endpoints
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Failed
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.broker_process import AFTER_CLAIMS, ask, outcome
from tests.kit.running_broker import ALICE, device_app, turn
from tests.story.device_kit import INTERVAL, POLLS, World, ask_for_code, events, prompt_of, seconds_pass, world


@pytest.fixture
def here(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> World:
    return world(identity_provider, test_clock, tmp_path)


# --- what an answer leads to


ENDS: dict[str, tuple[dict[str, Any], Code]] = {
    "an unknown code": ({"error": "invalid_grant"}, Code.EXCHANGE_FAILED),
    "an unknown client": ({"error": "invalid_client", "status": 401}, Code.APP_MISCONFIGURED),
    "a word of its own": ({"error": "no_such_luck"}, Code.EXCHANGE_FAILED),
    "an administrator's policy": ({"error": "admin_policy_enforced"}, Code.ADMIN_CONSENT_NEEDED),
    "another step of the user": ({"error": "interaction_required"}, Code.INTERACTION_NEEDED),
}


@pytest.mark.parametrize(("said", "code"), ENDS.values(), ids=ENDS)
async def test_any_other_error_ends_the_polling(here: World, said: dict[str, Any], code: Code):
    """RFC 8628 section 3.5. The agent hears of it and may ask again."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.refuse(said["error"], said.get("status", 400), times=FOREVER)
    await here.poll()
    assert ("failed", code) == await outcome(broker, asked)
    assert ["auth.failed"] == await events(broker)
    polled = here.idp.count(POLLS)
    await here.poll(after=60)
    assert polled == here.idp.count(POLLS)


async def test_a_token_that_is_none_ends_the_session(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.answer(200, {"access_token": 7, "token_type": "Bearer"})
    await here.poll()
    assert ("failed", Code.TOKEN_RESPONSE_INVALID) == await outcome(broker, asked)
    assert await broker.grant("tv", ALICE) is None


NEITHER: dict[str, tuple[int, bytes, str]] = {
    "nothing": (200, b"", "application/json"),
    "a list": (200, b"[]", "application/json"),
    "no member": (200, b"{}", "application/json"),
    "no word": (403, b'{"message": "Forbidden"}', "application/json"),
    **{f"a page with {status}": (status, b"<h1>hello</h1>", "text/html") for status in (200, 302, 400, 403, 404, 408)},
}


@pytest.mark.parametrize(("status", "body", "label"), NEITHER.values(), ids=NEITHER)
async def test_an_answer_that_is_neither_tokens_nor_an_error_only_slows_the_polling_down(
    here: World, status: int, body: bytes, label: str
):
    """A gateway's page while the user is typing: the code is as good as before."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.answer(status, body, {"content-type": label}, times=2)
    await here.poll()
    await here.poll(after=2 * INTERVAL)
    assert ("pending", None) == await outcome(broker, asked)
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll(after=4 * INTERVAL - 1)
    assert ("pending", None) == await outcome(broker, asked)
    await here.poll(after=1)
    assert ("completed", None) == await outcome(broker, asked)


@pytest.mark.parametrize("status", [200, 403])
async def test_a_page_instead_of_the_providers_metadata_does_not_end_a_code_either(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, status: int
):
    """The next process knows nothing of the document that the first one read."""
    app = replace(device_app(identity_provider), endpoints=Endpoints(issuer=identity_provider.base_url))
    here = world(identity_provider, test_clock, tmp_path, app)
    asked = await ask_for_code(here.start())
    here.idp.device_approve(prompt_of(asked).user_code)
    second = here.start()
    await second.tend()
    here.idp.script.discovery.answer(status, b"<h1>hello</h1>", {"content-type": "text/html"}, times=2)
    await here.poll(second)
    assert ("pending", None) == await outcome(second, asked)
    assert here.idp.count(POLLS) == 0
    await here.poll(second, after=31)
    assert ("completed", None) == await outcome(second, asked)


async def test_a_code_that_only_ever_got_such_answers_ends_when_it_expires(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.answer(403, b"<h1>hello</h1>", {"content-type": "text/html"}, times=FOREVER)
    life = int((asked.expires_at - here.clock.now()).total_seconds())
    for _ in range(life // 60):
        await here.poll(after=60)
    await broker.tend()
    assert ("expired", None) == await outcome(broker, asked)
    assert here.idp.count(POLLS) <= 3 + life // 60


@pytest.mark.case("36")
async def test_a_code_that_is_dead_after_such_an_answer_may_have_been_used_by_it(here: World):
    """The tokens may have been behind the page."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.answer(200, b"<h1>hello</h1>", {"content-type": "text/html"})
    await here.poll()
    here.idp.script.poll.refuse("invalid_grant")
    await here.poll(after=2 * INTERVAL)
    assert ("failed", Code.EXCHANGE_UNCERTAIN) == await outcome(broker, asked)


async def test_tokens_that_are_refused_are_revoked(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.fields(token_type="mac")
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll()
    assert ("failed", Code.TOKEN_RESPONSE_INVALID) == await outcome(broker, asked)
    assert 0 == here.idp.living_tokens("client-tv", "alice")


@pytest.mark.case("36")
@pytest.mark.parametrize("times", [1, 2])
async def test_an_answer_that_was_lost_with_the_tokens_in_it_is_said_to_be_lost(here: World, times: int):
    """The code is used, and its tokens are lost."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)
    here.idp.script.poll.close_after_accept(after_work=True, times=times)
    await seconds_pass(here, 60)
    assert ("failed", Code.EXCHANGE_UNCERTAIN) == await outcome(broker, asked)
    assert ["auth.failed"] == await events(broker)


async def test_an_answer_lost_before_the_consent_costs_nothing(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.close_after_accept()
    await here.poll()
    here.idp.device_approve(prompt_of(asked).user_code)
    await here.poll(after=2 * INTERVAL)
    assert ("completed", None) == await outcome(broker, asked)


async def test_after_a_lost_answer_waiting_is_proof_that_the_code_is_unused(here: World):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.script.poll.close_after_accept()
    await here.poll()
    await here.poll(after=2 * INTERVAL)
    here.idp.script.poll.refuse("invalid_grant")
    await here.poll()
    assert ("failed", Code.EXCHANGE_FAILED) == await outcome(broker, asked)


@pytest.mark.case("36")
async def test_a_process_that_dies_with_the_tokens_in_its_hands_leaves_an_uncertain_end(here: World, monkeypatch: Any):
    first = here.start()
    asked = await ask_for_code(first)
    here.idp.device_approve(prompt_of(asked).user_code)

    async def cut(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(Polling, "_redeem", cut)
        await here.poll()
    second = here.start()
    await second.tend()
    await here.poll(second, after=INTERVAL + Limits().provider_seconds)
    assert ("failed", Code.EXCHANGE_UNCERTAIN) == await outcome(second, asked)
    assert ["auth.failed"] == await events(second)


@pytest.mark.case("36", "93")
@pytest.mark.parametrize(
    ("owner", "where", "status", "code"),
    [(Finish, "verify", "failed", Code.EXCHANGE_UNCERTAIN), (WaitingSessions, "complete_all", "completed", None)],
    ids=["before the grant", "after the grant"],
)
async def test_a_process_that_dies_in_the_commit_is_recovered_as_in_the_other_flow(
    here: World, monkeypatch: Any, owner: type, where: str, status: str, code: Code | None
):
    first = here.start()
    asked = await ask_for_code(first)
    here.idp.device_approve(prompt_of(asked).user_code)

    async def cut(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, cut)
        await here.poll()
    second = here.start()
    await second.tend(after=AFTER_CLAIMS)
    assert (status, code) == await outcome(second, asked)
    assert ["auth.granted" if code is None else "auth.failed"] == await events(second)
    await here.poll(second)
    assert ["granted"] == here.polls(prompt_of(asked))


@pytest.mark.parametrize("who", ["the runtime", "the person"])
async def test_a_no_while_the_provider_answers_wins_and_the_tokens_are_revoked(here: World, who: str):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)
    hold = here.idp.script.poll.hang(after_work=True)
    polling = asyncio.create_task(here.poll())
    await hold.arrived()
    if who == "the runtime":
        assert await broker.broker.cancel(asked.auth_session_id)
    else:
        browser = broker.browser()
        await browser.open(asked.authorization_url)
        assert 303 == (await browser.submit({"decision": "cancel"})).status
    hold.release()
    await polling
    assert ("expired" if who == "the runtime" else "failed") == (await outcome(broker, asked))[0]
    assert await broker.grant("tv", ALICE) is None
    assert 0 == here.idp.living_tokens("client-tv", "alice")


@pytest.mark.case("71")
async def test_a_disk_that_is_full_is_noticed_before_the_code_is_used(here: World, monkeypatch: Any):
    """No poll leaves while its session cannot be written: a token that came then would be lost."""
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)

    async def full(*_: Any, **__: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE, note="ENOSPC")

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "save_session", full)
        await here.poll()
    assert [] == here.polls(prompt_of(asked))
    await here.poll(after=30)
    assert ("completed", None) == await outcome(broker, asked)


async def test_tokens_that_cannot_be_claimed_are_revoked_and_the_end_is_uncertain(here: World, monkeypatch: Any):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)

    async def full(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE, note="ENOSPC")

    with monkeypatch.context() as patch:
        patch.setattr(Finish, "claim", full)
        await here.poll()
    assert 0 == here.idp.living_tokens("client-tv", "alice")
    await broker.tend(after=30)
    await here.poll()
    assert ("failed", Code.EXCHANGE_UNCERTAIN) == await outcome(broker, asked)


@pytest.mark.parametrize("away", ["store", "provider"])
async def test_an_outage_is_logged_once_a_minute_however_many_codes_it_meets(here: World, monkeypatch: Any, away: str):
    broker = here.start()
    for user in range(5):
        await ask_for_code(broker, user=f"{ALICE}{user}")
    reported: list[dict[str, Any]] = []
    log: Any = SimpleNamespace(warning=lambda what, **words: reported.append({"what": what, **words}))
    broker.parts.polling.log = log

    async def refused(*_: Any, **__: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE if away == "store" else Code.PROVIDER_UNREACHABLE, note="why")

    monkeypatch.setattr(*((Polling, "_poll") if away == "store" else (DeviceTokens, "ask")), refused)
    for lines in (1, 1, 2):
        await here.poll(after=30)
        assert lines == len(reported), reported
        here.clock.advance(25)
    assert {"why"} == {each["note"] for each in reported}


async def test_a_bug_in_one_poll_is_reported_by_its_name_and_does_not_end_the_polling(here: World, monkeypatch: Any):
    broker = here.start()
    asked = await ask_for_code(broker)
    here.idp.device_approve(prompt_of(asked).user_code)
    reported: list[dict[str, Any]] = []
    log: Any = SimpleNamespace(warning=lambda what, **words: reported.append({"what": what, **words}))
    broker.parts.polling.log = log

    async def broken(*_: Any, **__: Any) -> None:
        raise ValueError(prompt_of(asked).user_code)

    with monkeypatch.context() as patch:
        patch.setattr(DeviceTokens, "ask", broken)
        await here.poll()
    assert [{"what": "a device code could not be asked about", "error": "ValueError"}] == reported
    await here.poll(after=30)
    assert ("completed", None) == await outcome(broker, asked)


# --- opening


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (503, {"error": "temporarily_unavailable"}, Code.PROVIDER_UNREACHABLE),
        (429, {}, Code.PROVIDER_RATE_LIMITED),
        (400, {"error": "invalid_scope"}, Code.APP_MISCONFIGURED),
        (401, {"error": "invalid_client"}, Code.APP_MISCONFIGURED),
        (200, {"device_code": "x"}, Code.TOKEN_RESPONSE_INVALID),
    ],
    ids=str,
)
async def test_without_a_code_there_is_an_error_and_no_session(here: World, status: int, body: Any, code: Code):
    broker = here.start()
    here.idp.script.device.answer(status, body)
    result = await ask(broker, "tv")
    assert isinstance(result, Failed)
    assert code == result.code
    assert await broker.broker.pending(turn(instance="thread")) is None
    here.clock.advance(60)
    assert isinstance(await ask(broker, "tv"), AuthorizationRequired)


async def test_a_provider_that_refuses_our_client_is_not_asked_again_by_every_call(here: World):
    broker = here.start()
    here.idp.script.device.refuse("invalid_client", 401, times=FOREVER)
    results = [await ask(broker, "tv", instance=f"thread {number}") for number in range(10)]
    assert {Code.APP_MISCONFIGURED} == {result.code for result in results if isinstance(result, Failed)}
    assert 1 == here.idp.count("device")
