"""Arguments of the embedded API that no call can use: each is refused by name, before anything is done."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.default_store import default_store
from tests.kit.running_broker import ALICE, Harness, global_app, running, turn, user_app

NO_SUBJECTS = ["x" * 4_000, "é" * 600, "\ud800", 5, b"alice"]
NO_AGENTS = ["", "a/b", ".", "..", "x" * 257, "a\nb", "\ud800", 5, None]
NO_SECONDS = [60.0, 59.5, math.nan, -1, True, "60", 10**12]
NO_WAITS = ["5", None, math.nan, math.inf, True, -1, -0.5, pytest.param(10**400, id="no float")]


def of(subject: object, mode: str = "user") -> Turn:
    return Turn("planner", "thread", auth=TurnAuth(subjects={mode: subject}))  # type: ignore[dict-item]


async def refused(call: Any, hint: str) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await call
    assert (Code.REQUEST_INVALID, hint) == (caught.value.code, caught.value.hint)
    return caught.value


@pytest.mark.parametrize("subject", NO_SUBJECTS)
@pytest.mark.parametrize("mode", ["user", "global"])
async def test_a_turn_with_a_text_that_is_no_subject_says_so_in_each_call(
    harness: Harness, subject: object, mode: str
) -> None:
    given = of(subject, mode)
    failed: Any = await harness.broker.oauth(given).get_access_token("mail")
    assert (Code.REQUEST_INVALID, True) == (failed.code, "A subject is a text of 1 to 1024 bytes" in failed.message)
    for call in (harness.broker.turns.begin(given), harness.broker.relay_code(given, "code")):
        error = await refused(call, "subject")
        assert ({"pointer": f"/turn/auth/subjects/{mode}", "problem": "value"},) == error.errors
    written = {"agentName": "planner", "instanceKey": "thread", "auth": {"subjects": {mode: subject}}}
    await refused(harness.broker.turns.begin(written), "subject")


@pytest.mark.parametrize("subject", [None, ""])
async def test_a_turn_without_a_subject_still_lacks_it(harness: Harness, subject: str | None) -> None:
    failed: Any = await harness.broker.oauth(of(subject)).get_access_token("mail")
    assert Code.SUBJECT_UNAVAILABLE is failed.code


@pytest.mark.parametrize("agent", NO_AGENTS)
async def test_a_name_that_no_agent_can_have_over_http_is_refused_here_too(harness: Harness, agent: Any) -> None:
    await refused(harness.broker.events.enqueue(agent, "tool.completed", {}, turn=turn()), "agentName")
    failed: Any = await harness.broker.oauth(Turn(agent, "thread")).get_access_token("mail")
    assert Code.REQUEST_INVALID is failed.code
    await refused(harness.broker.turns.begin(Turn(agent, "thread")), "agentName")


@pytest.mark.parametrize("agent", ["...", ".a", "a.b", "..a", "글쓴이", "x" * 256])
async def test_a_name_with_points_or_other_letters_is_an_agents(harness: Harness, agent: str) -> None:
    assert await harness.broker.events.enqueue(agent, "tool.completed", {}, turn=turn())
    assert await harness.broker.events.lease(agent) is not None


@pytest.mark.parametrize("agent", [*NO_AGENTS, b"planner"])
async def test_each_call_about_events_refuses_a_name_that_no_agent_can_have(harness: Harness, agent: Any) -> None:
    broker, events = harness.broker, harness.broker.events
    for call in (
        events.lease(agent), events.settle(agent, "evt", "lease", done=True), events.unsettled(agent, ["lease"]),
        events.settled(agent, ["lease"]), events.dead(agent), broker.on_granted(agent, _never).__aenter__(),
    ):  # fmt: skip
        await refused(call, "agentName")


async def _never(_lease: object) -> None:
    raise AssertionError("there is no such agent")


@pytest.mark.parametrize("seconds", NO_WAITS)
async def test_a_wait_that_is_no_number_of_seconds_is_refused(harness: Harness, seconds: Any) -> None:
    await refused(harness.broker.events.lease("planner", wait=seconds), "wait")
    await refused(harness.broker.wait("as-" + "A" * 22, seconds), "wait")
    await harness.connected()
    for call in (harness.broker.erase(ALICE, patience=seconds), harness.broker.grants.revoke_all(patience=seconds)):
        await refused(call, "wait")
    assert await harness.broker.revoke("mail", subject=ALICE), "a refused call had ended the grant"


@pytest.mark.parametrize("seconds", NO_SECONDS)
async def test_a_minimum_lifetime_that_is_no_whole_number_says_which_are(harness: Harness, seconds: Any) -> None:
    failed: Any = await harness.broker.oauth(turn()).get_access_token("mail", min_ttl_seconds=seconds)
    assert Code.REQUEST_INVALID is failed.code
    assert "a whole number of seconds from 0 to 315360000" in failed.message


async def test_a_tool_named_without_its_kind_is_told_the_declared_one(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    tools: Any = {"Tool/notes": (), "Connector/crm": ()}
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, tools=tools) as harness:
        for tool, wanted in (("notes", "Did you mean Tool/notes?"), ("crn", "Did you mean Connector/crm?")):
            failed: Any = await harness.broker.oauth(turn(), tool).get_access_token("mail")
            assert (Code.APP_FORBIDDEN, True) == (failed.code, wanted in failed.message), failed.message


async def test_an_unknown_app_is_named_with_the_nearest_one(harness: Harness) -> None:
    broker = harness.broker
    for call in (
        broker.revoke("mial", subject=ALICE), broker.grants.revoke_all(app="mial"), broker.forget_client("mial"),
    ):  # fmt: skip
        with pytest.raises(BrokerError, match="Did you mean mail") as caught:
            await call
        assert Code.OAUTH_APP_NOT_FOUND is caught.value.code
    assert not await broker.revoke("mail", subject=ALICE)
    assert not await broker.forget_client("mail")


@pytest.mark.parametrize("app", ["mail@ work", "mail@work\n", "OAuthApp/mail@" + "x" * 129])
async def test_a_list_or_a_revocation_of_an_account_that_no_app_can_have_is_refused(harness: Harness, app: str) -> None:
    await harness.connected()
    broker = harness.broker
    for call in (broker.grants.revoke_all(app=app), broker.sessions.list(app=app), anext(broker.grants.list(app=app))):
        with pytest.raises(BrokerError, match="none that an app can have") as caught:
            await call
        assert Code.REQUEST_INVALID is caught.value.code
    assert 1 == len([each async for each in broker.grants.list(app="mail@")])


async def test_a_grant_of_a_removed_app_can_be_revoked(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    store = default_store(test_clock)
    apps = [user_app(identity_provider), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=store) as harness:
        await harness.connected()
        await harness.broker.reload(_without(harness, "mail"))
        assert not await harness.broker.revoke("mail", subject="another")
        assert await harness.broker.revoke("mail", subject=ALICE)
        assert not await harness.broker.revoke("mail", subject=ALICE)


def _without(harness: Harness, app: str) -> Any:
    bundle = harness.broker.bundle
    return replace(bundle, apps={name: each for name, each in bundle.apps.items() if name != app})


@pytest.mark.parametrize("subject", [*NO_SUBJECTS, "", ["alice"]])
async def test_an_operators_call_for_no_subject_is_refused(harness: Harness, subject: Any) -> None:
    broker = harness.broker
    for call in (
        broker.revoke("mail", subject=subject),
        broker.erase(subject),
        broker.erasure.find_records(subject),
        broker.grants.revoke_all(subject=subject),
        broker.sessions.list(subject=subject),
        broker.connections.link({"user": subject}),
    ):
        await refused(call, "subject")
    with pytest.raises(BrokerError):
        _ = [each async for each in broker.grants.list(subject=subject)]


async def test_an_account_that_none_can_be_is_refused(harness: Harness) -> None:
    await refused(harness.broker.revoke("mail", subject=ALICE, account=" work"), "account")


@pytest.mark.parametrize("callback", [None, lambda lease: None, print, "planner"])
async def test_a_callback_of_on_granted_that_is_no_async_function_is_refused_before_it_gets_an_event(
    harness: Harness, callback: Any
) -> None:
    await harness.broker.events.enqueue("planner", "tool.completed", {}, turn=turn())
    with pytest.raises(BrokerError, match=r"`callback` has a wrong value. Pass an `async def` function") as caught:
        await harness.broker.on_granted("planner", callback).__aenter__()
    assert Code.REQUEST_INVALID is caught.value.code
    lease = await harness.broker.events.lease("planner")
    assert lease is not None
    assert 1 == lease.attempt, "it was delivered"


WRONG_ARGUMENTS: dict[str, tuple[str, Any]] = {
    "a list of tools": ("tools", lambda broker: broker.turns.begin(turn(), tools=["Tool/notes"])),
    "tools with a number": ("tools", lambda broker: broker.turns.begin(turn(), tools={"Tool/notes": 5})),
    "a secret turn token": ("token", lambda broker: broker.turns.admit(Secret("x"))),
    "no turn id": ("turn_id", lambda broker: broker.turns.end(None)),
    "a subject in place of subjects": ("subjects", lambda broker: broker.connections.link(ALICE)),
    "no code": ("code", lambda broker: broker.relay_code(turn(), None)),
    "a text in place of a Secret": ("value", lambda broker: broker.secrets.put("a", "b", "s")),
    "an empty Secret": ("value", lambda broker: broker.secrets.put("a", "b", Secret(""))),
    "no name of a secret": ("name", lambda broker: broker.secrets.put(None, "b", Secret("s"))),
    "an unknown status": ("status", lambda broker: broker.sessions.list(status="waiting")),
    "a negative number of lines": ("n", lambda broker: broker.audit_trail.tail(-1)),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
async def test_an_argument_that_can_never_be_right_is_named_with_what_to_pass(harness: Harness, name: str) -> None:
    argument, call = WRONG_ARGUMENTS[name]
    with pytest.raises(BrokerError, match=f"The argument `{argument}` has a wrong value. Pass .*") as caught:
        await call(harness.broker)
    assert Code.REQUEST_INVALID is caught.value.code


def test_a_count_of_no_metric_is_refused() -> None:
    with pytest.raises(BrokerError, match=r"`metric` has a wrong value\. Pass a member of Metric"):
        Metrics().value("TOKENS_READY")  # type: ignore[arg-type]
    assert 0 == Metrics().value(Metric.TOKENS_READY, "mail")


@pytest.mark.parametrize(
    "argument, value", [("workers", 0), ("workers", "2"), ("metrics_folder", "m"), ("apps", [{"kind": "OAuthApp"}])]
)
async def test_a_wrong_option_of_open_broker_is_named(harness: Harness, argument: str, value: Any) -> None:
    options: Any = {"store": default_store(harness.clock), "env": {}, argument: value}
    with pytest.raises(BrokerError, match=f"The argument `{argument}` has a wrong value"):
        await open_broker(harness.broker.bundle, **options).__aenter__()
