"""Models of many providers, by `pydantic_ai.direct.model_request` (the extra `tools-models`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from oauthbroker.tools.models.port import Model, ModelAnswer, ModelRequest
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.results import Message, ToolCall

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ToolCallPart
    from pydantic_ai.models import Model as ForeignModel
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

MOST_NAME: Final = 130  # characters of a tool's name: two parts of 64 and their separator
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


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
