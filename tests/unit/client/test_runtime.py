"""The runtime's side against scripted answers: its requests, how it reads answers, and events that outlive a broker."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oauthbroker.client import (
    BrokerError,
    Code,
    Failed,
    OAuth,
    Options,
    Ready,
    Runtime,
    SessionOutcome,
    SyncOAuth,
    SyncRuntime,
    ToolAuth,
    Turn,
    TurnAuth,
)
from oauthbroker.core.errors import Locale
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_request import WrongArgument
from oauthbroker.model.turn_token import BegunTurn, narrow
from tests.unit.client.kit import ASK, KEY, READY, TURN_TOKEN, fake_broker, patient, refuses, says

AUTH = TurnAuth({"type": "user", "id": "chat:U1"}, {"user": "idp:user:U1"})
TURN = Turn("planner", "1700000000.000100", "Swarm/one", origin={"channel": "C1"}, auth=AUTH)
BEGUN = {
    "turnId": "turn-x",
    "turnToken": TURN_TOKEN,
    "toolTokens": {"Tool/mail": TURN_TOKEN.replace("s", "t")},
    "expiresAt": "2026-02-01T10:00:00Z",
}
EVENT = {
    "eventId": "evt-as-1-auth.granted",
    "type": "auth.granted",
    "swarmRef": {"kind": "Swarm", "name": "one"},
    "instanceKey": "i",
    "agentName": "plan/ner",
    "origin": {},
    "auth": {"actor": {}, "subjects": {}},
    "payload": {"grantId": "g"},
    "createdAt": "2026-02-01T10:00:00Z",
}
LEASED = {"event": EVENT, "lease": "lease-1", "attempt": 2, "leaseExpiresAt": "2026-02-01T10:01:00Z"}
GRANT = {
    "unverified": False,
    "grantId": "sha256:1",
    "app": "mail",
    "provider": "idp",
    "subject": "idp:user:U1",
    "scopes": ["read"],
    "state": "live",
    "needs": None,
    "expiresAt": None,
    "endsAt": None,
    "refreshable": True,
    "createdAt": "2026-02-01T10:00:00Z",
    "updatedAt": "2026-02-01T10:00:00Z",
    "authorizedBy": None,
    "eventsToSend": 0,
    "providerToTell": False,
    "providerData": {"instance_url": "https://eu1.crm.example"},
}


async def test_a_turn_is_begun_with_its_tools_and_ended_with_its_block() -> None:
    tools = {"Tool/mail": [ToolAuth("mail", ("read",)), ToolAuth("files")], "Tool/other": None}
    async with fake_broker(says(201, BEGUN), says(204)) as fake, Runtime(fake.url, KEY) as runtime:
        async with runtime.turn(TURN, tools=tools, ttl_seconds=60, private_links=True) as turn:
            assert "RunningTurn(turn-x)" == repr(turn)
            assert turn.token_for("Tool/mail").matches(TURN_TOKEN.replace("s", "t"))
        begin, end = fake.asked
    ref = {"kind": "OAuthApp", "name": "mail"}
    assert {
        "turn": {
            "agentName": "planner",
            "instanceKey": "1700000000.000100",
            "swarmRef": "Swarm/one",
            "origin": {"channel": "C1"},
            "auth": AUTH.to_json(),
        },
        "tools": {
            "Tool/mail": [{"oauthAppRef": ref, "scopes": ["read"]}, {"oauthAppRef": {**ref, "name": "files"}}],
            "Tool/other": None,
        },
        "ttlSeconds": 60,
        "privateLinks": True,
    } == begin.body
    assert ("DELETE", "/v1/turns/turn-x") == (end.method, end.path)
    assert f"Bearer {KEY}" == end.headers["authorization"]


async def test_a_tool_that_was_not_named_gets_no_token() -> None:
    """A typo is told at once. `narrow` makes a token for a tool that the turn was not begun with."""
    async with fake_broker(says(201, BEGUN)) as fake, Runtime(fake.url, KEY) as runtime:
        turn = await runtime.begin(TURN, tools=["Tool/mail"])
        assert {"Tool/mail": None} == fake.asked[0].body["tools"]
        for call in (turn.token_for, turn.env_for, turn.oauth):
            with pytest.raises(BrokerError, match=r"requestInvalid.*Tool/other"):
                call("Tool/other")
        assert 1 == len(fake.asked)


@pytest.mark.parametrize(
    ("of_turn", "of_client", "spoken"), [("ko", "en", "ko"), ("ko", None, "ko"), (None, "ko", "ko"), (None, None, "en")]
)
async def test_a_turns_tools_get_errors_in_its_language(of_turn: Any, of_client: Any, spoken: Locale) -> None:
    """Those that the client makes itself too, in the tool's own process and behind `narrow`."""
    turn = replace(TURN, locale=of_turn)
    options = patient(locale=of_client)
    async with fake_broker(says(201, BEGUN), says(200, {})) as fake, Runtime(fake.url, KEY, options) as runtime:
        running = await runtime.begin(turn)
        env = running.env_for("Tool/mail")
        tools = [running.oauth(), running.oauth("Tool/mail"), running.oauth().narrow(tool="Tool/mail")]
        tools.append(OAuth.from_env(options, env))
        answers = [await tool.get_access_token("mail") for tool in tools]
        answers += [await tool.report_rejected("mail", "at-1") for tool in tools]
        said = [await tool.getAccessToken({"oauthAppRef": "Tool/mail"}) for tool in tools]
        await tools[-1].aclose()
    assert of_turn == fake.asked[0].body["turn"].get("locale")
    assert of_turn == env.get("OAUTHBROKER_LOCALE")
    assert {BrokerError(Code.BROKER_ANSWER_INVALID).message(spoken)} == {each.message for each in answers}  # type: ignore[union-attr]
    assert {WrongArgument("appReference", "oauthAppRef").message(spoken)} == {each["error"]["message"] for each in said}
    assert {of_turn or of_client} == {each.headers.get("accept-language") for each in fake.asked[1:]}


def test_a_language_in_the_environment_that_this_client_does_not_know_is_passed_over() -> None:
    env = {"OAUTHBROKER_URL": "http://127.0.0.1:1", "OAUTHBROKER_TURN_TOKEN": TURN_TOKEN, "OAUTHBROKER_LOCALE": "fr"}
    with SyncOAuth.from_env(Options(locale="ko"), env) as oauth:
        failed = oauth.get_access_token("Tool/mail")
    assert isinstance(failed, Failed)
    assert WrongArgument("appReference", "oauthAppRef").message("ko") == failed.message


async def test_a_broker_that_is_gone_at_the_end_of_a_turn_breaks_no_block() -> None:
    async def work(url: str) -> None:
        async with Runtime(url, KEY, patient()) as runtime, runtime.turn(TURN):
            pass

    async with fake_broker(says(201, BEGUN), None) as fake:
        await work(fake.url)
    async with fake_broker(says(201, BEGUN), refuses(401, "unauthenticated")) as fake:
        with pytest.raises(BrokerError, match="unauthenticated"):
            await work(fake.url)


async def test_an_event_is_leased_and_settled_by_its_lease() -> None:
    answers = [says(200, LEASED), says(204), refuses(409, "leaseLost"), refuses(403, "notAllowed")]
    async with fake_broker(*answers) as fake, Runtime(fake.url, KEY) as runtime:
        delivery = await runtime.lease("plan/ner", wait=600)
        assert delivery is not None
        assert ("evt-as-1-auth.granted", "auth.granted", 2) == (delivery.id, delivery.type, delivery.attempt)
        assert EVENT == delivery.to_json()
        assert datetime(2026, 2, 1, 10, 1, tzinfo=UTC) == delivery.lease_expires_at
        assert "lease-1" not in repr(delivery)
        assert await delivery.ack()
        assert not await delivery.nack()
        with pytest.raises(BrokerError, match="notAllowed"):
            await delivery.ack()
    assert "/v1/agents/plan%2Fner/events?wait=60" == fake.asked[0].path
    assert "/v1/agents/plan%2Fner/events/evt-as-1-auth.granted/ack" == fake.asked[1].path
    assert {"lease": "lease-1"} == fake.asked[1].body


async def test_the_iteration_of_events_outlives_a_broker_that_is_away_and_ends_with_one_that_refuses() -> None:
    away = [None] * 5
    answers = [says(204), *away, says(200, LEASED), refuses(401, "unauthenticated")]
    async with fake_broker(*answers) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        events = runtime.events("planner")
        assert "evt-as-1-auth.granted" == (await anext(events)).id
        with pytest.raises(BrokerError, match="unauthenticated"):
            await anext(events)


@pytest.mark.parametrize("wait", [float("inf"), float("nan"), -1, None, "5", True])
async def test_a_wait_that_is_no_number_of_seconds_is_refused_unsent(wait: Any) -> None:
    async with fake_broker() as fake, Runtime(fake.url, KEY, patient()) as runtime:
        with SyncRuntime(fake.url, KEY, patient()) as sync:
            for call in (
                lambda: runtime.lease("planner", wait),
                lambda: anext(runtime.events("planner", wait)),
                lambda: runtime.wait("as-1", wait),
                lambda: asyncio.to_thread(sync.lease, "planner", wait),
                lambda: asyncio.to_thread(lambda: next(sync.events("planner", wait))),
                lambda: asyncio.to_thread(sync.wait, "as-1", wait),
            ):
                with pytest.raises(BrokerError, match="A wait is a number of seconds"):
                    await call()
        assert [] == fake.asked


async def test_waiting_for_a_session_asks_now_and_then_until_it_ended_or_time_is_over() -> None:
    pending = says(200, {"authSessionId": "as-1", "status": "pending"})
    failed = says(200, {"authSessionId": "as-1", "status": "failed", "code": "subjectMismatch"})
    async with fake_broker(pending, pending, failed) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        assert SessionOutcome("failed", Code.SUBJECT_MISMATCH) == await runtime.wait("as-1")
    async with fake_broker(pending) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        assert SessionOutcome("pending") == await runtime.wait("as-1", timeout=10)
        assert 3 <= len(fake.asked) <= 10


async def test_waiting_for_a_session_goes_on_while_the_broker_is_away_until_its_time_is_over() -> None:
    away, outcome = [None] * 5, {"authSessionId": "as-1", "status": "completed"}
    pending = says(200, {**outcome, "status": "pending"})
    async with fake_broker(pending, *away, says(200, outcome)) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        assert SessionOutcome("completed") == await runtime.wait("as-1")
    async with fake_broker(pending, None) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        with pytest.raises(BrokerError, match="brokerUnreachable"):
            await runtime.wait("as-1", timeout=20)
        assert 5 < len(fake.asked) < 60
    async with fake_broker(refuses(401, "unauthenticated")) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        with pytest.raises(BrokerError, match="unauthenticated"):
            await runtime.wait("as-1")


async def test_the_other_calls_are_as_the_api_has_them() -> None:
    outcome = {"authSessionId": "as-1", "status": "completed"}
    app = {"name": "mail", "title": "Mail", "provider": "idp", "flow": "deviceCode", "subjectMode": "user", "scopes": ["read"]}  # fmt: skip
    answers = [
        says(200, outcome), says(200, {"cancelled": True}), says(200, outcome), says(200, outcome),
        says(201, {"url": "http://x/connections/open/t", "expiresAt": "2026-02-01T10:00:00Z"}), says(200, {"apps": [app]}),
        says(200, {"grants": [GRANT], "next": "sha256:1"}), says(200, {"grants": []}),
        says(200, {"grantId": "sha256:1", "provider": "done"}), refuses(404, "grantNotFound"),
        says(200, {"type": "auth.pending", "items": []}), says(200, {"links": [{"authSessionId": "as-1"}]}),
    ]  # fmt: skip
    async with fake_broker(*answers) as fake, Runtime(fake.url, KEY) as runtime:
        assert SessionOutcome("completed") == await runtime.session("as-1")
        assert await runtime.cancel("as-1")
        confirmed = await runtime.confirm("handle", "idp:user:U1")
        assert ("completed", None, "as-1") == (confirmed.status, confirmed.code, confirmed.auth_session_id)
        turn = _running(runtime)
        assert SessionOutcome("completed") == await runtime.relay_code(turn, "1234")
        link, until = await runtime.connections_link({"user": "idp:user:U1"})
        assert ("http://x/connections/open/t", datetime(2026, 2, 1, 10, tzinfo=UTC)) == (link, until)
        assert ["mail"] == [each.name for each in await runtime.apps()]
        assert [GRANT] == [{**grant.to_json(), "scopes": ["read"]} async for grant in runtime.grants(app="mail")]
        assert "done" == await runtime.revoke("sha256:1")
        assert await runtime.revoke("sha256:2") is None
        assert await turn.pending("apart") is None
        assert [{"authSessionId": "as-1"}] == await turn.links()
    assert [
        "GET /v1/auth-sessions/as-1",
        "DELETE /v1/auth-sessions/as-1",
        "POST /v1/auth-sessions/confirm",
        "POST /v1/auth-sessions/confirm",
        "POST /v1/connections",
        "GET /v1/apps",
        "GET /v1/grants?app=mail",
        "GET /v1/grants?app=mail&after=sha256%3A1",
        "DELETE /v1/grants/sha256%3A1",
        "DELETE /v1/grants/sha256%3A2",
        "GET /v1/turn/pending?links=apart",
        "GET /v1/turn/links",
    ] == [f"{asked.method} {asked.path}" for asked in fake.asked]
    assert {"handle": "handle", "subject": "idp:user:U1"} == fake.asked[2].body
    assert {"channelCode": "1234"} == fake.asked[3].body


def _running(runtime: Runtime) -> Any:
    from oauthbroker.client.runtime import RunningTurn

    begun = BegunTurn(
        turn_id="turn-x",
        token=Secret(TURN_TOKEN),
        tool_tokens={},
        expires_at=datetime(2026, 2, 1, tzinfo=UTC) + timedelta(hours=1),
    )
    return RunningTurn(runtime._wire, begun)


BROKEN: list[Any] = [{}, {**LEASED, "event": {}}, {**LEASED, "lease": None}, {**LEASED, "attempt": "x"}, {**LEASED, "leaseExpiresAt": 3}]  # fmt: skip


@pytest.mark.parametrize("said", BROKEN)
async def test_an_event_that_cannot_be_read_is_no_broker_of_ours(said: Any) -> None:
    async with fake_broker(says(200, said)) as fake, Runtime(fake.url, KEY) as runtime:
        with pytest.raises(BrokerError, match="brokerAnswerInvalid"):
            await runtime.lease("planner")


async def test_what_json_cannot_say_is_refused_here() -> None:
    async with fake_broker(says(200, READY)) as fake, Runtime(fake.url, KEY) as runtime:
        for origin in ({"x": float("nan")}, {"x": object()}, {"x": "\ud800"}):
            with pytest.raises(BrokerError, match="requestInvalid"):
                await runtime.begin(Turn("planner", "i", origin=origin))
        for name in ("", ".", ".."):
            with pytest.raises(BrokerError, match="requestInvalid"):
                await runtime.lease(name)
        assert [] == fake.asked


async def test_the_sync_clients_make_the_same_calls() -> None:
    async with fake_broker(says(201, BEGUN), says(200, READY), says(204)) as fake:

        def tool() -> str:
            with SyncRuntime(fake.url, KEY) as runtime, runtime.turn(TURN) as turn:
                return turn.oauth("Tool/mail").getAccessToken(ASK)["accessToken"]  # type: ignore[no-any-return]

        assert "at-1" == await asyncio.to_thread(tool)
        assert ["/v1/turns", "/v1/tokens", "/v1/turns/turn-x"] == [asked.path for asked in fake.asked]


async def test_a_child_of_fork_has_connections_of_its_own() -> None:
    """As servers that fork their workers do with a client that was used before."""
    async with fake_broker(says(200, READY)) as fake:

        def parent() -> int:
            with SyncOAuth(fake.url, TURN_TOKEN, Options(timeout=60)) as oauth:
                assert isinstance(oauth.get_access_token("mail"), Ready)
                if not (child := os.fork()):
                    os._exit(0 if isinstance(oauth.get_access_token("mail"), Ready) else 1)
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        assert 0 == await asyncio.to_thread(parent)
        assert (2, 2) == (len(fake.asked), len(fake.connections))


UNREADABLE: dict[str, tuple[Any, str]] = {
    "a broker that is away": (None, "brokerUnreachable"),
    "a store that cannot be read": (refuses(503, "storeUnavailable"), "storeUnavailable"),
    "a turn that is over": (refuses(401, "turnEnded"), "turnEnded"),
    "no block": (says(200, {"type": "other"}), "brokerAnswerInvalid"),
    "no JSON": (says(200, b"["), "brokerAnswerInvalid"),
}


@pytest.mark.rule("12.5.8")
@pytest.mark.parametrize("answer, code", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_block_that_cannot_be_read_is_none_and_one_warning(
    answer: Any, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In both clients. Links raise: a link that is not sent leaves its person waiting."""
    async with fake_broker(says(201, BEGUN), answer) as fake, Runtime(fake.url, KEY, patient()) as runtime:
        turn = await runtime.begin(TURN)
        with SyncOAuth(fake.url, TURN_TOKEN, patient()) as oauth:
            for block in (await turn.pending(), await asyncio.to_thread(oauth.pending)):
                assert block is None
        said = [record.getMessage() for record in caplog.records if record.name == "oauthbroker.client"]
        assert [f"an auth.pending block could not be read: {code}"] * 2 == said
        with pytest.raises(BrokerError, match=code):
            await turn.links()


FORMS: dict[str, Any] = {
    "the bare name": "mail",
    "kind/name": "OAuthApp/mail",
    "kind and name": {"kind": "OAuthApp", "name": "mail"},
    "all of it": {"kind": "OAuthApp", "name": "mail", "apiVersion": "agents.example.io/v1alpha1"},
}


@pytest.mark.parametrize("app", FORMS.values(), ids=FORMS)
async def test_an_app_is_named_in_any_form(app: Any) -> None:
    """In both clients: to list grants, and where a turn begins."""
    async with fake_broker(says(200, {"grants": []})) as fake, Runtime(fake.url, KEY) as runtime:
        assert [] == [grant async for grant in runtime.grants(app=app)]
        with SyncRuntime(fake.url, KEY) as sync:
            assert [] == await asyncio.to_thread(lambda: sync.grants(app=app))
        assert ["/v1/grants?app=mail"] * 2 == [asked.path for asked in fake.asked]
    async with fake_broker(says(200, {"sessions": []})) as fake, Runtime(fake.url, KEY) as runtime:
        assert [] == [record async for record in runtime.sessions(app=app)]
        assert "/v1/auth-sessions?app=mail" == fake.asked[0].path
    async with fake_broker(says(201, BEGUN)) as fake, Runtime(fake.url, KEY) as runtime:
        await runtime.begin(TURN, tools={"Tool/mail": [ToolAuth(app)]})
        assert [{"oauthAppRef": FORMS["kind and name"]}] == fake.asked[0].body["tools"]["Tool/mail"]


@pytest.mark.parametrize("app", ["Tool/mail", "", {"kind": "Tool", "name": "mail"}, {"name": "mail", "x": 1}, 5])
async def test_what_names_no_app_lists_no_grants(app: Any) -> None:
    async with fake_broker(says(200, {"grants": []})) as fake, Runtime(fake.url, KEY) as runtime:
        with pytest.raises(BrokerError, match="requestInvalid"):
            await anext(runtime.grants(app=app))
        assert [] == fake.asked


def test_a_turn_token_is_narrowed_to_apps_in_either_form() -> None:
    token = Secret(TURN_TOKEN)
    bare = narrow(token, apps={"mail": ["read"]})
    assert bare.reveal() == narrow(token, apps={"OAuthApp/mail": ["read"]}).reveal()
    for apps in ({"mail": ["read"], "OAuthApp/mail": None}, {"Tool/mail": None}, {"": None}):
        with pytest.raises(BrokerError, match="requestInvalid"):
            narrow(token, apps=apps)
