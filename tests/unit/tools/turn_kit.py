"""A turn without a process: a scripted model, tools that are functions, and a record in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oauthbroker import Turn, TurnAuth
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import AgentRuntime
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.extensions.pipeline import Pipeline, TurnResult
from oauthbroker.tools.models import Line, ModelAnswer, ScriptedModel
from oauthbroker.tools.turns.conversation import Conversation
from oauthbroker.tools.turns.turn_loop import AgentParts, ConfigurationChanged, TurnLoop, turn_id_of
from oauthbroker.tools.types.agent_event import UnifiedEvent
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.results import Message, ToolCall

SUBJECTS = {"user": "slack:user:T1:U1"}


def event(text: str | None = "What is due?", **changes: Any) -> UnifiedEvent:
    facts: dict[str, Any] = {
        "id": "evt-1", "type": "agent.message", "input": text, "source": {"kind": "connector"}, "trace_id": "trace-1",
        "turn": Turn("planner", "thread-1", "Swarm/default", origin={}, auth=TurnAuth(subjects=SUBJECTS)),
    }  # fmt: skip
    return UnifiedEvent(**facts | changes)


def calls(*named: tuple[str, Mapping[str, Any]], text: str = "") -> ModelAnswer:
    return ModelAnswer(text, [ToolCall("the model's own id", name, args) for name, args in named])


class Crashed(Exception):
    """The process of the agent ends here."""


class World:
    """What one instance has recorded, and the pieces that a turn is made of. `fails_at`: the recording that fails;
    `changed_at`: the step before which the configuration changes."""

    def __init__(self, script: list[Line], *, max_steps: int = 8) -> None:
        self.recorded: list[dict[str, Any]] = []
        self.performed: list[tuple[str, str]] = []
        self.pipeline, self.registry = Pipeline(), Registry()
        self.model = ScriptedModel(script)
        self.max_steps = max_steps
        self.block: dict[str, Any] | None = None
        self.fails_at: int | None = None
        self.begun, self.changed_at = 0, 0
        self.logger = logging.getLogger("test")
        self.oauth_of = None
        self.journal = None

    def tool(self, name: str, work: Callable[..., Any], owner: str = "Tool/notes") -> None:
        def handler(context: Any, args: dict[str, Any]) -> Any:
            self.performed.append((name, context.tool_call_id))
            return work(**args)

        async def waiting(context: Any, args: dict[str, Any]) -> Any:
            self.performed.append((name, context.tool_call_id))
            return await work(**args)

        chosen = waiting if asyncio.iscoroutinefunction(work) else handler
        self.registry.register(ToolCatalogItem(name=name), chosen, owner=owner)

    async def step_config(self) -> list[dict[str, Any]]:
        self.begun += 1
        if self.begun == self.changed_at:
            raise ConfigurationChanged
        return []

    async def pending(self) -> dict[str, Any] | None:
        return self.block

    def runtime_of(self, tool_call_id: str) -> AgentRuntime | None:
        return None

    async def record(self, appended: Mapping[str, Any]) -> None:
        if self.fails_at is not None and len(self.recorded) >= self.fails_at:
            raise Crashed
        assert "append" == appended["type"]
        self.recorded.append(dict(appended["message"]))

    def loop(self, of: UnifiedEvent | None = None, earlier: list[Message] | None = None) -> TurnLoop:
        of = of or event()
        parts = AgentParts(
            name="planner",
            system_prompt="You plan.",
            model=self.model,
            tools=["notes"],
            registry=self.registry,
            calls=ToolCalls(self.registry, lambda value: value),
            pipeline=self.pipeline,
            max_steps=self.max_steps,
            workdir=Path(),
        )
        messages = [Message.from_json(each) for each in self.recorded]
        return TurnLoop(
            parts=parts,
            event=of,
            conversation=Conversation(
                turn_id=turn_id_of(of.id), earlier=earlier or [], recorded=messages, record=self.record
            ),
            host=self,
        )

    async def run(self, of: UnifiedEvent | None = None) -> TurnResult:
        return await self.loop(of).run()

    @property
    def roles(self) -> list[str]:
        return [each["role"] for each in self.recorded]
