"""The model as the turn loop sees it. Neither document prints it: the protocol is ours."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

from oauthbroker.plugins import NotPlainJson, plain_json
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.failures import ToolCode, usual_error
from oauthbroker.tools.types.foreign_values import described
from oauthbroker.tools.types.names import shown_name
from oauthbroker.tools.types.output_limits import VALUE
from oauthbroker.tools.types.parameters import plain_object
from oauthbroker.tools.types.results import Message, ToolCall

_LOG: Final = logging.getLogger("oauthbroker.tools.model")
MOST_CALLS: Final = 64  # performed of one answer
MOST_KEPT_CALLS: Final = 256  # of one answer that the conversation keeps


class ModelFailed(Exception):
    """The model could not be asked. The event of the turn is delivered again later."""


class AnswerRefused(Exception):
    """The model answered something that cannot be used. The turn ends with this text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question: the agent's own words, the conversation, the blocks of this step, and the tools it shows."""

    system_prompt: str
    messages: Sequence[Message]
    blocks: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[ToolCatalogItem] = ()


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The model's words, and the calls it asks for. The ids of the calls are replaced by the turn loop's own."""

    text: str = ""
    calls: Sequence[ToolCall] = field(default=())


class Model(Protocol):
    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer a request. May raise any exception: then the turn is tried again later."""
        ...


Line = ModelAnswer | Callable[[ModelRequest], ModelAnswer | Awaitable[ModelAnswer]]


class ScriptedModel:
    """A model that answers lines: each an answer, or a function of the request. `requests` keeps these, for tests."""

    def __init__(self, script: Iterable[Line]) -> None:
        self._script = iter(script)
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer the next line. Raises LookupError at the end of the script."""
        self.requests.append(request)
        line = next(self._script, None)
        if line is None:
            raise LookupError("the script has ended")
        if isinstance(line, ModelAnswer):
            return line
        made = line(request)
        return await made if inspect.isawaitable(made) else made


async def asked(model: Model, request: ModelRequest) -> ModelAnswer:
    """Ask a model and check its answer. A call that cannot be performed has its refusal. Raises ModelFailed, and
    AnswerRefused for an answer that cannot be used as a whole."""
    fault: str
    try:
        return _checked(await model.complete(request))
    except AnswerRefused:
        raise
    except Exception as error:  # noqa: BLE001  (a library's own; its text may hold the prompt)
        fault = type(error).__name__
        _LOG.warning("the model failed with %s", described(error))
    raise ModelFailed(f"the model failed with {fault}")


def _checked(answer: object) -> ModelAnswer:
    if not isinstance(answer, ModelAnswer) or not isinstance(answer.text, str):
        raise AnswerRefused("The model gave no answer that can be used.")
    calls = tuple(_usable(call, index) for index, call in enumerate(islice(answer.calls, MOST_KEPT_CALLS)))
    try:
        plain_json([answer.text, [call.to_json() for call in calls]], VALUE)
    except NotPlainJson as problem:
        raise AnswerRefused(f"The model's answer is refused: {problem}.") from None
    return ModelAnswer(answer.text, calls)


def _usable(call: object, index: int) -> ToolCall:
    """Return a call in the form that the conversation keeps. What the model wrote wrong is reported as its result."""
    if not isinstance(call, ToolCall):
        raise AnswerRefused("The model gave no answer that can be used.")
    name = shown_name(call.name) if isinstance(call.name, str) else ""
    try:
        refused = None if index < MOST_CALLS else usual_error(ToolCode.TOO_MANY, MOST_CALLS)
        return ToolCall(call.id, name, plain_object(call.args), refused=refused)
    except NotPlainJson as problem:
        return ToolCall(call.id, name, refused=usual_error(ToolCode.ARGUMENTS, name, problem))
