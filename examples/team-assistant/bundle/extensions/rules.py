"""The extension `rules`: the action gateway checks a call before its tool runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oauthbroker.gateway import gate, rulebook
from oauthbroker.plugins import read_resources
from oauthbroker.tools import ToolFailure

ACTIONS = Path(__file__).parents[1] / "actions.yaml"


def register(api: Any) -> None:
    """Register the check as the outermost middleware of all calls."""
    spec = read_resources(ACTIONS, "gateway").of("ActionSchema")["team"].spec
    rules = rulebook(spec)

    async def validate(ctx: Any) -> Any:
        if ctx.tool_name in spec.actions:
            decision = gate(ctx.tool_name, ctx.args, action_schema=rules)
            if not decision.allowed:
                raise ToolFailure(decision.reason or "This action is not allowed.", name="ActionRefused")
        return await ctx.next()

    api.pipeline.register("toolCall", validate, priority=-100)
