"""MCP's TypeScript SDK on the other side: its server with its authorization server, and its client as the gateway's
host."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from oauthbroker import AuthorizationRequired
from oauthbroker.mcp import McpTransport
from oauthbroker.testing import Browser, IdentityProvider, TestClock, connect_through, leave
from tests.kit import installed
from tests.kit.cli import MAIN, Desk, environment
from tests.kit.docs import ROOT
from tests.kit.running_broker import ALICE, Harness, file_store, running, turn
from tests.story.cli import conftest
from tests.story.cli.mcp_serve_kit import configure, listens
from tests.story.mcp_apps_kit import app_at
from tests.story.mcp_kit import link_in, served, text_of, upstream

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

desk, idp = conftest.desk, conftest.idp
HOME = ROOT / "tests" / "e2e" / "conformance"


@asynccontextmanager
async def node(script: str, *words: str, **more: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    lacks = {"Node (package nodejs)": installed.node(), "MCP's TypeScript SDK (make node)": HOME / "node_modules"}
    installed.demand([what for what, found in lacks.items() if not (found and Path(found).exists())])
    process = await asyncio.create_subprocess_exec(
        str(installed.node()), str(HOME / script), *words, stdin=PIPE, stdout=PIPE, env=environment(), **more
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # which ends a host and its gateway
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 0 if script == "sdk_server.mjs" else 30)
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = (await process.stdout.readline()).decode().strip()
    assert line, "ended"
    return line


# --- a server


async def consent(harness: Harness, result: AuthorizationRequired) -> None:
    browser = harness.browser()
    page = await leave(browser, result.authorization_url)
    while page.next_url is not None:
        page = await browser.follow(page.next_url)
    assert 200 == page.status


async def test_a_server_is_consented_to_stepped_up_to_forgetful_and_told_of_the_end(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    async with node("sdk_server.mjs") as process, httpx2.AsyncClient(trust_env=False) as http:
        url = await line_of(process)
        app = replace(app_at(url), scopes=("read", "write"))
        asked: list[set[str]] = []

        async def kept() -> dict[str, int]:
            found: dict[str, int] = (await http.get(url.replace("/mcp", "/kept"))).json()
            return found

        async with running(
            identity_provider, [app], clock=test_clock, store=file_store(tmp_path, test_clock), background=False
        ) as harness:

            async def show(result: AuthorizationRequired) -> None:
                session = await harness.broker.sessions.find(result.auth_session_id)
                assert session is not None
                asked.append(set(session.scopes))
                await consent(harness, result)

            async def call(tool: str) -> str:
                transport = McpTransport(harness.broker, turn(), "OAuthApp/tickets", show=show)
                async with (
                    httpx2.AsyncClient(transport=transport, trust_env=False) as below,
                    Client(streamable_http_client(url, http_client=below)) as client,
                ):
                    return text_of(await client.call_tool(tool, {}))

            assert "list: done" == await call("list")
            assert [{"read"}] == asked
            assert "close: done" == await call("close")
            assert [{"read"}, {"read", "write"}] == asked
            assert "close: done" == await call("close")
            assert 2 == len(asked)
            assert "done" == await harness.broker.grants.revoke("tickets", ALICE)
            assert 0 == (await kept())["tokens"], "the tokens of before the step-up ended too"
            await http.post(url.replace("/mcp", "/forget"))
            test_clock.advance(25 * 3600)
            assert "list: done" == await call("list")
            assert 1 == (await kept())["clients"]


# --- a host


@asynccontextmanager
async def host(desk: Desk, elicits: str, tool: str) -> AsyncIterator[asyncio.subprocess.Process]:
    words = [elicits, tool, sys.executable, "-c", MAIN, "mcp", "serve"]
    async with node("sdk_host.mjs", *words, cwd=desk.folder) as process:
        yield process


async def again(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdin is not None
    process.stdin.write(b"again\n")
    await process.stdin.drain()
    return json.loads(await line_of(process))  # type: ignore[no-any-return]


@pytest.mark.parametrize("elicits", ["elicits", "not"])
async def test_a_host_gets_the_link_in_its_way_and_goes_on_after_the_consent(
    desk: Desk, idp: IdentityProvider, elicits: str
) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        async with host(desk, elicits, "mail__whose") as process:
            asked = json.loads(await line_of(process))
            assert -32042 == asked["code"] if elicits == "elicits" else asked["isError"]
            link = link_in(asked["text"])
            assert link == asked.get("link", link)
            await connect_through(Browser(canaries=desk.canaries), idp, link, "alice")
            said = await again(process)
            while said == {"changed": True}:
                said = json.loads(await line_of(process))
            assert "alice" == said["text"]


async def test_a_host_is_told_of_the_tools_after_the_consent_though_it_calls_nothing(
    desk: Desk, idp: IdentityProvider
) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        async with host(desk, "not", "mail__oauthbroker_connect") as process:
            asked = json.loads(await line_of(process))
            await connect_through(Browser(canaries=desk.canaries), idp, link_in(asked["text"]), "alice")
            assert {"changed": True} == json.loads(await line_of(process))


async def test_a_host_that_makes_one_call_and_ends_leaves_a_link_that_lives(desk: Desk, idp: IdentityProvider) -> None:
    async with served(upstream(idp).streamable_http_app(json_response=True)) as (port, _):
        await asyncio.to_thread(configure, desk, idp, port)
        async with host(desk, "not", "mail__whose") as process:
            link = link_in(json.loads(await line_of(process))["text"])
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
        assert await asyncio.to_thread(listens, desk.port)
        page = await connect_through(Browser(canaries=desk.canaries), idp, link, "alice")
        assert 200 == page.status
        async with host(desk, "not", "mail__whose") as process:
            assert "alice" == json.loads(await line_of(process))["text"]
