"""The model as the turn loop sees it. Neither document prints it: the protocol is ours."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from oauthbroker import NotPlainJson, plain_json
from oauthbroker.tools.catalog import ToolCatalogItem
from oauthbroker.tools.messages import Message
from oauthbroker.tools.output_limits import VALUE
from oauthbroker.tools.results import ToolCall

MOST_CALLS: Final = 64  # in one answer
MOST_NAME: Final = 200


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
    """A model that answers the lines of a script, one for each request. A line is an answer, or a function that makes
    one from the request. `requests` keeps the requests, for tests."""

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
    """Ask a model and check its answer. Raises ModelFailed and AnswerRefused."""
    fault: str
    try:
        answer = await model.complete(request)
    except Exception as error:  # noqa: BLE001  (a library's own; its text may hold the prompt)
        fault = type(error).__name__
    else:
        return _checked(answer)
    raise ModelFailed(f"the model failed with {fault}")


def _checked(answer: object) -> ModelAnswer:
    if not isinstance(answer, ModelAnswer) or not isinstance(answer.text, str):
        raise AnswerRefused("The model gave no answer that can be used.")
    calls = tuple(answer.calls)
    if len(calls) > MOST_CALLS:
        raise AnswerRefused(f"The model asked for more than {MOST_CALLS} calls at once.")
    if not all(_is_call(call) for call in calls):
        raise AnswerRefused("The model asked for a call that has no name or no arguments.")
    try:
        plain_json([answer.text, [[call.name, dict(call.args)] for call in calls]], VALUE)
    except NotPlainJson as problem:
        raise AnswerRefused(f"The model's answer is refused: {problem}.") from None
    return ModelAnswer(answer.text, calls)


def _is_call(call: object) -> bool:
    if not isinstance(call, ToolCall) or not isinstance(call.name, str) or not isinstance(call.args, Mapping):
        return False
    return 0 < len(call.name) <= MOST_NAME
