"""docs/clients.md runs: its functions, in one namespace, against a broker whose API is served."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.client import AuthorizationRequired, OAuth, Runtime
from oauthbroker.events.port import Depth
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.settings import Settings
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.running_broker import BASE, Harness, global_app, running, turn
from tests.story.api.clients import listening

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
TEAM = "idp:team:T111"
TOOLS: dict[str, tuple[ToolAuth, ...]] = {"Tool/slack": (ToolAuth("slack-bot"),)}


@pytest.fixture
def page() -> dict[str, Any]:
    """The page's functions. `call_slack` rejects the first token, and takes any other one."""
    refused: set[str] = set()

    async def call_slack(token: str, said: str) -> str:
        if not refused:
            refused.add(token)
        return "token_expired" if token in refused else "ok"

    space: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), space)  # noqa: S102 - the page's code is under test
    space["call_slack"] = call_slack
    return space


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[tuple[Harness, str]]:
    app = global_app(identity_provider, "slack-bot", scopes=("chat:write", "channels:read"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=(host,))
        async with (
            running(identity_provider, [app], clock=test_clock, tools=TOOLS, settings=settings) as harness,
            listening(harness.broker.asgi.api, listener) as url,
        ):
            yield harness, url


async def test_the_runtime_and_the_tool_of_the_page_live_the_whole_story(
    harness: tuple[Harness, str], page: dict[str, Any], canaries: Canaries
) -> None:
    broker, (_, key) = harness[0].broker, await harness[0].broker.api_keys.create("runtime", ["runtime"])
    canaries.add(key, "API key")
    seen: list[Any] = []

    async def run_tool(env: dict[str, str]) -> None:
        assert {"OAUTHBROKER_URL", "OAUTHBROKER_TURN_TOKEN"} == env.keys()
        async with OAuth.from_env(env=env) as oauth:
            seen.append(await page["post"](oauth, "hello"))
            assert await page["with_less"](oauth)

    async with Runtime(harness[1], key) as runtime:
        block = await page["run_turn"](runtime, turn(), run_tool)
        [asked] = seen
        assert isinstance(asked, AuthorizationRequired)
        assert asked.authorization_url == block["items"][0]["authorizationUrl"]
        await harness[0].connect(asked)
        assert "too late" == await page["say_no"](runtime, asked.auth_session_id)
        assert "requestInvalid" == await page["say_no"](runtime, "not a session")

        async def work(of: Any, event: Any) -> None:
            assert (turn(), "auth.granted") == (of, event.type)
            assert await page["run_turn"](runtime, of, run_tool) is None
            raise RuntimeError("not today")

        with pytest.raises(RuntimeError, match="not today"):
            await asyncio.wait_for(page["serve_agent"](runtime, "planner", work), 60)
    assert "Slack answered ok" == seen[1], "with a newer token, since Slack had refused the first"
    harness[0].clock.advance(60)
    again = await broker.events.lease("planner")
    assert again is not None
    assert 2 == again.attempt


async def test_only_a_grant_starts_a_turn_and_every_event_is_settled(
    harness: tuple[Harness, str], page: dict[str, Any], canaries: Canaries
) -> None:
    """A user who was disconnected, or has declined, is not asked again for it."""
    _, key = await harness[0].broker.api_keys.create("runtime", ["runtime"])
    canaries.add(key, "API key")
    worked: list[str] = []
    await harness[0].connect(await harness[0].ask_link("slack-bot"))
    assert await harness[0].broker.revoke("slack-bot", subject=TEAM)
    await harness[0].connect(await harness[0].ask_link("slack-bot"), deny=True)

    async def work(of: Any, event: Any) -> None:
        worked.append(event.type)

    async with Runtime(harness[1], key) as runtime:
        await _until_waiting(harness[0], 3)
        serving = asyncio.create_task(page["serve_agent"](runtime, "planner", work))
        await _until_waiting(harness[0], 0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert ["auth.granted"] == worked


async def test_a_tool_runs_in_a_test_as_the_page_says(harness: tuple[Harness, str], page: dict[str, Any]) -> None:
    seen: list[Any] = []

    async def run_tool(env: dict[str, str]) -> None:
        async with OAuth.from_env(env=env) as oauth:
            seen.append(await page["post"](oauth, "hello"))

    await page["test_run"](harness[0].broker, turn(), run_tool)
    assert isinstance(seen[0], AuthorizationRequired)


async def _until_waiting(harness: Harness, count: int) -> None:
    async with asyncio.timeout(60):
        while Depth.of(await harness.parts.queues.depths()).waiting != count:
            await asyncio.sleep(0.01)


async def test_an_operator_and_a_person_see_what_the_page_says(
    harness: tuple[Harness, str], page: dict[str, Any], canaries: Canaries
) -> None:
    _, key = await harness[0].broker.api_keys.create("both", ["runtime", "operator"])
    canaries.add(key, "API key")
    await harness[0].connect(await harness[0].ask_link("slack-bot"))
    async with Runtime(harness[1], key) as both:
        assert [TEAM] == await page["whose"](both, "slack-bot")
        assert (await page["my_page"](both, "idp:user:T111:U234567")).startswith(f"{BASE}/connections/")
