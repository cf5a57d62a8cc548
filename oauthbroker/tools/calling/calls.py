"""Perform tool calls: allow them, pass them through the middlewares, keep their results, and tell them to the model. No
error of a tool is raised here (specification 002, section 2.4): the model gets it and decides how to go on. A handler
without `await` runs in a thread of its own, so that the event loop goes on. The thread is no part of a pool: a handler
that never returns takes no place from others, and does not hold up the end of the process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from types import CoroutineType
from typing import Any, Final

from oauthbroker import AuthorizationRequired, Failed
from oauthbroker.plugins import NotPlainJson, plain_json, type_name
from oauthbroker.tools.calling.call_life import CallLife, cancelled
from oauthbroker.tools.calling.context import (
    AuthorizedToolContext,
    CallScope,
    Json,
    StepFacts,
    ToolContext,
    ToolHandler,
)
from oauthbroker.tools.calling.journal import CallJournal, interrupted
from oauthbroker.tools.calling.registry import Handler, RegisteredTool, Registry
from oauthbroker.tools.types import failures
from oauthbroker.tools.types.catalog import plain_object, shown_name
from oauthbroker.tools.types.failures import ToolCode, ToolFailure, usual_error
from oauthbroker.tools.types.foreign_values import plain_text, text_of
from oauthbroker.tools.types.results import MESSAGE, NAME, VALUE, GoesOn, Submitted, ToolCall, ToolCallResult, ToolError

Perform = Callable[[ToolCall], Awaitable[ToolCallResult]]
Around = Callable[[ToolCall, Perform], Awaitable[ToolCallResult]]
Scrub = Callable[[Any], Any]
_SHARED: Final = tuple(field.name for field in fields(StepFacts))


async def _straight(call: ToolCall, perform: Perform) -> ToolCallResult:
    return await perform(call)


class ToolCalls:
    """Performs calls of one registry. `scrub` removes tokens from JSON. `outside_catalog` is the explicit policy of
    002 section 2.3: calls of all registered tools, shown or not."""

    def __init__(self, registry: Registry, scrub: Scrub, *, outside_catalog: bool = False) -> None:
        self._registry, self._scrub, self._outside_catalog = registry, scrub, outside_catalog
        self._running: dict[tuple[str, str, str], asyncio.Future[ToolCallResult]] = {}
        self._going_on: set[asyncio.Task[None]] = set()

    async def perform(self, call: ToolCall, scope: CallScope, around: Around = _straight) -> ToolCallResult:
        """Perform a call and return its result. Raises nothing but the cancellation of the caller. `around` is the
        toolCall middleware, which may change arguments and result. With a journal, a call of an id that was performed
        before returns the earlier result."""
        call, problem = _known(call)
        tool = self._registry.find(call.name)
        if tool is None or not (call.name in scope.catalog or self._outside_catalog):
            call = replace(call, name=shown_name(call.name))
            problem = problem or usual_error(ToolCode.NOT_IN_CATALOG, call.name)
        if tool is None or problem is not None:
            return self.refuse(call, problem or usual_error(ToolCode.NOT_IN_CATALOG, call.name), scope)
        perform = partial(self._through, call, tool, scope, around)
        if scope.journal is None:
            return await perform()
        key = (scope.agent_name, scope.instance_key, call.id)
        if (running := self._running.get(key)) is not None:
            return await asyncio.shield(running)
        ended = self._running[key] = asyncio.get_running_loop().create_future()
        result = self._visible(interrupted(call), call, scope)
        try:
            result = await self._once(call, scope, scope.journal, perform) or result
        finally:
            del self._running[key]
            ended.set_result(result)
        return result

    def refuse(self, call: ToolCall, why: ToolError, scope: CallScope) -> ToolCallResult:
        """Return the result of a call that is not performed."""
        return self._visible(ToolCallResult.failed(call, why), call, scope)

    async def _once(
        self, call: ToolCall, scope: CallScope, journal: CallJournal, perform: Callable[[], Awaitable[ToolCallResult]]
    ) -> ToolCallResult | None:
        """Perform a call that the journal does not have. Return None if it began before and did not end."""
        try:
            before = await journal.begin(call.id)
            if before is not None:
                return ToolCallResult.from_json(before) if before else None
        except Exception as error:  # noqa: BLE001  (a store that fails: no call without its note)
            return self._visible(ToolCallResult.failed(call, failures.error_of(error)), call, scope)
        result = await perform()
        try:
            await journal.end(call.id, result.to_json())
        except Exception as error:  # noqa: BLE001  (the call has taken effect, so its result counts)
            scope.logger.warning("the result of a tool call is not kept: %s", type(error).__name__)
        return result

    async def _through(self, call: ToolCall, tool: RegisteredTool, scope: CallScope, around: Around) -> ToolCallResult:

        async def core(changed: ToolCall) -> ToolCallResult:
            same = replace(call, args=changed.args)
            return await _ended(call, self._handled(same, tool, scope))

        try:
            result = await around(call, core)
        except BaseException as error:  # noqa: BLE001  (code of an extension: anything may happen)
            result = _failed(call, error)
        return self._visible(result, call, scope)

    async def _handled(self, call: ToolCall, tool: RegisteredTool, scope: CallScope) -> Any:
        """Return the handler's value. Work that goes on after the call becomes a task, and its value a handle."""
        value = await handled(call, tool, scope)
        if not issubclass(type(value), GoesOn):
            return value
        if not issubclass(type(value.work), CoroutineType):
            raise ToolFailure(f"GoesOn takes a coroutine, and its work is of the type '{type_name(value.work)}'.")
        if scope.journal is None:
            value.work.close()
            raise ToolFailure("This runtime lets no work go on after its call.")
        try:
            await scope.journal.submit(call.id, {"toolCallId": call.id, "toolName": call.name})
        except BaseException:
            value.work.close()
            raise
        task = asyncio.create_task(self._complete(call, scope, scope.journal, value))
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
        task.add_done_callback(lambda _: value.work.close())  # a task that is cancelled at once never awaits it
        return Submitted(call.id)

    async def _complete(self, call: ToolCall, scope: CallScope, journal: CallJournal, more: GoesOn) -> None:
        done = self._visible(await _ended(call, CallLife(call.name).within(None, more.work)), call, scope)
        try:
            await journal.complete(call.id, done.to_json())
        except Exception as error:  # noqa: BLE001  (`recover` ends it at the next start)
            scope.logger.warning("the end of submitted work is not told: %s", type(error).__name__)

    async def close(self) -> None:
        """Cancel the work that goes on. The next process of the agent tells that it was interrupted."""
        await cancelled(self._going_on)

    def _visible(self, result: Any, call: ToolCall, scope: CallScope) -> ToolCallResult:
        """Return the result as the model gets it: JSON, without tokens, its message within the tool's limit. The one
        place that takes values of tools and middlewares: it raises nothing, although their methods may."""
        try:
            end = self._accepted(result, call)
        except NotPlainJson as problem:
            end = usual_error(ToolCode.OUTPUT, problem)
        except BaseException as failure:  # noqa: BLE001  (code of the tool or of a middleware)
            end = failures.error_of(failure)
        if isinstance(end, ToolCallResult):
            return end
        tool = self._registry.find(call.name)
        limit = MESSAGE if tool is None else tool.message_limit
        return ToolCallResult.failed(call, failures.visible_error(end, limit, scope.locale, self._scrub))

    def _accepted(self, result: Any, call: ToolCall) -> ToolCallResult | ToolError:
        """Return a result with an output or a handle, or its error. Raises NotPlainJson, and what its values raise."""
        if not issubclass(type(result), ToolCallResult):
            return ToolError(message="A middleware of this call returned no result.")
        if result.error is not None or result.status == "error":
            return failures.error_from(ToolError(message="") if result.error is None else result.error)
        done = ToolCallResult(tool_call_id=call.id, tool_name=call.name)
        if result.handle is None:
            return replace(done, output=self._scrub(plain_json(result.output, VALUE)))
        if (handle := plain_text(result.handle, NAME)) is None:
            raise NotPlainJson(f"its handle is not a text of 1 to {NAME} characters")
        return replace(done, handle=self._scrub(handle))


async def _ended(call: ToolCall, work: Awaitable[Any]) -> ToolCallResult:
    """Return the result that the end of a tool's work stands for. Raises nothing but the cancellation of the caller."""
    try:
        return _result_of(call, await work)
    except BaseException as error:  # noqa: BLE001  (002 section 2.4: no exception of a tool is raised)
        return _failed(call, error)


def _result_of(call: ToolCall, value: Any) -> ToolCallResult:
    """Return the result of a handler's value. `isinstance` would call code of the value."""
    kind = type(value)
    if issubclass(kind, AuthorizationRequired):
        return ToolCallResult.failed(call, failures.consent(value))
    if issubclass(kind, Failed):
        return ToolCallResult.failed(call, failures.refused(value))
    if issubclass(kind, Submitted):
        handle = "" if value.handle is None else value.handle
        return ToolCallResult(tool_call_id=call.id, tool_name=call.name, handle=handle)
    return ToolCallResult(tool_call_id=call.id, tool_name=call.name, output=value)


def _failed(call: ToolCall, error: BaseException) -> ToolCallResult:
    """Return the result of an exception. Raises it again if it cancels the caller: that is no failure of the tool."""
    if failures.is_cancellation(error):
        raise error
    return ToolCallResult.failed(call, failures.error_of(error))


def _known(call: ToolCall) -> tuple[ToolCall, ToolError | None]:
    """Return a call whose id and name are plain texts, and the problem of the given ones."""
    call_id, is_named = plain_text(call.id, NAME), issubclass(type(call.name), str)
    known = ToolCall(text_of(call.id)[:NAME], text_of(call.name) if is_named else "", call.args)
    if call_id is not None and is_named:
        return known, None
    problem = "name of the call is not a text" if call_id else f"id of the call is not a text of 1 to {NAME} characters"
    return known, ToolError(message=f"The {problem}.", name="ToolArgumentsError", code=ToolCode.ARGUMENTS)


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
