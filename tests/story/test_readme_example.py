"""The first example of the README, as printed, with each `ctx.oauth` that there is."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import AuthorizationRequiredError
from oauthbroker.client import OAuth, SyncOAuth
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.protocol.network.api_transport import ApiTransport
from oauthbroker.testing import IdentityProvider, TestClock, connect_through
from tests.kit.docs import code_blocks
from tests.kit.running_broker import BASE, global_app, running, turn
from tests.story.api.clients import listening
from tests.story.keys_kit import GOOD, key_api, key_app, type_key
from tests.unit.protocol.kit import RawServer, says

EXAMPLE = code_blocks("README.md")[0]
OF_SLACK = '"OAuthApp/slack-bot", scopes=["chat:write"]'
TOOLS = {"Tool/slack": (ToolAuth("slack-bot", ("chat:write",), injected=True), ToolAuth("meter", None, injected=True))}


def tool_in(code: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), space)  # noqa: S102 - the page's code is under test
    return space["post_message"]


def without_await(code: str) -> str:
    return re.sub(r"\b(async|await) ", "", code)


@pytest.fixture
async def slack(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RawServer]:
    """The server that answers for slack.com."""
    async with RawServer(says(200, b"hello")) as server:
        send = ApiTransport.send

        async def sent_there(transport: ApiTransport, request: Any, limits: Any) -> Any:
            if request.host == "slack.com":
                request = replace(request, scheme="http", host="127.0.0.1", port=server.port)
            return await send(transport, request, limits)

        monkeypatch.setattr(ApiTransport, "send", sent_there)
        yield server


@pytest.mark.parametrize("kind", ["OAuthApp", "CredentialApp"])
async def test_the_example_runs_unchanged_embedded_and_over_http_and_without_await(
    identity_provider: IdentityProvider, test_clock: TestClock, slack: RawServer, kind: str
) -> None:
    """Each time the model gets the link, the user answers, and the same call posts the message."""
    async with AsyncExitStack() as stack:
        keys = await stack.enter_async_context(key_api())
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        access = ApiAccess((keys.host, ApiHost("slack.com")), ("GET", "POST"))
        apps = [
            global_app(identity_provider, "slack-bot", scopes=("chat:write",), api=access),
            replace(key_app(keys), api=replace(access, injected=True)),
        ]
        allowed = (f"127.0.0.1:{listener.getsockname()[1]}",)
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=allowed)
        harness = await stack.enter_async_context(
            running(identity_provider, apps, clock=test_clock, tools=TOOLS, settings=settings)
        )
        url = await stack.enter_async_context(listening(harness.broker.asgi.api, listener))
        text = EXAMPLE if kind == "OAuthApp" else EXAMPLE.replace(OF_SLACK, '"CredentialApp/meter"')
        tool, plain = tool_in(text), tool_in(without_await(text))

        token = (await harness.broker.turns.begin(turn(), tools=dict.fromkeys(TOOLS))).tool_tokens["Tool/slack"]
        outside = await stack.enter_async_context(OAuth(url, token))
        outside_sync = SyncOAuth(url, token)
        stack.push_async_callback(asyncio.to_thread, outside_sync.close)
        inside = harness.broker.oauth(turn(), "Tool/slack")

        async def posted() -> list[str]:
            """Call it in each of the four ways."""
            said = [await tool(oauth, "hello") for oauth in (inside, outside)]
            return said + [await asyncio.to_thread(plain, oauth, "hello") for oauth in (inside.sync, outside_sync)]

        asked = await posted()
        [link] = {said.split()[-1] for said in asked}
        assert [] == slack.requests
        if kind == "OAuthApp":
            await connect_through(harness.browser(), harness.idp, link, "alice")
        else:
            with pytest.raises(AuthorizationRequiredError) as needed:
                await inside.client("CredentialApp/meter").post("https://slack.com/")
            await type_key(harness, needed.value.result, GOOD)
        assert ["hello"] * 4 == await posted()
        assert {b"POST /api/chat.postMessage HTTP/1.1"} == {head.partition(b"\r\n")[0] for head in slack.requests}
