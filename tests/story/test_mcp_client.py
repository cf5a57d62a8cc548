"""A client of the `mcp` SDK on our transport: the token, the user's consent, and larger scopes come from the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client import InputRequiredRoundsExceededError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp_types import ElicitResult
from pydantic import AnyHttpUrl

from oauthbroker import AuthorizationRequired, Turn
from oauthbroker.audit import AuthorizationRequested
from oauthbroker.mcp.client_transport import BROKEN, URL_ELICITATION_REQUIRED, McpTransport
from oauthbroker.mcp.rpc_messages import FAILED
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.plugins import Allowance
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn, user_app
from tests.story.mcp_kit import Verifier, link_in, served, text_of, time_passes


def whose() -> str:
    """Return the user of the request's token."""
    token = get_access_token()
    assert token is not None
    return str(token.subject)


class Stage:
    """A broker, an MCP server that demands a token, and hosts with clients."""

    def __init__(self, harness: Harness, url: str, stop: Callable[[], Awaitable[None]]) -> None:
        self.harness, self.url, self.stop = harness, url, stop
        self.links: list[str] = []

    async def show(self, result: AuthorizationRequired) -> None:
        """A host that shows links outside of MCP; its user consents at once."""
        await self.harness.connect(result)

    async def consent(self, url: str, *, deny: bool = False) -> None:
        """Open a link in a new browser, and go all the way."""
        await connect_through(self.harness.browser(), self.harness.idp, url, deny=deny)

    async def revoke(self) -> None:
        assert await self.harness.broker.revoke("OAuthApp/mail", subject=ALICE)

    @asynccontextmanager
    async def connected_client(
        self, elicited: Callable[[str], Awaitable[Any]] | None, mode: str = "2026-07-28", **more: Any
    ) -> AsyncIterator[Client]:
        """Open a session of a user who is connected."""
        await self.harness.connected(scopes=["read"])
        async with self.client(self.transport(**more), elicited, mode) as client:
            yield client

    def transport(self, of: Turn | None = None, **more: Any) -> McpTransport:
        return McpTransport(self.harness.broker, of or turn(), "OAuthApp/mail", **{"scopes": ["read"], **more})

    @asynccontextmanager
    async def client(
        self, transport: McpTransport, elicited: Callable[[str], Awaitable[Any]] | None = None, mode: Any = "auto"
    ) -> AsyncIterator[Client]:
        """Open a session. `elicited` is what the host does with a link: "decline" declines."""

        async def on_elicitation(_: Any, params: Any) -> ElicitResult:
            assert "url" == params.mode
            self.links.append(params.url)
            assert elicited is not None
            return ElicitResult(action=await elicited(params.url) or "accept")

        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, trust_env=False))
            streams = streamable_http_client(self.url, http_client=http)
            callback: Any = None if elicited is None else on_elicitation
            yield await stack.enter_async_context(Client(streams, mode=mode, elicitation_callback=callback))


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    resource = AnyHttpUrl("http://127.0.0.1/mcp")
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(identity_provider.base_url),
        resource_server_url=resource,
        validate_token_resource=False,
        required_scopes=["read"],
    )
    server = MCPServer("whose", token_verifier=Verifier(identity_provider), auth=auth)
    server.tool()(whose)
    async with served(server.streamable_http_app()) as (port, stop):
        access = ApiAccess((ApiHost("127.0.0.1", port, "http"),), ("GET", "POST", "DELETE"))
        apps = [user_app(identity_provider, api=access)]
        async with running(identity_provider, apps, clock=test_clock, background=False) as harness:
            yield Stage(harness, f"http://127.0.0.1:{port}/mcp", stop)


async def test_a_client_of_the_sdk_calls_a_tool_with_the_users_token(stage: Stage) -> None:
    await stage.harness.connected()
    async with stage.client(stage.transport()) as client:
        assert "alice" == text_of(await client.call_tool("whose", {}))


async def test_two_users_at_once_each_have_their_own_token(stage: Stage) -> None:
    await stage.harness.connected()
    await stage.harness.connected(account="bob", of=turn(BOB))
    async with (
        stage.client(stage.transport()) as of_alice,
        stage.client(stage.transport(turn(BOB))) as of_bob,
    ):
        said = await asyncio.gather(*(each.call_tool("whose", {}) for each in [of_alice, of_bob] * 10))
    assert ["alice", "bob"] * 10 == [text_of(each) for each in said]


async def test_the_first_request_shows_the_link_and_waits_for_the_user(stage: Stage) -> None:
    async with stage.client(stage.transport(show=stage.show)) as client:
        assert "alice" == text_of(await client.call_tool("whose", {}))


@pytest.mark.case("139")
async def test_an_answer_of_too_many_values_ends_its_request_and_not_the_session(stage: Stage) -> None:
    await stage.harness.connected()
    transport = stage.transport()
    async with stage.client(transport) as client:
        transport._allowed = Allowance(most_values=3)
        ended = await client.call_tool("whose", {})
        assert (True, "The MCP request failed: the answers are too large.") == (ended.is_error, text_of(ended))
        transport._allowed = None
        assert "alice" == text_of(await client.call_tool("whose", {}))


async def test_a_user_who_says_no_to_a_session_is_not_asked_again_by_its_fallback(stage: Stage) -> None:
    """The SDK probes the server, takes our refusal for an older server, and begins anew. The next session asks."""
    shown = list[str]()

    async def show(result: AuthorizationRequired) -> None:
        shown.append(result.authorization_url)
        await stage.consent(result.authorization_url, deny=len(shown) == 1)

    transport = stage.transport(show=show)
    with pytest.raises(BaseExceptionGroup) as group:
        async with stage.client(transport):
            pass
    assert "Access was not granted" in str(leaf(group.value))
    assert (1, True) == (len(shown), "Access was not granted" in transport.failure)
    async with stage.client(stage.transport(show=show)) as client:
        assert "alice" == text_of(await client.call_tool("whose", {}))
    assert 2 == len(set(shown)) == len(shown)


async def test_a_no_to_the_probe_ends_one_handshake_alone(stage: Stage) -> None:
    shown = list[str]()

    async def show(result: AuthorizationRequired) -> None:
        shown.append(result.authorization_url)
        await stage.consent(result.authorization_url, deny=True)

    transport = stage.transport(show=show)
    for method, links in (("server/discover", 1), ("initialize", 1), ("initialize", 2), ("initialize", 3)):
        request = httpx2.Request("POST", stage.url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})
        answer = await transport.handle_async_request(request)
        await answer.aread()
        assert (links, True) == (len(shown), "Access was not granted" in answer.text), method


def leaf(error: BaseException) -> BaseException:
    """Return the error in the SDK's groups."""
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


async def opens(_: str) -> None:
    """A host that knows URL elicitation."""


async def test_without_a_way_to_show_it_the_session_fails_with_the_link_and_the_next_one_works(stage: Stage) -> None:
    with pytest.raises(BaseExceptionGroup) as group:
        async with stage.client(stage.transport(), opens):
            pass
    refused = leaf(group.value)
    assert isinstance(refused, MCPError)
    assert URL_ELICITATION_REQUIRED == refused.error.code
    (elicitation,) = refused.error.data["elicitations"]
    assert elicitation["url"] == link_in(refused.error.message)
    result = await stage.harness.ask_link(scopes=["read"])
    assert result.auth_session_id == elicitation["elicitationId"]
    await stage.harness.connect(replace(result, authorization_url=elicitation["url"]))
    async with stage.client(stage.transport()) as client:
        assert "alice" == text_of(await client.call_tool("whose", {}))


async def test_a_host_that_declares_no_url_elicitation_gets_the_link_of_its_first_request_in_a_sentence(
    stage: Stage,
) -> None:
    with pytest.raises(BaseExceptionGroup) as group:
        async with stage.client(stage.transport()):
            pass
    refused = leaf(group.value)
    assert isinstance(refused, MCPError)
    assert FAILED == refused.error.code
    await stage.consent(link_in(refused.error.message))
    async with stage.client(stage.transport()) as client:
        assert "alice" == text_of(await client.call_tool("whose", {}))


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_host_that_declares_no_url_elicitation_gets_the_link_as_a_text_for_the_model(
    stage: Stage, mode: str
) -> None:
    async with stage.connected_client(None, mode) as client:
        await stage.revoke()
        asked = await client.call_tool("whose", {})
        assert asked.is_error
        await stage.consent(link_in(text_of(asked)))
        assert "alice" == text_of(await client.call_tool("whose", {}))


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_host_that_declares_no_url_elicitation_shows_the_link_in_its_own_way(stage: Stage, mode: str) -> None:
    async with stage.connected_client(None, mode, show=stage.show) as client:
        await stage.revoke()
        assert "alice" == text_of(await client.call_tool("whose", {}))


@pytest.mark.parametrize("slow", [False, True], ids=["at once", "after some rounds"])
async def test_a_tool_call_asks_the_user_and_goes_on_by_itself(stage: Stage, slow: bool) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def consents(url: str) -> None:
        async def later() -> None:
            await asyncio.sleep(0.15 if slow else 0)  # three times the patience, since 20 s pass in one
            await stage.consent(url)

        tasks.append(asyncio.create_task(later()))

    async with stage.connected_client(consents, patience_seconds=1) as client, time_passes(stage.harness.clock):
        await stage.revoke()
        assert "alice" == text_of(await client.call_tool("whose", {}))
        await asyncio.gather(*tasks)
    assert 1 == len(stage.links)


async def test_parallel_calls_ask_for_one_consent(stage: Stage) -> None:
    async def consents(url: str) -> None:
        if 1 == len(stage.links):
            await stage.consent(url)

    async with stage.connected_client(consents) as client:
        await stage.revoke()
        said = await asyncio.gather(*(client.call_tool("whose", {}) for _ in range(5)))
    assert ["alice"] * 5 == [text_of(each) for each in said]
    sessions = [each for each in stage.harness.audit.entries if isinstance(each, AuthorizationRequested)]
    assert 2 == len(sessions)  # the first connection, and this one


async def test_a_user_who_declines_ends_the_call_with_a_sentence_and_the_link(stage: Stage) -> None:
    async def declines(_: str) -> str:
        return "decline"

    async with stage.connected_client(declines) as client:
        await stage.revoke()
        result = await client.call_tool("whose", {})
        assert result.is_error
        assert "declined" in text_of(result)
        assert 400 <= (await stage.harness.browser().open(stage.links[0])).status


@pytest.mark.parametrize("shows", [False, True])
async def test_a_question_that_the_host_cancels_is_no_refusal_and_its_link_lives(stage: Stage, shows: bool) -> None:
    """A dialog that was closed, and a host that cancels each question because no user can see one. A host with a way of
    its own to show the link shows it so."""

    async def cancels(_: str) -> str:
        return "cancel"

    show = stage.show if shows else None
    async with (
        stage.connected_client(cancels, patience_seconds=1, show=show) as client,
        time_passes(stage.harness.clock),
    ):
        await stage.revoke()
        for _ in range(0 if shows else 2):
            result = await client.call_tool("whose", {})
            assert result.is_error
            assert link_in(text_of(result)) == stage.links[0]
        if not shows:
            await stage.consent(stage.links[0])
        assert "alice" == text_of(await client.call_tool("whose", {}))
    assert 2 == sum(isinstance(each, AuthorizationRequested) for each in stage.harness.audit.entries)


async def test_a_denial_at_the_provider_ends_the_call_with_a_sentence_and_does_not_ask_again(stage: Stage) -> None:
    async def denies(url: str) -> None:
        await stage.consent(url, deny=True)

    async with stage.connected_client(denies) as client:
        await stage.revoke()
        result = await client.call_tool("whose", {})
        assert result.is_error
        assert "providerDenied" in text_of(result)
    assert 1 == len(stage.links)


async def test_an_accepted_link_that_leads_to_no_consent_gets_nothing(stage: Stage) -> None:
    async def accepts(_: str) -> None: ...

    async with stage.connected_client(accepts, patience_seconds=0.5) as client:
        await stage.revoke()
        with pytest.raises(InputRequiredRoundsExceededError):
            async with time_passes(stage.harness.clock):
                await client.call_tool("whose", {})


async def test_a_client_of_the_older_revision_gets_the_link_in_an_error_and_waits_in_the_repeated_call(
    stage: Stage,
) -> None:
    async with stage.connected_client(opens, mode="legacy") as client:
        await stage.revoke()
        with pytest.raises(MCPError) as refused:
            await client.call_tool("whose", {})
        assert URL_ELICITATION_REQUIRED == refused.value.error.code
        (elicitation,) = refused.value.error.data["elicitations"]
        again = asyncio.create_task(client.call_tool("whose", {}))
        await asyncio.sleep(0.05)
        assert not again.done()
        await stage.consent(elicitation["url"])
        assert "alice" == text_of(await again)


async def test_a_broker_that_refuses_ends_the_call_with_its_sentence_and_the_session_lives(stage: Stage) -> None:
    async with stage.connected_client(None) as client:
        await stage.harness.broker.reload(replace(stage.harness.broker.bundle, apps={}))
        result = await client.call_tool("whose", {})
        assert result.is_error
        assert text_of(result)
        with pytest.raises(MCPError):
            await client.list_tools(cache_mode="bypass")


async def test_a_server_that_is_gone_ends_the_call_and_not_the_session(stage: Stage) -> None:
    async with stage.connected_client(None) as client:
        await stage.stop()
        for _ in range(2):
            result = await client.call_tool("whose", {})
            assert result.is_error
            assert "cannot be reached" in text_of(result)


class Broken(httpx2.InvalidURL):
    """An error of the HTTP client that is no TransportError."""


@pytest.mark.parametrize("error", [OSError, LookupError, Broken, ExceptionGroup], ids=lambda each: each.__name__)
async def test_a_host_that_cannot_show_the_link_fails_one_request_and_shows_it_in_the_next(
    stage: Stage, error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    said = "the link of alice"
    raised = [error(said, [OSError(said)]) if error is ExceptionGroup else error(said)]

    async def show(result: AuthorizationRequired) -> None:
        if raised:
            raise raised.pop()
        await stage.show(result)

    async with stage.connected_client(None, mode="legacy", show=show) as client:
        await stage.revoke()
        failed = await client.call_tool("whose", {})
        assert failed.is_error
        assert BROKEN == text_of(failed)
        assert "alice" == text_of(await client.call_tool("whose", {}))
    assert [f"an MCP request failed: {error.__name__}"] == [
        each.getMessage() for each in caplog.records if each.name == "oauthbroker.mcp"
    ]
    assert said not in caplog.text


async def test_a_cancelled_request_is_cancelled(stage: Stage) -> None:
    async def show(_: AuthorizationRequired) -> None:
        raise asyncio.CancelledError

    request = httpx2.Request("POST", stage.url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    with pytest.raises(asyncio.CancelledError):
        await stage.transport(show=show).handle_async_request(request)
