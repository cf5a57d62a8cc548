"""The tool `agents`: `request`, `send`, `spawn`, `list` and `catalog` (specification 002, section 11)."""

from __future__ import annotations

from oauthbroker.tools.base.texts import needed
from oauthbroker.tools.calling.context import REQUEST_SECONDS, AgentRuntime, Json, ToolContext
from oauthbroker.tools.types.failures import ToolFailure


async def request(ctx: ToolContext, given: dict[str, Json]) -> Json:
    target, text = needed(given, "target"), needed(given, "input")
    seconds = float(given.get("timeoutSeconds", REQUEST_SECONDS))
    return await _runtime(ctx).request(target, text, instance_key=given.get("instanceKey"), timeout=seconds)


async def send(ctx: ToolContext, given: dict[str, Json]) -> Json:
    """Send a message to an agent. Answer `{sent: true}`."""
    target, text = needed(given, "target"), needed(given, "input")
    await _runtime(ctx).send(target, text, instance_key=given.get("instanceKey"))
    return {"sent": True}


async def spawn(ctx: ToolContext, given: dict[str, Json]) -> Json:
    target = needed(given, "target")
    return dict(await _runtime(ctx).spawn(target, instance_key=given.get("instanceKey"), cwd=given.get("cwd")))


async def list_instances(ctx: ToolContext, given: dict[str, Json]) -> Json:
    return [dict(each) for each in await _runtime(ctx).list(include_all=given.get("includeAll", False))]


async def catalog(ctx: ToolContext, _given: dict[str, Json]) -> Json:
    return dict(await _runtime(ctx).catalog())


def _runtime(ctx: ToolContext) -> AgentRuntime:
    if ctx.runtime is None:
        raise ToolFailure("This agent cannot reach other agents.", name="AgentCallError", code="E_AGENT_UNAVAILABLE")
    return ctx.runtime


handlers = {"request": request, "send": send, "spawn": spawn, "list": list_instances, "catalog": catalog}
