"""A registry, a scope and calls for the tests of the tool runtime."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import CallScope, OAuthOf
from oauthbroker.tools.calling.registry import Handler, Registry
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.results import Message, ToolCall, ToolCallResult

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOKEN = "tok-canary-5dQ0sY2xWv"


def scrub(value: Any) -> Any:
    """Stand in for the broker's scrubber."""
    if isinstance(value, str):
        return value.replace(TOKEN, "***")
    if isinstance(value, dict):
        return {scrub(name): scrub(each) for name, each in value.items()}
    return [scrub(each) for each in value] if isinstance(value, list) else value


def scope_of(registry: Registry, *tools: str, **more: Any) -> CallScope:
    """Return the scope of a step that begins now and shows these Tool resources."""
    facts: dict[str, Any] = {
        "agent_name": "planner",
        "instance_key": "thread-1",
        "turn_id": "turn-1",
        "trace_id": "trace-1",
        "message": Message(id="m-1", role="assistant"),
        "workdir": Path("/work"),
        "logger": logging.getLogger("tools"),
        "catalog": registry.catalog(tools),
    }
    return CallScope(**facts | more)


def registry_with(
    handler: Handler, *, parameters: Mapping[str, Any] | None = None, owner: str = "Tool/weather", limit: int = 1000
) -> Registry:
    registry = Registry()
    registry.register(ToolCatalogItem(name="weather__get", parameters=parameters), handler, owner=owner, limit=limit)
    return registry


def gives(oauth: Any) -> OAuthOf:
    """Return an `oauth_of` that gives each call this `ctx.oauth`."""

    async def of(asks_as: str, call_id: str, *, blocking: bool) -> Any:
        return oauth

    return of


async def performed(handler: Handler, args: Any = None, **more: Any) -> ToolCallResult:
    """Perform one call of a tool with this handler."""
    known = {name: more.pop(name) for name in ("parameters", "owner", "limit") if name in more}
    registry = registry_with(handler, **known)
    call = ToolCall("call-1", "weather__get", {} if args is None else args)
    return await ToolCalls(registry, scrub).perform(call, scope_of(registry, "weather", **more))
