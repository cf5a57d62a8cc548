"""Who may call what: every operation of the table with every kind of caller; and tokens that are none of ours."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.access.turn_token_cache import KnownTokens
from oauthbroker.audit import CallRefused, TokenIssued
from oauthbroker.core.clock import from_iso
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.settings import ApiSocket, Settings, SocketCaller
from oauthbroker.model.token_results import Failed
from oauthbroker.model.turn_token import narrow
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.web.api.call_table import OPERATIONS, Operation
from oauthbroker.web.gate.request_limits import PEER
from tests.kit.running_broker import BASE, Harness, public, running, turn, user_app
from tests.story.api.kit import ANSWERS, BODIES, TOOLS, Answer, Caller, Callers, a_turn, admits, path_of, sent_with

MAY_SHOW = ("turn token", "access token", "ticket")
KINDS = ("stranger", "runtime", "operator", "turn", "tool")


async def call(operation: Operation, caller: Caller, kind: str = "runtime") -> Answer:
    bodies = BODIES.get(operation.id, {})
    mine = ("turn", "wholeTurn") if kind in {"turn", "tool"} else (kind,)
    body = next((bodies[who] for who in mine if who in bodies), next(iter(bodies.values()), None))
    if operation.method == "POST":
        return await caller.post(path_of(operation), body, allow=MAY_SHOW, **sent_with(operation))
    return await caller.send(operation.method, path_of(operation), allow=MAY_SHOW)


async def everybody(api: Callers) -> dict[str, Caller]:
    begun = await api.begin()
    turn, tool = api.holding(begun["turnToken"]), api.holding(begun["toolTokens"]["Tool/mail"])
    return {"stranger": api.stranger, "runtime": api.runtime, "operator": api.operator, "turn": turn, "tool": tool}


@pytest.mark.case("79")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
async def test_a_call_is_open_to_the_callers_of_the_table_only(
    harness: Harness, api: Callers, operation: Operation, kind: str
) -> None:
    answer = await call(operation, (await everybody(api))[kind], kind)
    if kind == "stranger":
        assert (401, "unauthenticated") == (answer.status, answer.code)
        assert "Bearer" == answer.headers["www-authenticate"]
    elif admits(operation, kind):
        assert answer.status in {*ANSWERS[operation.id], 400, 403, 404, 409}
        assert answer.status < 300 or answer.code not in {"notAllowed", "unauthenticated", "turnEnded"}
    else:
        assert (403, "notAllowed") == (answer.status, answer.code)
        refused = [entry for entry in harness.audit.entries if isinstance(entry, CallRefused)]
        assert [f"{operation.method} {operation.path}"] == [entry.route for entry in refused]
        assert ("Tool/mail" if kind == "tool" else None) == refused[0].tool
        assert refused[0].caller is not None


async def _nothing(api: Callers) -> str:
    return ""


async def _forged(api: Callers) -> str:
    return f"oabt.{'A' * 22}.{'B' * 43}"


async def _signature_of_another(api: Callers) -> str:
    one, two = (await api.begin())["turnToken"], (await api.begin())["turnToken"]
    return ".".join((*one.split(".")[:-1], two.split(".")[-1]))


async def _truncated(api: Callers) -> str:
    return str((await api.begin())["turnToken"])[:-1]


async def _caveat_taken_away(api: Callers) -> str:
    parts = (await api.begin())["toolTokens"]["Tool/mail"].split(".")
    return ".".join([*parts[:2], parts[-1]])


async def _caveat_changed(api: Callers) -> str:
    parts = (await api.begin())["toolTokens"]["Tool/mail"].split(".")
    other = base64.urlsafe_b64encode(b'{"tool":"Tool/both"}').decode().rstrip("=")
    return ".".join([*parts[:2], other, parts[-1]])


async def _key_forged(api: Callers) -> str:
    return f"oabk.{'A' * 22}.{'B' * 43}"


async def _key_with_another_secret(api: Callers) -> str:
    _, secret = await api.harness.broker.api_keys.create("other", ["runtime"])
    return f"{secret.reveal()[:-2]}xx"


async def _key_removed(api: Callers) -> str:
    key, secret = await api.harness.broker.api_keys.create("other", ["runtime"])
    await api.harness.broker.api_keys.remove(key.id)
    return secret.reveal()


async def _key_expired(api: Callers) -> str:
    _, secret = await api.harness.broker.api_keys.create("other", ["runtime"], lives_seconds=1)
    api.harness.clock.advance(2)
    return secret.reveal()


async def _junk(api: Callers) -> str:
    return "\x7f" * 5000


NOT_OURS: list[Callable[[Callers], Awaitable[str]]] = [
    _nothing, _forged, _signature_of_another, _truncated, _caveat_taken_away, _caveat_changed, _key_forged,
    _key_with_another_secret, _key_removed, _key_expired, _junk,
]  # fmt: skip


@pytest.mark.case("79")
@pytest.mark.parametrize("made", NOT_OURS, ids=lambda made: made.__name__)
async def test_every_foreign_token_gets_the_same_answer(
    harness: Harness, api: Callers, made: Callable[[Callers], Awaitable[str]]
) -> None:
    answer = await api.holding(await made(api)).post("/v1/tokens", {"oauthAppRef": "mail"})
    plain = await api.stranger.post("/v1/tokens", {"oauthAppRef": "mail"})
    assert (401, plain.body) == (answer.status, answer.body)
    unsaid = {"x-request-id"}
    assert {name: value for name, value in plain.headers.items() if name not in unsaid} == {
        name: value for name, value in answer.headers.items() if name not in unsaid
    }


@pytest.mark.case("79")
async def test_another_brokers_token_is_no_token_here(
    harness: Harness, api: Callers, identity_provider: IdentityProvider
) -> None:
    async with running(identity_provider, [user_app(identity_provider)], tools=TOOLS) as other:
        token = (await (await Callers.of(other)).begin())["turnToken"]
    answer = await api.holding(token).post("/v1/tokens", {"oauthAppRef": "mail"})
    assert (401, "unauthenticated") == (answer.status, answer.code)


@pytest.mark.case("79")
async def test_a_token_ends_with_its_turn_and_with_time_and_says_so_only_to_who_holds_it(
    harness: Harness, api: Callers
) -> None:
    begun = await api.begin(ttlSeconds=60)
    tool = api.holding(begun["toolTokens"]["Tool/mail"])
    short = narrow(Secret(begun["turnToken"]), expires_at=harness.clock.now().replace(microsecond=0))
    assert (401, "turnEnded") == ((ended := await api.holding(short).get("/v1/apps")).status, ended.code)
    assert 200 == (await tool.get("/v1/apps")).status
    harness.clock.advance(61)
    assert (401, "turnEnded") == ((late := await tool.get("/v1/apps")).status, late.code)
    begun = await api.begin()
    assert [204, 204] == [(await api.runtime.delete(f"/v1/turns/{begun['turnId']}")).status for _ in range(2)]
    for token in (begun["turnToken"], *begun["toolTokens"].values()):
        assert "turnEnded" == (await api.holding(token).get("/v1/turn/pending")).code
    refused = [entry.code for entry in harness.audit.entries if isinstance(entry, CallRefused)]
    assert {"turnEnded"} == set(refused)


@pytest.mark.case("79")
async def test_a_token_of_another_tool_has_exactly_that_tools_rights(harness: Harness, api: Callers) -> None:
    begun = await api.begin()
    idle, mail = (api.holding(begun["toolTokens"][tool]) for tool in ("Tool/idle", "Tool/mail"))
    assert ("appForbidden", 200) == ((no := await idle.post("/v1/tokens", {"oauthAppRef": "mail"})).code, no.status)
    assert "appForbidden" == (await mail.post("/v1/tokens", {"oauthAppRef": "team"})).code
    assert "scopeNotAllowed" == (await mail.post("/v1/tokens", {"oauthAppRef": "mail", "scopes": ["admin"]})).code
    reported = [(entry.code, entry.tool) for entry in harness.audit.entries if isinstance(entry, CallRefused)]
    assert [("appForbidden", "Tool/idle"), ("appForbidden", "Tool/mail"), ("scopeNotAllowed", "Tool/mail")] == reported
    unknown = api.holding(narrow(Secret(begun["turnToken"]), tool="Tool/nobody-knows"))
    assert [] == (await unknown.get("/v1/apps")).json()["apps"]


@pytest.mark.parametrize(
    "scheme, status", [("Bearer", 200), ("bearer", 200), ("BEARER", 200), ("Basic", 401), ("", 401)]
)
async def test_a_bearer_is_sent_once_and_as_a_bearer(harness: Harness, api: Callers, scheme: str, status: int) -> None:
    header = ("authorization", f"{scheme} {api.runtime.bearer}".strip())
    assert status == (await api.stranger.get("/v1/apps", headers=[header])).status
    assert 401 == (await api.stranger.get("/v1/apps", headers=[header, header])).status


async def test_users_of_this_machine_are_known_by_the_socket_and_by_nothing_they_say(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    socket = ApiSocket("/nowhere", callers=(SocketCaller(1000, frozenset({"runtime"})),))
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), api_socket=socket)
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, settings=settings
    ) as harness:

        def behind(uid: int, bearer: str | None = None) -> Caller:
            return Caller(harness, bearer, client=None, extensions={PEER: {"uid": uid}})

        assert 200 == (await behind(1000).get("/v1/apps")).status
        assert (403, "notAllowed") == ((no := await behind(1000).get("/v1/grants")).status, no.code)
        assert 401 == (await behind(1001).get("/v1/apps")).status
        assert 401 == (await behind(1000, f"oabt.{'A' * 22}.{'B' * 43}").get("/v1/apps")).status, "a bearer wins"
        _, operator = await harness.broker.api_keys.create("operator", ["operator"])
        Canaries.active().add(operator, "API key")
        assert 200 == (await behind(1000, operator.reveal()).get("/v1/grants")).status
        said = {"x-oauthbroker-peer": "1000", "oauthbroker.peer": "1000"}
        assert 401 == (await Caller(harness).get("/v1/apps", headers=said)).status


@pytest.mark.case("79")
async def test_a_socket_that_lists_no_user_refuses_all(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Neither root nor the user that the broker runs as: a tool may be that one, too."""
    settings = dataclasses.replace(public(BASE), api_socket=ApiSocket("/nowhere"))
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, settings=settings
    ) as harness:
        for uid in (0, os.getuid(), os.geteuid(), -1, 2**32 - 2):
            answer = await Caller(harness, None, client=None, extensions={PEER: {"uid": uid}}).get("/v1/apps")
            assert (401, "unauthenticated") == (answer.status, answer.code), uid


async def test_a_tool_sees_the_apps_and_scopes_it_may_ask_for(harness: Harness, api: Callers) -> None:
    def reported(answer: Answer) -> dict[str, Any]:
        return {app["name"]: app["scopes"] for app in answer.json()["apps"]}

    everything = {name: ["read", "write", "admin"] for name in ("files", "mail", "team")}
    assert (
        everything == reported(await api.runtime.get("/v1/apps")) == reported(await (await api.turn()).get("/v1/apps"))
    )
    assert {"mail": ["read", "write"]} == reported(await (await api.tool("Tool/mail")).get("/v1/apps"))
    assert set() == set(reported(await (await api.tool("Tool/idle")).get("/v1/apps")))
    secret = harness.broker.bundle.apps["mail"].client.client_secret
    assert secret is not None
    assert secret.reveal() not in (await api.runtime.get("/v1/apps")).text


async def test_a_token_is_narrowed_for_who_cannot_do_it_and_never_widened(harness: Harness, api: Callers) -> None:
    turn = await api.turn()
    body = {"tool": "Tool/both", "apps": [{"oauthAppRef": "mail", "scopes": ["read"]}], "ttlSeconds": 60}
    narrowed = (await turn.post("/v1/turn/narrow", body, allow=MAY_SHOW)).json()
    Canaries.active().add(narrowed["turnToken"], "turn token")
    tool = api.holding(narrowed["turnToken"])
    assert [("mail", ["read"])] == [(app["name"], app["scopes"]) for app in (await tool.get("/v1/apps")).json()["apps"]]
    wider = {"apps": [{"oauthAppRef": "team"}, {"oauthAppRef": "mail"}], "ttlSeconds": 3600}
    again = (await tool.post("/v1/turn/narrow", wider, allow=MAY_SHOW)).json()
    Canaries.active().add(again["turnToken"], "turn token")
    apps = (await api.holding(again["turnToken"]).get("/v1/apps")).json()["apps"]
    assert [("mail", ["read"])] == [(app["name"], app["scopes"]) for app in apps]
    assert narrowed["expiresAt"] == again["expiresAt"]
    harness.clock.advance(61)
    assert "turnEnded" == (await tool.get("/v1/apps")).code
    many = turn
    for _ in range(16):
        one = await many.post("/v1/turn/narrow", {"ttlSeconds": 600}, allow=MAY_SHOW)
        Canaries.active().add(one.json()["turnToken"], "turn token")
        many = api.holding(one.json()["turnToken"])
    assert (400, "requestInvalid") == ((no := await many.post("/v1/turn/narrow", {"ttlSeconds": 1})).status, no.code)


@pytest.mark.case("79", "81")
@pytest.mark.parametrize("scopes", [[], ["root"]])
async def test_an_app_that_was_narrowed_to_nothing_yields_no_token(
    harness: Harness, api: Callers, scopes: list[str]
) -> None:
    """The provider's token carries what the grant has: with no scope left to ask for there must be no answer."""
    await harness.connected()
    begun = await api.begin(tools={"Tool/mail": None, "Tool/given": [{"oauthAppRef": "mail", "scopes": []}]})
    whole = (begun["turnToken"], begun["toolTokens"]["Tool/mail"])
    none = [narrow(Secret(token), apps={"mail": scopes}).reveal() for token in whole]
    body = {"apps": [{"oauthAppRef": "mail", "scopes": scopes}]}
    asked = await api.holding(begun["turnToken"]).post("/v1/turn/narrow", body, allow=MAY_SHOW)
    for token in (*none, asked.json()["turnToken"], begun["toolTokens"]["Tool/given"]):
        Canaries.active().add(token, "turn token")
        for asking in ({"oauthAppRef": "mail"}, {"oauthAppRef": "mail", "scopes": []}):
            assert "appForbidden" == (await api.holding(token).post("/v1/tokens", asking)).code
        assert [] == (await api.holding(token).get("/v1/apps")).json()["apps"]


@pytest.mark.case("79")
async def test_no_tool_signs_in_another_tools_name(harness: Harness, api: Callers) -> None:
    await harness.connected()
    begun = await api.begin()
    turned = narrow(Secret(begun["toolTokens"]["Tool/mail"]), tool="Tool/both")
    assert 200 == (await api.holding(turned).post("/v1/tokens", {"oauthAppRef": "mail"}, allow=MAY_SHOW)).status
    assert "Tool/mail" == [entry for entry in harness.audit.entries if isinstance(entry, TokenIssued)][-1].tool
    forged = narrow(Secret(begun["turnToken"]), tool="Tool/mail\u202e\n")
    assert 401 == (await api.holding(forged).post("/v1/tokens", {"oauthAppRef": "mail"})).status
    refused = await api.holding(begun["turnToken"]).post("/v1/turn/narrow", {"tool": "Tool/mail\u202e\n"})
    assert (400, "requestInvalid") == (refused.status, refused.code)
    refused = await api.runtime.post("/v1/turns", a_turn(tools={"Tool/mail\n": None}))
    assert (400, "requestInvalid") == (refused.status, refused.code)


async def test_a_narrowed_token_lives_as_long_as_was_asked_for_and_no_app_is_named_twice(
    harness: Harness, api: Callers
) -> None:
    harness.clock.advance(0.999)
    turn = await api.turn()
    one = (await turn.post("/v1/turn/narrow", {"ttlSeconds": 1}, allow=MAY_SHOW)).json()
    Canaries.active().add(one["turnToken"], "turn token")
    assert 1 <= (from_iso(one["expiresAt"]) - harness.clock.now()).total_seconds() < 2
    twice = {"apps": [{"oauthAppRef": "mail", "scopes": ["read"]}, {"oauthAppRef": "OAuthApp/mail"}]}
    assert (400, "requestInvalid") == ((no := await turn.post("/v1/turn/narrow", twice)).status, no.code)


async def test_what_a_tool_may_follows_the_configuration_at_once(harness: Harness, api: Callers) -> None:
    tool = await api.tool("Tool/mail")

    async def scopes() -> Any:
        return [(app["name"], app["scopes"]) for app in (await tool.get("/v1/apps")).json()["apps"]]

    assert [("mail", ["read", "write"])] == await scopes() == await scopes()
    bundle = harness.broker.bundle
    await harness.broker.reload(replace(bundle, tools={**bundle.tools, "Tool/mail": (ToolAuth("mail", ("read",)),)}))
    assert [("mail", ["read"])] == await scopes()
    await harness.broker.reload(replace(bundle, tools={}))
    assert [] == await scopes()


async def test_tokens_that_were_admitted_are_remembered_up_to_a_bound_and_no_longer_than_their_turn(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.broker.turns, "_known", KnownTokens(3))
    begun = [await api.begin() for _ in range(5)]
    holders = [api.holding(each["turnToken"]) for each in begun]
    for _ in range(2):
        answers = await asyncio.gather(*(holder.get("/v1/apps") for holder in holders for _ in range(3)))
        assert {200} == {answer.status for answer in answers}
    assert 3 == len(harness.broker.turns._known)
    for each, holder in zip(begun, holders, strict=True):
        await harness.broker.turns.end(each["turnId"])
        assert (401, "turnEnded") == ((over := await holder.get("/v1/apps")).status, over.code)
    assert all(token not in repr(harness.broker.turns) for token in (each["turnToken"] for each in begun))


async def test_a_token_that_was_narrowed_to_nothing_is_told_so_and_not_only_of_the_declaration(api: Callers) -> None:
    begun = await api.begin()
    token = narrow(Secret(begun["toolTokens"]["Tool/mail"]), apps={"mail": ["another"]})
    Canaries.active().add(token.reveal(), "turn token")
    answer = await api.holding(token.reveal()).post("/v1/tokens", {"oauthAppRef": "mail"})
    assert "appForbidden" == answer.code
    assert "its token was narrowed to no scope of it" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("tool", "says"), [("Tool/mial", "no Tool/mial. Did you mean Tool/mail?"), ("Tool/x", "no Tool/x. Check the name")]
)
async def test_an_embedded_tool_that_the_bundle_lacks_is_named_with_the_nearest(
    harness: Harness, tool: str, says: str
) -> None:
    failed = await harness.broker.oauth(turn(), tool=tool).get_access_token("mail")
    assert isinstance(failed, Failed)
    assert "appForbidden" == failed.code
    assert says in failed.message
