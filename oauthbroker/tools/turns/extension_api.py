"""What an extension is given: `register(api)` is called once in each agent process, in the order of the agent's list
(specification 002, sections 8.4 and 12)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from oauthbroker.plugins import plain_json, type_name
from oauthbroker.tools.calling.call_life import SECONDS, check_call
from oauthbroker.tools.calling.context import ToolHandler
from oauthbroker.tools.extensions.pipeline import Middleware, MiddlewareType, Pipeline
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.failures import is_cancellation
from oauthbroker.tools.types.foreign_values import text_of
from oauthbroker.tools.types.results import STATE

EventHandler = Callable[[Any], Any]
Unsubscribe = Callable[[], None]
Subscriptions = dict[str, list[tuple[str, EventHandler]]]  # by event: the owner of each handler
Register = Callable[["ExtensionApi"], Any]
Config = Mapping[str, Any]
RegistersTool = Callable[..., object]  # `Registry.register`


class ExtensionFailed(Exception):
    """An extension could not be registered. The agent takes no turn without it; the message names it."""


class InstanceValues(Protocol):
    """The durable JSON values of one agent instance, by key."""

    async def get(self, key: str) -> Any: ...

    async def put(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class ExtensionPipeline:
    """`api.pipeline`."""

    _pipeline: Pipeline
    _owner: str

    def register(self, kind: MiddlewareType, middleware: Middleware, priority: int = 0) -> None:
        """Add a middleware of type `turn`, `step` or `toolCall`. A lower priority is further outside."""
        self._pipeline.register(kind, middleware, priority, owner=self._owner)


@dataclass(frozen=True, slots=True)
class ExtensionTools:
    """`api.tools`."""

    _register: RegistersTool
    _owner: str

    def register(self, item: ToolCatalogItem, handler: ToolHandler, *, timeout_seconds: float = SECONDS) -> None:
        """Register a tool. The catalog has it from the next step on (002 section 12.3). `timeout_seconds` is the time
        of a call."""
        self._register(item, handler, owner=self._owner, seconds=timeout_seconds)


@dataclass(frozen=True, slots=True)
class ExtensionState:
    """`api.state`: one JSON value for each extension and instance. It survives the process."""

    _values: InstanceValues
    _owner: str

    async def get(self) -> Any:
        """Return the value; None if none was set."""
        check_call()
        return await self._values.get(self._owner)

    async def set(self, value: Any) -> None:
        """Store the value durably. Raises NotPlainJson, a ValueError with the problem and its place."""
        check_call()
        await self._values.put(self._owner, plain_json(value, STATE))


@dataclass(frozen=True, slots=True)
class ExtensionEvents:
    """`api.events`: events among the extensions of one agent process. They are not durable, and reach no other one."""

    _subscriptions: Subscriptions
    _owner: str
    _logger: logging.Logger

    def on(self, event: str, handler: EventHandler) -> Unsubscribe:
        """Subscribe to the events of a name. Return the function that ends the subscription; it may be called twice."""
        entry = (self._owner, handler)
        self._subscriptions.setdefault(event, []).append(entry)

        def unsubscribe() -> None:
            there = self._subscriptions[event]
            there[:] = [each for each in there if each is not entry]

        return unsubscribe

    async def emit(self, event: str, payload: Any = None) -> None:
        """Call the handlers in order. One that fails is logged, and keeps no other from the event."""
        for owner, handler in list(self._subscriptions.get(event, ())):
            try:
                returned = handler(payload)
                if inspect.isawaitable(returned):
                    await returned
            except BaseException as error:  # an extension may raise anything; its text may hold secrets
                if is_cancellation(error):
                    raise
                self._logger.warning("%s: its handler of %s failed with %s", owner, text_of(event), type_name(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionApi:
    """What `register(api)` of an extension is given. `config` is its resource's `spec.config`."""

    config: Config
    pipeline: ExtensionPipeline
    tools: ExtensionTools
    state: ExtensionState
    events: ExtensionEvents
    logger: logging.Logger


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionHost:
    """The parts of an agent process that its extensions reach."""

    pipeline: Pipeline
    register_tool: RegistersTool
    values: InstanceValues
    subscriptions: Subscriptions = field(default_factory=dict)

    def api_of(self, name: str, config: Config) -> ExtensionApi:
        owner, logger = f"Extension/{name}", logging.getLogger(f"oauthbroker.tools.extension.{name}")
        return ExtensionApi(
            config=config,
            pipeline=ExtensionPipeline(self.pipeline, owner),
            tools=ExtensionTools(self.register_tool, owner),
            state=ExtensionState(self.values, owner),
            events=ExtensionEvents(self.subscriptions, owner, logger),
            logger=logger,
        )


async def register_all(extensions: Sequence[tuple[str, Config, Register]], host: ExtensionHost) -> None:
    """Call each extension's `register(api)`, in order. Raises ExtensionFailed, which ends the start of the agent."""
    for name, config, register in extensions:
        fault = None
        try:
            returned = register(host.api_of(name, config))
            if inspect.isawaitable(returned):
                await returned
        except BaseException as error:  # an extension may raise anything
            if is_cancellation(error):
                raise
            is_ours = issubclass(type(error), ValueError)
            fault = f"{type_name(error)}: {text_of(error)}" if is_ours else type_name(error)
        if fault is not None:
            raise ExtensionFailed(f"Extension/{name}: register(api) failed with {fault}")
