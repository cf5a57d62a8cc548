"""The model as the turn loop sees it. Neither document prints it: the protocol is ours. `adapted` returns models of
many providers, by `pydantic_ai.direct.model_request` (the extra `tools-models`)."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from oauthbroker.plugins import NotPlainJson, plain_json
from oauthbroker.tools.types.catalog import ToolCatalogItem, plain_object, shown_name
from oauthbroker.tools.types.failures import ToolCode, usual_error
from oauthbroker.tools.types.foreign_values import described
from oauthbroker.tools.types.results import VALUE, Message, ToolCall

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ToolCallPart
    from pydantic_ai.models import Model as ForeignModel
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

_LOG: Final = logging.getLogger("oauthbroker.tools.model")
MOST_CALLS: Final = 64  # performed of one answer
MOST_KEPT_CALLS: Final = 256  # of one answer that the conversation keeps
MOST_NAME: Final = 130  # characters of a tool's name: two parts of 64 and their separator
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


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
    """Answers one step of an agent."""

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


class AdaptedModel:
    """A model of `pydantic_ai` behind our protocol. `params` go into each request's settings."""

    def __init__(self, model: ForeignModel, params: Mapping[str, Any]) -> None:
        self._model, self._params = model, dict(params)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask the model. Raises the library's exceptions."""
        from pydantic_ai import direct
        from pydantic_ai.models import ModelRequestParameters

        response = await direct.model_request(
            self._model,
            messages_of(request),
            model_settings=cast("ModelSettings", self._params),
            model_request_parameters=ModelRequestParameters(function_tools=[_tool(item) for item in request.tools]),
        )
        calls = [ToolCall(call.tool_call_id, call.tool_name, _arguments(call)) for call in response.tool_calls]
        return ModelAnswer(response.text or "", calls)


def adapted(provider: str, name: str, api_key: str | None, params: Mapping[str, Any]) -> Model:
    """Return the model of a provider. Raises ImportError without the extra."""
    from pydantic_ai.models import infer_model
    from pydantic_ai.providers import infer_provider_class

    class_of: Any = infer_provider_class  # the base class does not say that each takes an `api_key`
    model = infer_model(f"{provider}:{name}", provider_factory=lambda of: class_of(of)(api_key=api_key))
    return AdaptedModel(model, params)


def messages_of(request: ModelRequest) -> list[ModelMessage]:
    """Return the request's prompt, blocks and conversation as the library's messages."""
    from pydantic_ai import messages as theirs

    def part(message: Message) -> Any:
        if message.result is not None:
            content = message.result.to_json()
            name, call_id = _name(message.result.tool_name), message.result.tool_call_id
            return theirs.ToolReturnPart(name, content, tool_call_id=call_id)
        kind = theirs.UserPromptPart if message.role == "user" else theirs.SystemPromptPart
        return kind(message.text)

    def answered(message: Message) -> theirs.ModelResponse:
        calls = [theirs.ToolCallPart(_name(call.name), dict(call.args), tool_call_id=call.id) for call in message.calls]
        return theirs.ModelResponse([theirs.TextPart(message.text), *calls] if message.text else list(calls))

    asked = theirs.ModelRequest
    messages: list[ModelMessage] = [asked([theirs.SystemPromptPart(request.system_prompt)])]
    messages += [answered(each) if each.role == "assistant" else asked([part(each)]) for each in request.messages]
    if request.blocks:
        blocks = "\n".join(json.dumps(block, ensure_ascii=False) for block in request.blocks)
        messages.append(asked([theirs.SystemPromptPart(blocks)]))
    return messages


def _arguments(call: ToolCallPart) -> Any:
    """Return the arguments of a call; the text of the model where that is no JSON object, which is refused as such."""
    try:
        return call.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        return call.args


def _name(name: str) -> str:
    """Return a name in the form that providers take. Only names that a model made up have another one."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MOST_NAME] or "unnamed"


def _tool(item: ToolCatalogItem) -> ToolDefinition:
    from pydantic_ai.tools import ToolDefinition

    schema = dict(item.parameters or NO_PARAMETERS)
    return ToolDefinition(name=item.name, description=item.description or "", parameters_json_schema=schema)
