"""The turn loop: from an event to the model's last words (specification 002, sections 1 and 8). A step has one
configuration (`AgentParts`). It builds its tools and blocks, asks the model, makes the calls in parallel, and ends with
their results in the order of the calls."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from oauthbroker.plugins import NotPlainJson, plain_json, type_name
from oauthbroker.tools.calling.call_life import CallLife, calling, cancelled
from oauthbroker.tools.calling.calls import Perform, ToolCalls
from oauthbroker.tools.calling.context import AgentRuntime, CallScope, OAuthOf
from oauthbroker.tools.calling.journal import CallJournal
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.extensions.pipeline import (
    Pipeline,
    PipelineError,
    StepContext,
    StepResult,
    ToolCallContext,
    TurnContext,
    TurnResult,
)
from oauthbroker.tools.models import AnswerRefused, Model, ModelRequest, asked
from oauthbroker.tools.turns.conversation import Conversation
from oauthbroker.tools.types.agent_event import UnifiedEvent
from oauthbroker.tools.types.failures import error_from, visible_error
from oauthbroker.tools.types.results import MESSAGE, STATE, VALUE, Message, ToolCall, ToolCallResult, ToolError

MOST_STEPS: Final = "E_MAX_STEPS"
MODEL: Final = "E_MODEL"
RESULT: Final = "E_TURN_RESULT"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """The configuration of an agent process, which never changes. `tools` are the names of Tool resources."""

    name: str
    system_prompt: str
    model: Model
    tools: Collection[str]
    registry: Registry
    calls: ToolCalls
    pipeline: Pipeline
    max_steps: int
    workdir: Path


class ConfigurationChanged(BaseException):
    """The rest of the turn is for a new process. It is no Exception, so that no middleware takes it for a failure."""


class TurnHost(Protocol):
    @property
    def logger(self) -> logging.Logger: ...

    @property
    def oauth_of(self) -> OAuthOf | None: ...

    @property
    def journal(self) -> CallJournal | None: ...

    async def step_config(self) -> Sequence[Mapping[str, Any]]:
        """Begin a step, and return blocks of its configuration. Raises ConfigurationChanged if it is not the newest."""
        ...

    async def pending(self) -> Mapping[str, Any] | None:
        """Return the `auth.pending` block; None if nothing waits for the user."""
        ...

    def runtime_of(self, tool_call_id: str) -> AgentRuntime | None: ...


class TurnLoop:
    def __init__(self, *, parts: AgentParts, event: UnifiedEvent, conversation: Conversation, host: TurnHost) -> None:
        self._parts, self._event, self._conversation, self._host = parts, event, conversation, host
        self._ids: dict[str, Any] = {"agent_name": parts.name, "instance_key": event.turn.instance_key}
        self._ids |= {"turn_id": turn_id_of(event.id), "trace_id": event.trace_id}

    async def run(self) -> TurnResult:
        """Run the turn, or the rest of it. Raises ModelFailed and PipelineError: then the event comes again later."""
        if self._conversation.is_new:
            await self._conversation.say(*_input_of(self._event))
        context = TurnContext(**self._ids, event=self._event, messages=self._conversation.messages)
        return self._accepted(await self._parts.pipeline.run("turn", context, self._steps))

    def _accepted(self, result: Any) -> TurnResult:
        """Return the end of the turn as a channel gets it. Raises nothing, although methods of its values may."""
        steps, problem = self._conversation.steps, "a turn middleware left no TurnResult"
        try:
            if issubclass(type(result), TurnResult):
                answer = plain_json(result.answer, VALUE)
                if type(answer) is str:
                    return TurnResult(answer, steps, self._error(result.error))
                problem = "its answer is not a text"
        except NotPlainJson as refused:
            problem = f"its answer cannot be used: {refused}"
        except BaseException as error:  # noqa: BLE001  (code of the extension; the text may hold secrets)
            problem = f"it cannot be read: {type_name(error)}"
        text = f"The result of this turn is refused: {problem}."
        return TurnResult(text, steps, ToolError(message=text, name="TurnError", code=RESULT))

    def _error(self, given: Any) -> ToolError | None:
        """Return an error whose members are texts within our limits."""
        locale = self._event.turn.locale or "en"
        return None if given is None else visible_error(error_from(given), MESSAGE, locale, str)

    async def _steps(self, turn: TurnContext) -> TurnResult:
        try:
            for _ in range(self._parts.max_steps + 1):  # one more: the rest of a step that was interrupted
                if self._has_ended():
                    break
                await self._step(turn)
        except AnswerRefused as refused:
            return await self._ended(MODEL, str(refused))
        if (answer := self._answered()) is not None:
            return TurnResult(answer.text, self._conversation.steps)
        return await self._ended(MOST_STEPS, f"The turn ended after {self._parts.max_steps} steps.")

    def _has_ended(self) -> bool:
        """Return whether no step is left: the model has answered, or has been asked as often as it may be."""
        used_up = self._conversation.steps >= self._parts.max_steps
        return self._answered() is not None or (used_up and self._conversation.unanswered() is None)

    def _answered(self) -> Message | None:
        """Return the model's last message if it asks for no call."""
        last = self._conversation.last
        return last if last is not None and not last.calls else None

    async def _ended(self, code: str, text: str) -> TurnResult:
        await self._conversation.say("system", text)
        return TurnResult(text, self._conversation.steps, ToolError(message=text, name="TurnError", code=code))

    async def _step(self, turn: TurnContext) -> None:
        blocks = [*await self._host.step_config()]
        if (pending := await self._host.pending()) is not None:
            blocks.append(pending)
        context = StepContext(
            turn=turn,
            index=self._conversation.steps,
            tool_catalog=self._parts.registry.catalog(self._parts.tools),
            blocks=[dict(each) for each in blocks],
        )
        await self._parts.pipeline.run("step", context, self._asked_and_called)
        turn.messages = self._conversation.messages

    async def _asked_and_called(self, step: StepContext) -> StepResult:
        step.tool_catalog.freeze()
        message = self._conversation.unanswered() or await self._ask(step)
        done = self._conversation.results()
        await _all([self._call(step, message, call) for call in message.calls if call.id not in done])
        results = self._conversation.results()
        return StepResult(message, tuple(results[call.id] for call in message.calls))

    async def _ask(self, step: StepContext) -> Message:
        request = ModelRequest(
            system_prompt=self._parts.system_prompt,
            messages=self._conversation.messages,
            blocks=_blocks_of(step),
            tools=tuple(step.tool_catalog),
        )
        answer = await asked(self._parts.model, request)
        return await self._conversation.say("assistant", answer.text, answer.calls)

    async def _call(self, step: StepContext, message: Message, call: ToolCall) -> None:
        async def around(call: ToolCall, perform: Perform) -> ToolCallResult:
            args = deepcopy(dict(call.args))  # the message keeps its own
            context = ToolCallContext(step=step, tool_call_id=call.id, tool_name=call.name, args=args)

            async def core(changed: ToolCallContext) -> ToolCallResult:
                return await perform(replace(call, args=changed.args))

            result: ToolCallResult = await self._parts.pipeline.run("toolCall", context, core)
            return result

        calling.set(CallLife(call.name))  # of this task, for what middlewares print
        scope = self._scope(step, message, call)
        if call.refused is None:
            result = await self._parts.calls.perform(call, scope, around)
        else:
            result = self._parts.calls.refuse(call, call.refused, scope)
        await self._conversation.add_result(result)

    def _scope(self, step: StepContext, message: Message, call: ToolCall) -> CallScope:
        return CallScope(
            **self._ids,
            message=message,
            workdir=self._parts.workdir,
            logger=self._host.logger,
            catalog=step.tool_catalog,
            runtime=self._host.runtime_of(call.id),
            oauth_of=self._host.oauth_of,
            journal=self._host.journal,
            locale=self._event.turn.locale or "en",
        )


def turn_id_of(event_id: str) -> str:
    """Return the id of the turn that works on an event: the same one when the event is delivered again."""
    return f"turn-{event_id}"


def _input_of(event: UnifiedEvent) -> tuple[str, str]:
    """Return role and text of the first message. The system reports an event without words, such as `auth.granted`."""
    if event.input is not None:
        return "user", event.input
    return "system", json.dumps({"type": event.type, "payload": dict(event.payload)}, ensure_ascii=False)


def _blocks_of(step: StepContext) -> tuple[Mapping[str, Any], ...]:
    """Return the blocks that the model is given. Raises PipelineError if middlewares left no list of JSON."""
    problem = "they are no list"
    try:
        if type(blocks := plain_json(step.blocks, STATE)) is list:
            return tuple(blocks)
    except NotPlainJson as refused:
        problem = str(refused)
    raise PipelineError("an extension", "step", f"left blocks that are refused: {problem}")


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run the calls of a step in parallel. If recording a result fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancelled(tasks)
