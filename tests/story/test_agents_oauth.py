"""Tokens in agent processes: a request for consent ends the turn, the grant starts the next one by itself, and the token
is in no transcript."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.plugins import PluginResource, PluginResources
from oauthbroker.testing import IdentityProvider
from oauthbroker.tools.bundle.spec import AgentSpec, ModelSpec, SwarmSpec, ToolResourceSpec
from oauthbroker.tools.orchestration.instances import Instances
from oauthbroker.tools.orchestration.orchestrator import Orchestrator
from oauthbroker.tools.orchestration.plan import plans_from
from oauthbroker.tools.types.audit_types import ToolCalled
from tests.kit.agent_bundle import USER, plan, written
from tests.kit.running_broker import at, public, running, turn, user_app
from tests.story.agent_world import AgentWorld
from tests.story.api.clients import listening

MAIL = """\
async def read(ctx, args):
    result = await ctx.oauth.get_access_token("OAuthApp/mail", ["read"])
    return {"token": result.access_token.reveal()} if result.status == "ready" else result


handlers = {"read": read}
"""


def resources(folder: Path) -> PluginResources:
    folder.joinpath("mail.py").write_text(MAIL)
    specs = {
        ("Swarm", "default"): SwarmSpec.model_validate({"entryAgent": "Agent/planner", "agents": ["Agent/planner"]}),
        ("Agent", "planner"): AgentSpec.model_validate({"modelRef": "Model/told", "tools": ["Tool/mail"]}),
        ("Model", "told"): ModelSpec.model_validate({"provider": "python", "name": "./model.py"}),
        ("Tool", "mail"): ToolResourceSpec.model_validate({"entry": "./mail.py", "exports": [{"name": "read"}]}),
    }
    return PluginResources(tuple(PluginResource(kind, name, spec) for (kind, name), spec in specs.items()), folder)


@pytest.mark.rule("turns.ours-12", "turns.ours-25")
async def test_consent_ends_a_turn_and_the_grant_starts_the_next_one(
    tmp_path: Path, identity_provider: IdentityProvider
):
    tools = dict.fromkeys(("Tool/mail", "Tool/mail:read"), (ToolAuth("mail", ("read",)),))
    plugins = {"tools": resources(written(tmp_path / "config"))}
    clock: Any = SystemClock()  # processes keep the time of the machine
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = at(identity_provider, base, user_app(identity_provider))
        more: dict[str, Any] = {"settings": public(base), "clock": clock, "tools": tools, "plugins": plugins}
        async with (
            running(identity_provider, [app], **more) as harness,
            listening(harness.broker.asgi.app, listener) as address,
        ):
            plans = plans_from(harness.broker)
            orchestrator = Orchestrator(harness.broker, plans, tmp_path / "workspaces", address=address, user=USER)
            task = asyncio.create_task(orchestrator.run())
            instances = Instances(harness.broker.plugin_state("tools"))
            world = AgentWorld(harness.broker, orchestrator, instances, tmp_path / "workspaces", task)
            try:
                assert "E_AUTHORIZATION_REQUIRED" == await world.called("mail__read", {}, turn())
                (called,) = [each for each in harness.audit.entries if isinstance(each, ToolCalled)]
                assert ("Tool/mail:read", turn().instance_key) == (called.tool, called.instance)
                await harness.connect(await harness.ask_link(scopes=["read"]))
                async with asyncio.timeout(60):
                    while "auth.granted" not in await world.history():
                        await asyncio.sleep(0.1)
                reported = json.loads(await world.reported(plan(("mail__read", {})), turn()))
                assert [{"token": "***"}] == reported
            finally:
                await world.stop()
