"""Tools of an MCP server that need tokens of third parties: the caller's own, after the caller's own consent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequestURLParams, ElicitResult, InputRequiredResult
from pydantic import AnyHttpUrl

from oauthbroker import AuthorizationRequired, BrokerError, Code, Secret
from oauthbroker.audit import AuthorizationRequested
from oauthbroker.mcp import McpOAuth, TurnTokenVerifier
from oauthbroker.mcp.consent import INPUT
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.turn_token import narrow
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.docs import code_blocks
from tests.kit.running_broker import SUBS, Harness, file_store, running
from tests.story.binding_kit import broker_login, corp_turn, login_app, login_callback, settings_for
from tests.story.mcp_kit import fast_mcp, link_in, served, text_of, time_passes

RESOURCE = "http://127.0.0.1/mcp"
AUDIENCE = "Connection/whose"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = ["0" * 40, "1" * 40]
ELSEWHERE = "https://elsewhere.example"
OF_LOGIN = {"iss": "the issuer of the login"}
Kind = Literal["mcp", "fastmcp"]


class Signed:
    """Verifies the access tokens of the MCP server's own issuer: `of alice`. `of` alone names no user."""

    def __init__(self, issuer: str) -> None:
        self._claims = {"iss": issuer}

    async def verify_token(self, token: str) -> AccessToken | None:
        word, _, name = token.partition(" ")
        said = {"token": token, "client_id": "host", "scopes": [], "resource": RESOURCE, "claims": self._claims}
        return AccessToken.model_validate({**said, "subject": SUBS.get(name)}) if word == "of" else None


@dataclass
class Stage:
    """A broker whose users sign in at the company, and MCP servers of the company whose tools need their mail."""

    harness: Harness
    links: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def issuer(self) -> str:
        """Return the issuer of the broker's login."""
        assert self.harness.corp is not None
        return self.harness.corp.issuer

    def oauth(self, **more: Any) -> McpOAuth:
        return McpOAuth(self.harness.broker, **more)

    async def serve(
        self, kind: Kind = "mcp", *, verifier: Any = None, oauth: McpOAuth | None = None, **more: Any
    ) -> str:
        """Serve the tools. Returns the URL."""
        server, context = _server(kind, verifier or Signed(self.issuer), **more)
        _add_tools(server, context, oauth or self.oauth(), self.harness.idp.url("/api/me"), self.begun)
        made = server.streamable_http_app if kind == "mcp" else server.http_app
        app = made(json_response=True)  # the packages' own logs repeat the events of a stream, with their links
        port, _ = await self.stack.enter_async_context(served(app))
        return f"http://127.0.0.1:{port}/mcp"

    @asynccontextmanager
    async def client(
        self, url: str, elicited: Callable[[str], Awaitable[Any]] | None = None, *, name: str = "alice", mode: str = "2026-07-28",
        token: str | None = None,
    ) -> AsyncIterator[Client]:  # fmt: skip
        """Open a user's session. `elicited` is what the host does with a link: "decline" declines."""

        async def on_elicitation(_: Any, params: Any) -> ElicitResult:
            assert isinstance(params, ElicitRequestURLParams)
            self.links.append(params.url)
            assert elicited is not None
            return ElicitResult(action=await elicited(params.url) or "accept")

        async with AsyncExitStack() as stack:
            headers = {"Authorization": f"Bearer {token or f'of {name}'}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60))
            streams = streamable_http_client(url, http_client=http)
            callback: Any = None if elicited is None else on_elicitation
            yield await stack.enter_async_context(Client(streams, mode=mode, elicitation_callback=callback))

    def asked(self, url: str) -> AuthorizationRequired:
        """Return the request that a link belongs to."""
        session = f"as-{url.rpartition('/')[2][:22]}"
        return AuthorizationRequired(
            auth_session_id=session, authorization_url=url, expires_at=EPOCH, message="", reason="noGrant"
        )

    async def consent(self, url: str, account: str = "alice", *, deny: bool = False) -> Page:
        """Open a link in a new browser, sign in as its user, and go all the way."""
        return await self.harness.connect(self.asked(url), account, deny=deny)

    async def connected(self, name: str = "alice") -> None:
        await self.harness.connected(of=corp_turn(name), account=name)

    @property
    def sessions(self) -> list[str]:
        return [each.session for each in self.harness.audit.entries if isinstance(each, AuthorizationRequested)]

    async def status(self, number: int = -1) -> str:
        found = await self.harness.broker.sessions.find(self.sessions[number])
        assert found is not None
        return found.status


def _server(kind: Kind, verifier: Any, **more: Any) -> tuple[Any, type]:
    if kind == "mcp":
        issuer = AnyHttpUrl("http://127.0.0.1/corp")
        auth = AuthSettings(issuer_url=issuer, resource_server_url=AnyHttpUrl(RESOURCE), validate_token_resource=True)
        return MCPServer("whose", token_verifier=verifier, auth=auth, **more), Context
    package = fast_mcp()

    class Verifier(package.server.auth.TokenVerifier):  # type: ignore[misc, name-defined]
        async def verify_token(self, token: str) -> AccessToken | None:
            found: AccessToken | None = await verifier.verify_token(token)
            return found

    return package.FastMCP("whose", auth=Verifier(base_url="http://127.0.0.1"), **more), package.Context


def _add_tools(server: Any, context: type, oauth: McpOAuth, api: str, begun: list[str]) -> None:
    """The tools say whose mail they read. `begun` has the tools that were begun."""

    async def by_token(ctx: Any) -> str:
        begun.append("by_token")
        token = (await oauth.token(ctx, "OAuthApp/mail", ["read"])).access_token
        async with httpx2.AsyncClient(trust_env=False) as http:
            return str((await http.get(api, headers={"Authorization": f"Bearer {token.reveal()}"})).json()["login"])

    async def by_client(ctx: Any, twice: bool = False) -> str:
        async with oauth.client(ctx, "OAuthApp/mail", ["read"]) as mail:
            return str((await mail.get(api)).json()["login"]) * (2 if twice else 1)

    async def declared(ctx: Any) -> str:
        begun.append("declared")
        return await by_client(ctx)

    async def beyond(ctx: Any) -> str:
        return str(await oauth.token(ctx, "OAuthApp/mail", ["root"]))

    for tool in (by_token, by_client, declared, beyond):
        tool.__annotations__["ctx"] = context
    declaring = oauth.asks("OAuthApp/mail", ["read"])
    for decorated in (oauth.asks()(by_token), oauth.asks()(by_client), declaring(declared), oauth.asks()(beyond)):
        server.tool()(decorated)


@pytest.fixture
def corp(test_clock: TestClock) -> Iterator[IdentityProvider]:
    with IdentityProvider(clock=test_clock) as provider:
        yield provider


@asynccontextmanager
async def world(idp: IdentityProvider, corp: IdentityProvider, clock: TestClock, **more: Any) -> AsyncIterator[Stage]:
    _, _, address = idp.base_url.partition("://")
    host, _, port = address.partition(":")
    api = more.pop("api", ApiAccess((ApiHost(host, int(port), "http"),), ("GET",)))
    more |= {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
    more["tools"] = {AUDIENCE: (ToolAuth("mail", ("read",)),), "Tool/other": (ToolAuth("mail"),)}
    async with running(idp, [login_app(idp, api=api)], clock=clock, **more) as harness:
        stage = Stage(harness)
        async with stage.stack:
            yield stage


@pytest.fixture
async def stage(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Stage]:
    async with world(identity_provider, corp, test_clock) as stage:
        yield stage


@pytest.fixture(params=["mcp", "fastmcp"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


# --- consent inside a call


@pytest.mark.parametrize("tool", ["by_token", "by_client", "declared"])
async def test_a_tool_asks_the_user_and_goes_on_by_itself(stage: Stage, kind: Kind, tool: str) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def consents(url: str) -> None:
        tasks.append(asyncio.create_task(stage.consent(url)))

    async with stage.client(await stage.serve(kind), consents) as client:
        assert "alice" == text_of(await client.call_tool(tool, {}))
        await asyncio.gather(*tasks)
        assert "alice" == text_of(await client.call_tool(tool, {}))
    assert 1 == len(stage.links)
    assert stage.links[0].startswith(stage.harness.origin)


@pytest.mark.parametrize(("tool", "times"), [("by_token", 2), ("declared", 1)])
async def test_a_declared_app_is_asked_for_before_the_tool_begins(stage: Stage, tool: str, times: int) -> None:
    async def consents(url: str) -> None:
        await stage.consent(url)

    async with stage.client(await stage.serve(), consents) as client:
        assert "alice" == text_of(await client.call_tool(tool, {}))
    assert [tool] * times == stage.begun


async def test_a_user_may_take_several_rounds(stage: Stage) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def consents(url: str) -> None:
        async def later() -> None:
            await asyncio.sleep(0.15)  # three times the patience, since 20 s pass in one
            await stage.consent(url)

        tasks.append(asyncio.create_task(later()))

    url = await stage.serve(oauth=stage.oauth(patience_seconds=1))
    async with stage.client(url, consents) as client, time_passes(stage.harness.clock):
        assert "alice" == text_of(await client.call_tool("by_token", {}))
        await asyncio.gather(*tasks)
    assert 1 == len(stage.links)


async def test_parallel_calls_ask_for_one_consent(stage: Stage) -> None:
    async def consents(url: str) -> None:
        if 1 == len(stage.links):
            await stage.consent(url)

    async with stage.client(await stage.serve(), consents) as client:
        said = await asyncio.gather(*(client.call_tool("by_token", {}) for _ in range(5)))
    assert ["alice"] * 5 == [text_of(each) for each in said]
    assert 1 == len(stage.sessions)


async def test_two_users_at_once_each_have_their_own_token(stage: Stage, kind: Kind) -> None:
    await stage.connected("alice")
    await stage.connected("bob")
    url = await stage.serve(kind)
    async with stage.client(url) as of_alice, stage.client(url, name="bob") as of_bob:
        said = await asyncio.gather(*(each.call_tool("by_client", {}) for each in [of_alice, of_bob] * 5))
    assert ["alice", "bob"] * 5 == [text_of(each) for each in said]


async def test_the_events_of_a_consent_wait_for_no_consumer(stage: Stage) -> None:
    async def consents(url: str) -> None:
        await stage.consent(url)
        async with asyncio.timeout(30):
            while not await waiting():
                await asyncio.sleep(0.01)

    async def waiting() -> int:
        return sum(each.waiting for each in await stage.harness.broker.dead_letters.states())

    async with stage.client(await stage.serve(), consents) as client:
        await client.call_tool("by_token", {})
    assert 0 == await waiting()


# --- the other ends of a call


async def declines(_: str) -> str:
    return "decline"


async def test_a_user_who_declines_ends_the_call_with_a_sentence_and_the_link(stage: Stage, kind: Kind) -> None:
    async with stage.client(await stage.serve(kind), declines) as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    assert "declined" in text_of(result)
    assert 400 <= (await stage.harness.browser().open(stage.links[0])).status


async def cancels(_: str) -> str:
    return "cancel"


async def test_a_question_that_the_host_cancels_is_no_refusal_and_its_link_lives(stage: Stage, kind: Kind) -> None:
    """A dialog that was closed, and a host that cancels each question because no user can see one."""
    async with stage.client(await stage.serve(kind), cancels) as client, time_passes(stage.harness.clock):
        for _ in range(2):
            result = await client.call_tool("by_token", {})
            assert result.is_error
            assert link_in(text_of(result)) == stage.links[0]
        assert "pending" == await stage.status()
        await stage.consent(stage.links[0])
        assert "alice" == text_of(await client.call_tool("by_token", {}))
    assert 1 == len(stage.sessions)


async def test_a_host_of_2025_finds_the_link_in_the_text_of_the_error_too(stage: Stage) -> None:
    async with stage.client(await stage.serve(), declines, mode="legacy") as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("by_token", {})
    assert link_in(refused.value.error.message) == refused.value.error.data["elicitations"][0]["url"]


async def test_a_denial_at_the_provider_ends_the_call_with_a_sentence(stage: Stage, kind: Kind) -> None:
    async def denies(url: str) -> None:
        await stage.consent(url, deny=True)

    async with stage.client(await stage.serve(kind), denies) as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    assert "providerDenied" in text_of(result)
    assert 1 == len(stage.links)


async def test_a_link_that_expires_ends_the_call_with_a_sentence(stage: Stage) -> None:
    async def waits(_: str) -> None:
        stage.harness.clock.advance(24 * 3600)

    async with stage.client(await stage.serve(), waits) as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    assert "stateExpired" in text_of(result)


async def test_a_refusal_of_the_broker_is_its_sentence(stage: Stage, kind: Kind) -> None:
    async with stage.client(await stage.serve(kind)) as client:
        result = await client.call_tool("beyond", {})
    assert result.is_error
    assert "The scope root is not allowed here. Allowed are: read, write, admin." in text_of(result)


async def test_a_store_that_fails_in_a_wait_ends_the_call_with_its_sentence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    async def accepts(_: str) -> None:
        monkeypatch.setattr(stage.harness.broker, "wait", fails)

    async with stage.client(await stage.serve(), accepts) as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    assert "storeUnavailable" in text_of(result)


async def test_events_that_cannot_be_settled_end_no_call(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise BrokerError(Code.STORE_UNAVAILABLE)

    async def consents(url: str) -> None:
        await stage.consent(url)
        monkeypatch.setattr(stage.harness.broker.events, "lease", fails)

    async with stage.client(await stage.serve(), consents) as client:
        assert "alice" == text_of(await client.call_tool("by_token", {}))


# --- clients of other revisions, and hosts that show no links


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_host_that_shows_forms_only_gets_a_sentence_with_the_link(
    stage: Stage, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.types.UrlElicitationCapability", lambda: None)
    async with stage.client(await stage.serve(), declines, mode=mode) as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    assert f"{stage.harness.origin}/connect/" in text_of(result)
    assert [] == stage.links


async def test_a_client_of_2025_gets_the_link_in_an_error_and_waits_in_the_repeated_call(stage: Stage) -> None:
    async def unused(_: str) -> None: ...

    async with stage.client(await stage.serve(), unused, mode="legacy") as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("by_token", {})
        assert -32042 == refused.value.error.code
        (elicitation,) = refused.value.error.data["elicitations"]
        assert "url" == elicitation["mode"]
        again = asyncio.create_task(client.call_tool("by_token", {}))
        await asyncio.sleep(0.05)
        assert not again.done()
        await stage.consent(elicitation["url"])
        assert "alice" == text_of(await again)


async def test_a_denial_between_two_calls_ends_the_next_call_and_the_one_after_it_asks_anew(stage: Stage) -> None:
    async def unused(_: str) -> None: ...

    async with stage.client(await stage.serve(), unused, mode="legacy") as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("by_token", {})
        await stage.consent(refused.value.error.data["elicitations"][0]["url"], deny=True)
        assert "providerDenied" in text_of(await client.call_tool("by_token", {}))
        with pytest.raises(MCPError):
            await client.call_tool("by_token", {})


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_host_that_shows_no_links_gets_a_sentence_with_the_link(stage: Stage, kind: Kind, mode: str) -> None:
    async with stage.client(await stage.serve(kind), mode=mode) as client:
        result = await client.call_tool("by_token", {})
        assert result.is_error
        link = next(word for word in text_of(result).split() if word.startswith("http"))
        again = asyncio.create_task(client.call_tool("by_token", {}))
        await asyncio.sleep(0.05)
        assert not again.done()
        await stage.consent(link)
        assert "alice" == text_of(await again)


async def test_a_user_who_is_late_gets_the_same_link_again(stage: Stage) -> None:
    async with (
        stage.client(await stage.serve(oauth=stage.oauth(patience_seconds=1))) as client,
        time_passes(stage.harness.clock),
    ):
        said = [text_of(await client.call_tool("by_token", {})) for _ in range(3)]
    assert 1 == len(set(said))
    assert f"{stage.harness.origin}/connect/" in said[0]
    assert 1 == len(stage.sessions)


async def test_the_links_of_many_users_are_forgotten_in_their_order(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.mcp.server.MOST_SHOWN", 1)
    url = await stage.serve()
    async with stage.client(url) as client, stage.client(url, name="bob") as other:
        for each in (client, other, client):
            async with asyncio.timeout(30):  # the last one does not wait
                assert (await each.call_tool("by_token", {})).is_error


async def test_a_client_of_2025_gets_a_sentence_from_fastmcp(stage: Stage) -> None:
    """FastMCP passes on no error of a tool."""

    async def unused(_: str) -> None: ...

    async with stage.client(await stage.serve("fastmcp"), unused, mode="legacy") as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    assert f"{stage.harness.origin}/" in text_of(result)


# --- who asks


@pytest.mark.case("130")
async def test_a_caller_without_a_user_gets_nothing(stage: Stage, kind: Kind) -> None:
    async with stage.client(await stage.serve(kind), declines, token="of") as client:
        for tool in ("by_token", "by_client", "declared"):
            result = await client.call_tool(tool, {})
            assert result.is_error
            assert "no user" in text_of(result)
    assert [] == stage.sessions


@pytest.mark.case("130")
async def test_a_server_without_sign_in_gets_nothing(stage: Stage) -> None:
    server = MCPServer("open")
    _add_tools(server, Context, stage.oauth(), "", [])
    async with Client(server) as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    assert [] == stage.sessions


@pytest.mark.case("130")
@pytest.mark.parametrize(
    ("subject", "claims", "named", "found"),
    [
        ("U1", OF_LOGIN, {}, "corp:user:U1"),
        (None, {"sub": "U1", **OF_LOGIN}, {}, "corp:user:U1"),
        ("U1", {"sub": "U2", **OF_LOGIN}, {}, "corp:user:U1"),
        ("U1", {}, {}, None),
        ("U1", {"iss": None}, {}, None),
        ("U1", {"iss": ELSEWHERE}, {}, None),
        ("U1", {"iss": ELSEWHERE}, {"subject": "okta:user:{sub}", "issuer": ELSEWHERE}, "okta:user:U1"),
        ("U1", OF_LOGIN, {"subject": "okta:user:{sub}", "issuer": ELSEWHERE}, None),
        ("U1", {}, {"subject": "okta:user:{sub}", "issuer": ELSEWHERE}, None),
        ("U1", {"iss": ELSEWHERE}, {"subject": "okta:user:{sub}"}, "okta:user:U1"),
        ("U1", {"tid": "T1", "oid": "O1"}, {"subject": "ms:{tid}:{oid}"}, "ms:T1:O1"),
        ("U1", {"tid": "T1"}, {"subject": "ms:{tid}:{oid}"}, None),
        ("U1", {"tid": "T1:O2", "oid": "O1"}, {"subject": "ms:{tid}:{oid}"}, None),
        ("U1", {"oid": 7}, {"subject": "ms:{oid}"}, None),
        ("", OF_LOGIN, {}, None),
        (None, OF_LOGIN, {}, None),
    ],
)
async def test_the_subject_of_a_token(
    stage: Stage, subject: str | None, claims: dict[str, Any], named: dict[str, str], found: str | None
) -> None:
    claims = {**claims, **({"iss": stage.issuer} if claims.get("iss") == OF_LOGIN["iss"] else {})}

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken:
            return AccessToken(
                token=token, client_id="host", scopes=[], resource=RESOURCE, subject=subject, claims=claims
            )

    async with stage.client(await stage.serve(verifier=Verifier(), oauth=stage.oauth(**named))) as client:
        result = await client.call_tool("by_token", {})
    assert result.is_error
    asked = [each.subject for each in await stage.harness.broker.sessions.list()]
    assert ([] if found is None else [found]) == asked


@pytest.mark.case("131")
async def test_the_person_who_opens_the_page_is_the_one_who_asked(stage: Stage) -> None:
    """Mallory is the caller, and sends the link to Alice."""

    async def sends_it(url: str) -> None:
        victim = stage.harness.browser()
        page = await victim.follow(await login_callback(stage.harness, stage.asked(url), victim, "alice"))
        assert 403 == page.status

    url = await stage.serve(oauth=stage.oauth(patience_seconds=0.1))
    async with stage.client(url, sends_it, name="mallory") as client, time_passes(stage.harness.clock):
        with pytest.raises(Exception, match="round"):
            await client.call_tool("by_token", {})
    assert 0 == stage.harness.idp.count("authorize") + stage.harness.idp.count("token")


# --- the state of a waiting call


async def asked_state(client: Client, tool: str = "by_client", arguments: dict[str, Any] | None = None) -> str:
    """Return the state of a call that waits for consent."""
    result = await client.session.call_tool(tool, arguments or {}, allow_input_required=True)
    assert isinstance(result, InputRequiredResult)
    assert result.request_state is not None
    return result.request_state


def link_of(result: InputRequiredResult) -> str:
    assert result.input_requests is not None
    params = result.input_requests[INPUT].params
    assert isinstance(params, ElicitRequestURLParams)
    return params.url


async def repeat(client: Client, state: str, tool: str = "by_client", arguments: dict[str, Any] | None = None) -> Any:
    said: Any = {INPUT: ElicitResult(action="decline")}
    return await client.session.call_tool(
        tool, arguments or {}, input_responses=said, request_state=state, allow_input_required=True
    )


@pytest.mark.case("132")
@pytest.mark.parametrize(
    ("name", "tool", "arguments"),
    [("bob", "by_client", {}), ("alice", "by_token", {}), ("alice", "by_client", {"twice": True})],
    ids=["another user", "another tool", "other arguments"],
)
async def test_state_in_another_call_is_refused_and_ends_nothing(
    stage: Stage, kind: Kind, name: str, tool: str, arguments: dict[str, Any]
) -> None:
    url = await stage.serve(kind)
    async with stage.client(url, declines) as client, stage.client(url, declines, name=name) as other:
        state = await asked_state(client)
        with pytest.raises(MCPError, match="requestState"):
            await repeat(other, state, tool, arguments)
    assert "pending" == await stage.status(0)


@pytest.mark.case("132")
async def test_state_of_another_user_gets_nothing_also_where_the_server_binds_it_to_no_user(stage: Stage) -> None:
    security = RequestStateSecurity(keys=KEYS, bind_principal=None)
    url = await stage.serve(request_state_security=security)
    async with stage.client(url, declines) as client, stage.client(url, declines, name="bob") as other:
        state = await asked_state(client)
        theirs = await repeat(other, state)
        assert isinstance(theirs, InputRequiredResult)
        assert 2 == len(stage.sessions)
    assert "pending" == await stage.status(0)


@pytest.mark.case("133")
@pytest.mark.parametrize("state", ["oauthbroker:as-AAAAAAAAAAAAAAAAAAAAAA", "v1.AAAA", ""])
async def test_state_that_the_server_did_not_seal_is_refused(stage: Stage, kind: Kind, state: str) -> None:
    async with stage.client(await stage.serve(kind), declines) as client:
        with pytest.raises(MCPError, match="requestState"):
            await repeat(client, state)
    assert [] == stage.sessions


@pytest.mark.case("133")
async def test_state_is_refused_after_its_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    security = RequestStateSecurity(keys=KEYS, ttl=60)
    async with stage.client(await stage.serve(request_state_security=security), declines) as client:
        state = await asked_state(client)
        later = time.time() + 61
        monkeypatch.setattr(time, "time", lambda: later)
        with pytest.raises(MCPError, match="requestState"):
            await repeat(client, state)


async def test_another_process_with_the_same_keys_goes_on_in_any_order_of_the_keys(stage: Stage) -> None:
    first, second = (RequestStateSecurity(keys=keys) for keys in (KEYS, KEYS[::-1]))
    urls = [await stage.serve(request_state_security=each) for each in (first, second)]
    async with stage.client(urls[0], declines) as client, stage.client(urls[1], declines) as other:
        for one, two in ((client, other), (other, client)):
            assert "declined" in text_of(await repeat(two, await asked_state(one)))


# --- the page


async def test_the_server_of_the_page_reads_the_callers_mail(stage: Stage) -> None:
    page = dict[str, Any]()
    code = next(block for block in code_blocks("docs/mcp.md") if "McpOAuth(" in block)
    code = code.replace("https://mail.example.com/api/inbox", stage.harness.idp.url("/api/me"))
    exec(compile(code, "docs/mcp.md", "exec", dont_inherit=True), page)  # noqa: S102
    url = AnyHttpUrl(RESOURCE)
    auth = AuthSettings(issuer_url=url, resource_server_url=url, validate_token_resource=True)
    server = page["mail_server"](stage.harness.broker, Signed(stage.issuer), auth, KEYS)
    port, _ = await stage.stack.enter_async_context(served(server.streamable_http_app(json_response=True)))

    async def consents(url: str) -> None:
        await stage.consent(url)

    async with stage.client(f"http://127.0.0.1:{port}/mcp", consents) as client:
        result = await client.call_tool("inbox", {})
    assert '"login":"alice"' in text_of(result).replace(" ", "")
    assert 1 == len(stage.links)


async def test_a_call_goes_on_in_a_process_that_was_started_meanwhile(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    security = RequestStateSecurity(keys=KEYS)

    @asynccontextmanager
    async def process() -> AsyncIterator[tuple[Stage, Client]]:
        async with world(identity_provider, corp, test_clock, store=file_store(tmp_path, test_clock)) as stage:
            url = await stage.serve(request_state_security=security)
            async with stage.client(url, declines) as client:
                yield stage, client

    async with process() as (_, client):
        asked = await client.session.call_tool("by_client", {}, allow_input_required=True)
    assert isinstance(asked, InputRequiredResult)
    async with process() as (stage, client):
        await stage.consent(link_of(asked))
        said: Any = {INPUT: ElicitResult(action="accept")}
        result = await client.session.call_tool(
            "by_client", {}, input_responses=said, request_state=asked.request_state
        )
        assert "alice" == text_of(result)


async def test_an_app_whose_tokens_are_only_injected_is_declared_like_any_other(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock
) -> None:
    _, _, address = identity_provider.base_url.partition("://")
    host, _, port = address.partition(":")
    api = ApiAccess((ApiHost(host, int(port), "http"),), ("GET",), injected=True)
    async with world(identity_provider, corp, test_clock, api=api) as stage:

        async def consents(url: str) -> None:
            await stage.consent(url)

        async with stage.client(await stage.serve(), consents) as client:
            assert "alice" == text_of(await client.call_tool("declared", {}))
            assert (await client.call_tool("by_token", {})).is_error


# --- turn tokens


@asynccontextmanager
async def turn_tokens(stage: Stage) -> AsyncIterator[tuple[str, Any]]:
    """A server whose callers hold turn tokens, and a turn of Alice's."""
    verifier = TurnTokenVerifier(stage.harness.broker, AUDIENCE, RESOURCE)
    begun = await stage.harness.broker.turns.begin(corp_turn(), tools={AUDIENCE: None, "Tool/other": None})
    yield await stage.serve(verifier=verifier), begun


async def test_a_turn_token_acts_for_the_turns_user_within_the_tools_declaration(stage: Stage) -> None:
    async def consents(url: str) -> None:
        await stage.consent(url)

    async with turn_tokens(stage) as (url, begun):
        token = begun.tool_tokens[AUDIENCE].reveal()
        async with stage.client(url, consents, token=token) as client:
            assert "alice" == text_of(await client.call_tool("by_client", {}))
            assert (await client.call_tool("beyond", {})).is_error
        event = await stage.harness.event()
        assert event is not None
        assert "auth.granted" == event["type"]


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_session_goes_on_with_the_token_of_the_next_turn(stage: Stage, kind: Kind, mode: str) -> None:
    await stage.connected()
    broker = stage.harness.broker
    url = await stage.serve(kind, verifier=TurnTokenVerifier(broker, AUDIENCE, RESOURCE))
    turns = [await broker.turns.begin(corp_turn(), tools={AUDIENCE: None}) for _ in range(2)]
    tokens = [f"Bearer {each.tool_tokens[AUDIENCE].reveal()}" for each in turns]
    async with (
        httpx2.AsyncClient(headers={"Authorization": tokens[0]}, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        assert "alice" == text_of(await client.call_tool("by_client", {}))
        http.headers["Authorization"] = tokens[1]
        await broker.turns.end(turns[0].turn_id)
        assert "alice" == text_of(await client.call_tool("by_client", {}))


async def test_a_narrowed_turn_token_gets_less(stage: Stage) -> None:
    await stage.connected()
    async with turn_tokens(stage) as (url, begun):
        token = narrow(begun.tool_tokens[AUDIENCE], apps={"OAuthApp/other": None}).reveal()
        async with stage.client(url, token=token) as client:
            result = await client.call_tool("by_client", {})
    assert result.is_error


async def test_a_tools_word_that_the_user_declined_does_not_end_the_link(stage: Stage) -> None:
    async with turn_tokens(stage) as (url, begun):
        token = begun.tool_tokens[AUDIENCE].reveal()
        async with stage.client(url, declines, token=token) as client:
            assert "declined" in text_of(await client.call_tool("by_client", {}))
    assert "pending" == await stage.status(0)


@pytest.mark.case("134")
@pytest.mark.parametrize("of", ["the turn itself", "another tool", "another tool, narrowed", "an ended turn", "forged"])
async def test_a_turn_token_for_another_audience_is_refused(stage: Stage, of: str) -> None:
    async with turn_tokens(stage) as (_, begun):
        other = begun.tool_tokens["Tool/other"]
        tokens = {
            "the turn itself": begun.token,
            "another tool": other,
            "another tool, narrowed": narrow(other, tool=AUDIENCE),
            "an ended turn": begun.tool_tokens[AUDIENCE],
            "forged": Secret(begun.tool_tokens[AUDIENCE].reveal()[:-8] + "A" * 8),
        }
        verifier = TurnTokenVerifier(stage.harness.broker, AUDIENCE, RESOURCE)
        assert await verifier.verify_token(begun.tool_tokens[AUDIENCE].reveal()) is not None
        if of == "an ended turn":
            await stage.harness.broker.turns.end(begun.turn_id)
        assert await verifier.verify_token(tokens[of].reveal()) is None


# --- wrong use


def test_a_tool_under_the_decorator_is_async_and_takes_the_context() -> None:
    async def without(text: str) -> str:
        return text

    def blocking(ctx: Context) -> str:
        return str(ctx)

    asks: Any = McpOAuth(None, subject="corp:user:{sub}").asks()  # type: ignore[arg-type]
    for tool in (without, blocking):
        with pytest.raises(TypeError, match="one parameter of the type Context"):
            asks(tool)


async def test_a_tool_that_is_not_decorated_gets_nothing() -> None:
    oauth, ctx = McpOAuth(None, subject="corp:user:{sub}"), Context[Any, Any]()  # type: ignore[arg-type]
    for given in (ctx, None):
        with pytest.raises(RuntimeError, match=r"McpOAuth\.asks"):
            await oauth.token(given, "OAuthApp/mail")
        with pytest.raises(RuntimeError, match=r"McpOAuth\.asks"):
            oauth.client(given, "OAuthApp/mail")


@pytest.mark.parametrize("template", ["corp:user", "corp:user:{sub.id}", "corp:user:{*sub}", "{"])
def test_a_template_without_claims_that_it_can_fill_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="template"):
        McpOAuth(None, subject=template)  # type: ignore[arg-type]


def test_an_issuer_without_a_template_is_refused() -> None:
    with pytest.raises(ValueError, match="template"):
        McpOAuth(None, issuer=ELSEWHERE)  # type: ignore[arg-type]


async def test_without_a_login_the_template_has_to_be_named(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [], clock=test_clock) as harness:
        with pytest.raises(ValueError, match="no login"):
            McpOAuth(harness.broker)
