"""The extension `rules`: the action gateway judges a call before its tool runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oauthbroker.gateway import gate, rulebook
from oauthbroker.plugins import read_resources
from oauthbroker.tools import ToolFailure

ACTIONS = Path(__file__).parents[1] / "actions.yaml"


def register(api: Any) -> None:
    """Register the judge as the outermost middleware of all calls."""
    spec = read_resources(ACTIONS, "actions").of("ActionSchema")["team"].spec
    rules = rulebook(spec)

    async def judge(ctx: Any) -> Any:
        if ctx.tool_name in spec.actions:
            verdict = gate(ctx.tool_name, ctx.args, action_schema=rules)
            if not verdict.allowed:
                raise ToolFailure(verdict.reason or "This action is not allowed.", name="ActionRefused")
        return await ctx.next()

    api.pipeline.register("toolCall", judge, priority=-100)
