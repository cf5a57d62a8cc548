"""The pipeline: middlewares of extensions around a turn, a step and a tool call (specification 002, section 8.1). The
one with the lowest priority is the outermost, and equal priorities keep their order. Each calls `ctx.next()` once."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeVar, get_args

from oauthbroker.plugins import type_name
from oauthbroker.tools.types.agent_event import UnifiedEvent
from oauthbroker.tools.types.catalog import Catalog
from oauthbroker.tools.types.failures import ToolFailure, is_cancellation
from oauthbroker.tools.types.foreign_values import described
from oauthbroker.tools.types.results import Message, ToolCallResult, ToolError

MiddlewareType = Literal["turn", "step", "toolCall"]
Metadata = dict[str, Any]


class PipelineError(Exception):
    """A middleware failed, or broke a rule of the pipeline. The message names its extension."""

    def __init__(self, owner: str, kind: MiddlewareType, fault: str) -> None:
        super().__init__(f"{owner}: its {kind} middleware {fault}")
        self.owner = owner


class PipelineContext:
    """The part that all contexts share. Each middleware has a view: the attributes are shared, `next` is its own."""

    __slots__ = ("__dict__", "next")
    next: Callable[[], Awaitable[Any]]
    result: Any
    result_type: ClassVar[type]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The assistant's message of a step, and the results of its calls in the order of the calls."""

    message: Message
    results: tuple[ToolCallResult, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The end of a turn: the text of its last message. `error` says why it ended early."""

    answer: str
    steps: int
    error: ToolError | None = None


@dataclass(kw_only=True)
class TurnContext(PipelineContext):
    """A turn: its event, and the messages of the conversation so far."""

    result_type = TurnResult
    agent_name: str
    instance_key: str
    turn_id: str
    trace_id: str
    event: UnifiedEvent
    messages: list[Message]
    metadata: Metadata = field(default_factory=dict)
    result: TurnResult | None = None


@dataclass(kw_only=True)
class StepContext(PipelineContext):
    """A step: a model call and the tool calls that it asks for. `tool_catalog` and `blocks` may be changed until
    `next()`."""

    result_type = StepResult
    turn: TurnContext
    index: int
    tool_catalog: Catalog
    blocks: list[dict[str, Any]]
    metadata: Metadata = field(default_factory=dict)
    result: StepResult | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tool_catalog" and name in self.__dict__:
            raise TypeError("a step has one catalog: change it with add() and remove()")
        super().__setattr__(name, value)


@dataclass(kw_only=True)
class ToolCallContext(PipelineContext):
    """A tool call. `args` may be changed until `next()`. To refuse the call, raise ToolFailure before `next()`: the
    model gets its error as the result."""

    result_type = ToolCallResult
    step: StepContext
    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    metadata: Metadata = field(default_factory=dict)
    result: ToolCallResult | None = None


Middleware = Callable[[Any], Any]
C = TypeVar("C", bound=PipelineContext)
_LOG: Final = logging.getLogger("oauthbroker.tools.extension")
TYPES: Final = get_args(MiddlewareType)


@dataclass(frozen=True, slots=True)
class _Registered:
    owner: str
    priority: int
    run: Middleware


class Pipeline:
    def __init__(self) -> None:
        self._registered: dict[MiddlewareType, list[_Registered]] = {kind: [] for kind in TYPES}

    def register(self, kind: MiddlewareType, middleware: Middleware, priority: int = 0, *, owner: str) -> None:
        """Add a middleware. A lower priority is further outside. Raises ValueError for an unknown type."""
        if kind not in self._registered:
            raise ValueError(f"{owner}: {kind!r} is no type of middleware: use one of {', '.join(TYPES)}")
        layers = self._registered[kind]
        layers.append(_Registered(owner, priority, middleware))
        layers.sort(key=lambda layer: layer.priority)  # stable

    async def run(self, kind: MiddlewareType, context: C, core: Callable[[C], Awaitable[Any]]) -> Any:
        """Run the middlewares of a type around `core`, and return `context.result`. A value that a middleware returns
        becomes the result. Raises PipelineError, ToolFailure, and the exceptions of `core`."""
        layers = tuple(self._registered[kind])  # one that is registered meanwhile takes part from the next run on

        async def inner(depth: int) -> Any:
            if depth == len(layers):
                context.result = await core(context)
            else:
                await _Layer(kind, layers[depth], context).run(lambda: inner(depth + 1))
            return context.result

        return await inner(0)


class _Layer:
    def __init__(self, kind: MiddlewareType, registered: _Registered, context: PipelineContext) -> None:
        self._kind, self._registered, self._context = kind, registered, context
        self._calls = 0
        self._ended = False
        self._from_inside: BaseException | None = None

    async def run(self, inner: Callable[[], Awaitable[Any]]) -> None:
        try:
            returned = await self._returned(self._view(inner))
        finally:
            self._ended = True
        if self._calls != 1:
            raise self._broken("did not call next()" if self._calls == 0 else "called next() twice")
        if returned is None:
            return
        if not issubclass(type(returned), self._context.result_type):
            expected = self._context.result_type.__name__
            raise self._broken(f"returned an object of the type {type_name(returned)}, not {expected}")
        self._context.result = returned

    async def _returned(self, view: PipelineContext) -> Any:
        fault = "failed"
        try:
            returned = self._registered.run(view)
            return await returned if inspect.isawaitable(returned) else returned
        except (PipelineError, ToolFailure):
            raise
        except BaseException as error:  # a SystemExit of an extension does not end the agent's process
            if error is self._from_inside or is_cancellation(error):
                raise
            fault = f"failed with {type_name(error)}"
            owner = self._registered.owner
            _LOG.warning("%s: its %s middleware failed with %s", owner, self._kind, described(error))
        raise self._broken(fault)

    def _view(self, inner: Callable[[], Awaitable[Any]]) -> PipelineContext:
        async def next_once() -> Any:
            self._calls += 1
            if self._calls > 1 or self._ended:
                raise self._broken("called next() after its end" if self._ended else "called next() twice")
            try:
                return await inner()
            except BaseException as error:
                self._from_inside = error
                raise

        view = copy.copy(self._context)
        view.__dict__ = self._context.__dict__  # what one middleware changes, all see
        view.next = next_once
        return view

    def _broken(self, fault: str) -> PipelineError:
        return PipelineError(self._registered.owner, self._kind, fault)
