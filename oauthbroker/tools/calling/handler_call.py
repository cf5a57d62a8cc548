"""Call a handler with checked arguments: a function of this process, or a tool of another one. One without `await` runs
in a thread of its own, so that the event loop goes on. The thread is no part of a pool: a handler that never returns
takes no place from others, and does not hold up the end of the process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from contextlib import suppress
from dataclasses import fields
from typing import Any, Final

from oauthbroker.plugins import NotPlainJson
from oauthbroker.tools.calling.call_life import CallLife
from oauthbroker.tools.calling.context import (
    AuthorizedToolContext,
    CallScope,
    Json,
    StepFacts,
    ToolContext,
    ToolHandler,
)
from oauthbroker.tools.calling.registry import Handler, RegisteredTool
from oauthbroker.tools.types.failures import ToolCode, ToolFailure, usual_error
from oauthbroker.tools.types.parameters import plain_object
from oauthbroker.tools.types.results import ToolCall

_SHARED: Final = tuple(field.name for field in fields(StepFacts))


async def handled(call: ToolCall, tool: RegisteredTool, scope: CallScope) -> Json:
    """Return the value of the handler. Raises ToolFailure for arguments that do not fit and for a handler that takes
    too long, and the handler's exceptions, `SystemExit` included."""
    args, life = _checked(call, tool), CallLife(tool.name)
    return await life.within(tool.seconds, _value(tool, await _context(call, tool, scope, life), args))


async def _value(tool: RegisteredTool, context: ToolContext, args: dict[str, Json]) -> Json:
    handler = tool.handler
    if not callable(handler):
        return await handler.call(tool.export, context, args)
    value = handler(context, args) if _waits(handler) else await _in_thread(handler, context, args)
    return await value if hasattr(type(value), "__await__") else value


def _checked(call: ToolCall, tool: RegisteredTool) -> dict[str, Json]:
    """Return a copy of the arguments."""
    try:
        args = plain_object(call.args)
        problems = tool.problems_of(args)
    except NotPlainJson as problem:
        problems = [str(problem)]
    if not problems:
        return args
    raise ToolFailure.of(usual_error(ToolCode.ARGUMENTS, call.name, "; ".join(problems)))


async def _context(call: ToolCall, tool: RegisteredTool, scope: CallScope, life: CallLife) -> ToolContext:
    """Return the context of a call. Only a tool that declared an app gets `oauth`."""
    members: dict[str, Any] = {name: getattr(scope, name) for name in _SHARED} | {"tool_call_id": call.id}
    members |= {"runtime": life.lend(scope.runtime), "logger": life.logger(scope.logger)}
    of, blocking = scope.oauth_of, not _waits(tool.handler)
    oauth = None if of is None else await of(tool.asks_as, call.id, blocking=blocking)
    return ToolContext(**members) if oauth is None else AuthorizedToolContext(**members, oauth=life.lend(oauth))


def _waits(handler: Handler) -> bool:
    """Tell whether a handler is awaited on the event loop."""
    call = getattr(handler, "__call__", None)  # noqa: B004  (of an object with an async `__call__`)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call) or not callable(handler)


async def _in_thread(handler: ToolHandler, context: ToolContext, args: dict[str, Json]) -> Any:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, failure = None, None
        try:
            value = handler(context, args)
        except BaseException as error:  # noqa: BLE001  (an exception of a tool is the end of its call)
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, failure)

    inside = contextvars.copy_context()
    threading.Thread(target=inside.run, args=(run,), name=f"tool {context.tool_call_id}", daemon=True).start()
    value, error = await ended
    if error is not None:
        raise error
    return value
