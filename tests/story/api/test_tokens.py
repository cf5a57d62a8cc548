"""The token call over HTTP: its answer equals, letter by letter, that of the same call in the process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oauthbroker.audit import TokenIssued
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.observability.metrics import Metric
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.testing import connect_through
from oauthbroker.tokens.context import OAuthContext
from oauthbroker.web.api.authentication import Callers as CallersOfApi
from tests.kit.running_broker import ALICE, Harness, turn
from tests.story.api.kit import Caller, Callers, checked

MAY_SHOW = ("access token", "ticket")


def spelt(result: dict[str, Any]) -> str:
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def embedded(harness: Harness, tool: str = "Tool/both", of: Any = None) -> OAuthContext:
    return harness.broker.oauth(of or turn(), tool)


async def both(harness: Harness, api: Callers, request: dict[str, Any], tool: str = "Tool/both", **more: Any) -> str:
    """The answer over HTTP, which is the same as the one in the process."""
    caller = await api.tool(tool, **more)
    over_http = await caller.post("/v1/tokens", request, allow=MAY_SHOW)
    assert (200, "application/json") == (over_http.status, over_http.headers["content-type"])
    subjects = {name: value for name, value in more.items() if name in {"user", "team"}}
    in_process = await embedded(harness, tool, turn(**subjects)).getAccessToken(request)
    assert spelt(in_process).encode() == over_http.body
    checked("TokenResult", over_http.body)
    return str(in_process["status"])


async def test_all_three_results_are_the_same_over_http_and_in_the_process(harness: Harness, api: Callers) -> None:
    request = {"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}, "scopes": ["read"], "minTtlSeconds": 60}
    assert "authorization_required" == await both(harness, api, request)
    await harness.connected()
    assert "ready" == await both(harness, api, request)
    assert "error" == await both(harness, api, {"oauthAppRef": "nothing"})


@pytest.mark.parametrize(
    "code, request_body, tool, more",
    [
        ("oauthAppNotFound", {"oauthAppRef": "OAuthApp/nothing"}, "Tool/both", {}),
        ("appForbidden", {"oauthAppRef": "files"}, "Tool/both", {}),
        ("appForbidden", {"oauthAppRef": "mail"}, "Tool/idle", {}),
        ("scopeNotAllowed", {"oauthAppRef": "mail", "scopes": ["admin"]}, "Tool/mail", {}),
        ("scopeNotAllowed", {"oauthAppRef": "mail", "scopes": ["read", "read"]}, "Tool/mail", {}),
        ("scopeNotAllowed", {"oauthAppRef": "mail", "scopes": [""]}, "Tool/mail", {}),
        ("subjectUnavailable", {"oauthAppRef": "mail"}, "Tool/mail", {"user": None}),
        ("subjectUnavailable", {"oauthAppRef": "team"}, "Tool/both", {"team": None}),
    ],
)
@pytest.mark.case("37", "43")
async def test_an_error_is_a_result_and_the_same_everywhere(
    harness: Harness, api: Callers, code: str, request_body: dict[str, Any], tool: str, more: dict[str, Any]
) -> None:
    assert "error" == await both(harness, api, request_body, tool, **more)
    answer = await (await api.tool(tool, **more)).post("/v1/tokens", request_body)
    assert code == answer.code


@pytest.mark.parametrize(
    "code, error",
    [
        ("providerRateLimited", lambda refresh: refresh.busy(30, 429, times=None)),
        ("providerUnreachable", lambda refresh: refresh.busy(None, 503, times=None)),
        ("appMisconfigured", lambda refresh: refresh.refuse("invalid_client", 401, times=None)),
    ],
)
async def test_a_providers_trouble_is_the_same_everywhere(
    harness: Harness, api: Callers, code: str, error: Callable[[Any], None]
) -> None:
    await harness.connected()
    harness.clock.advance(24 * 3600)
    error(harness.idp.script.client("client-mail").refresh)
    request = {"oauthAppRef": "mail"}
    await embedded(harness).getAccessToken(request)  # from now on the circuit answers, with the same seconds to wait
    assert "error" == await both(harness, api, request)
    answer = await (await api.tool("Tool/both")).post("/v1/tokens", request)
    assert (200, code) == (answer.status, answer.code)


async def test_an_impossible_time_to_live_has_the_same_answer_in_every_client(harness: Harness, api: Callers) -> None:
    await harness.connected()
    request = {"oauthAppRef": "mail", "minTtlSeconds": 10 * 24 * 3600}
    assert "error" == await both(harness, api, request)
    assert "minTtlUnsatisfiable" == (await (await api.tool("Tool/both")).post("/v1/tokens", request)).code


async def test_a_rejected_token_is_refreshed_and_the_answer_is_a_result(harness: Harness, api: Callers) -> None:
    old = await harness.connected()
    tool = await api.tool("Tool/both")
    body = {"oauthAppRef": "mail", "accessToken": old.access_token.reveal()}
    answer = await tool.post("/v1/tokens/rejected", body, allow=MAY_SHOW)
    assert (200, "ready") == (answer.status, answer.json()["status"])
    assert old.access_token.reveal() != answer.json()["accessToken"]
    checked("TokenResult", answer.body)
    refused = await tool.post("/v1/tokens/rejected", {"oauthAppRef": "files", "accessToken": "x"})
    assert (200, "appForbidden") == (refused.status, refused.code)


async def test_another_account_can_be_asked_for(harness: Harness, api: Callers) -> None:
    await harness.connected()
    answer = await (await api.turn()).post("/v1/tokens", {"oauthAppRef": "mail", "switchAccount": True}, allow=MAY_SHOW)
    assert ("authorization_required", "noGrant") == (answer.json()["status"], answer.json()["reason"])


async def test_the_whole_story_over_http(harness: Harness, api: Callers) -> None:
    """A tool asks, a person agrees, the agent is woken up, the tool asks again."""
    begun = await api.begin()
    tool = api.holding(begun["toolTokens"]["Tool/mail"])
    asked = (await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=MAY_SHOW)).json()
    assert "authorization_required" == asked["status"]
    pending = (await tool.get("/v1/turn/pending", allow=MAY_SHOW)).json()
    assert [asked["authorizationUrl"]] == [item["authorizationUrl"] for item in pending["items"]]
    assert 204 == (await api.runtime.get("/v1/agents/planner/events")).status
    assert 200 == (await connect_through(harness.browser(), harness.idp, asked["authorizationUrl"], "alice")).status
    leased = (await api.runtime.get("/v1/agents/planner/events?wait=5")).json()
    assert ("auth.granted", 1) == (leased["event"]["type"], leased["attempt"])
    event = leased["event"]["eventId"]
    assert 204 == (await api.runtime.post(f"/v1/agents/planner/events/{event}/ack", {"lease": leased["lease"]})).status
    ready = (await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=MAY_SHOW)).json()
    assert ["read", "write"] == ready["scopes"]
    assert harness.idp.is_alive(ready["accessToken"])
    assert [] == (await tool.get("/v1/turn/pending")).json()["items"]
    assert 204 == (await api.runtime.delete(f"/v1/turns/{begun['turnId']}")).status
    assert (401, "turnEnded") == ((over := await tool.post("/v1/tokens", {"oauthAppRef": "mail"})).status, over.code)


@asynccontextmanager
async def hanging_refresh(harness: Harness) -> AsyncIterator[Callable[[], Any]]:
    """A refresh under way; the block is given a way to wait until the provider was asked."""
    hold = harness.idp.script.client("client-mail").refresh.hang(after_work=True)
    try:
        yield hold.arrived
    finally:
        hold.release()


@asynccontextmanager
async def held_pair(harness: Harness) -> AsyncIterator[Callable[[], Any]]:
    """Another process writes records of the pair, so that nothing new can be opened for it."""
    async with harness.repository.pair(GrantKey("mail", ALICE)):
        yield lambda: asyncio.sleep(0.1)


async def ended_elsewhere(harness: Harness, turn_id: str) -> None:
    """By another process on the same store."""
    records = harness.repository.records("turns", TurnRecord.from_plaintext)
    assert await records.end(turn_id.removeprefix("turn-"))


async def ended_here(harness: Harness, turn_id: str) -> None:
    assert await harness.broker.turns.end(turn_id)


async def out_of_time(harness: Harness, _: str) -> None:
    harness.clock.advance(61)


async def asked(_: Harness, tool: Caller) -> Any:
    return await tool.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=MAY_SHOW)


async def rejected(harness: Harness, tool: Caller) -> Any:
    grant = await harness.grant()
    assert grant is not None
    assert grant.token is not None
    body = {"oauthAppRef": "mail", "accessToken": grant.token.access_token.reveal()}
    return await tool.post("/v1/tokens/rejected", body, allow=MAY_SHOW)


@pytest.mark.case("79")
@pytest.mark.parametrize("end", [ended_elsewhere, ended_here, out_of_time])
@pytest.mark.parametrize(
    "call, connected, waits_on",
    [(asked, True, hanging_refresh), (rejected, True, hanging_refresh), (asked, False, held_pair)],
)
async def test_nothing_leaves_for_a_turn_that_ended_while_its_call_waited(
    harness: Harness, api: Callers, call: Any, connected: bool, waits_on: Any, end: Any
) -> None:
    if connected:
        await harness.connected()
        harness.clock.advance(24 * 3600)
    begun = await api.begin(ttlSeconds=60)
    tool, before = api.holding(begun["toolTokens"]["Tool/mail"]), len(harness.audit.entries)
    async with waits_on(harness) as under_way:
        asking = asyncio.create_task(call(harness, tool))
        await under_way()
        await end(harness, begun["turnId"])
    answer = await asking
    assert (401, "turnEnded") == (answer.status, answer.code)
    assert not [entry for entry in harness.audit.entries[before:] if isinstance(entry, TokenIssued)]


async def test_a_call_that_is_refused_before_it_reaches_its_turn_is_a_token_error_once(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert `StoreAway` counts them: in an outage most calls end there, since no turn can be checked."""
    tool = await api.tool("Tool/both")

    def count(code: Code) -> int:
        return harness.broker.metrics.value(Metric.TOKEN_ERRORS, code.value)

    async def away(*_: Any, **__: Any) -> Any:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(CallersOfApi, "who", away)
        for path, body in (
            ("/v1/tokens", {"oauthAppRef": "mail"}),
            ("/v1/tokens/rejected", {"oauthAppRef": "mail", "accessToken": "x"}),
        ):
            assert 503 == (await tool.post(path, body)).status
    assert 2 == count(Code.STORE_UNAVAILABLE)
    assert 400 == (await tool.post("/v1/tokens", {"what": "ever"})).status
    assert 1 == count(Code.REQUEST_INVALID)
    assert 200 == (await tool.post("/v1/tokens", {"oauthAppRef": "nothing"})).status
    assert 1 == count(Code.OAUTH_APP_NOT_FOUND)
