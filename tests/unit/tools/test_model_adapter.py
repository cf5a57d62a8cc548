"""The adapter for models of `pydantic_ai`, against the library's own scripted models. Its extra is `tools-models`."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from oauthbroker.tools.bundle.entries import EntryRefused
from oauthbroker.tools.bundle.loading import LibraryMissing, load_model
from oauthbroker.tools.models import AdaptedModel, ModelRequest, adapted, messages_of
from oauthbroker.tools.types.catalog import ToolCatalogItem
from oauthbroker.tools.types.results import Message, ToolCall, ToolCallResult

ASKED = ToolCall("call-1", "notes__add", {"text": "a"})
REQUEST = ModelRequest(
    system_prompt="You plan.",
    messages=[
        Message(id="0", role="user", text="Note a."),
        Message(id="1", role="assistant", text="I do.", calls=[ASKED]),
        Message(id="2", role="tool", result=ToolCallResult(tool_call_id="call-1", tool_name="notes__add", output="a")),
        Message(id="3", role="system", text="granted"),
    ],
    blocks=[{"type": "auth.pending"}],
    tools=[ToolCatalogItem(name="notes__add", description="Adds.", parameters={"type": "object"})],
)


@pytest.mark.rule("002-5.2-2", "002-2.2-1", "002-1.1-2")
async def test_a_request_reaches_the_model_whole_and_its_answer_comes_back():
    seen: list[Any] = []

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        seen.extend([messages, info.function_tools])
        return ModelResponse([TextPart("Next."), ToolCallPart("notes__add", {"text": "b"}, tool_call_id="x")])

    got = await AdaptedModel(FunctionModel(answer), {"temperature": 0.0}).complete(REQUEST)
    assert ("Next.", [ToolCall("x", "notes__add", {"text": "b"})]) == (got.text, list(got.calls))
    parts = [(part.part_kind, str(getattr(part, "content", ""))) for message in seen[0] for part in message.parts]
    assert [
        ("system-prompt", "You plan."), ("user-prompt", "Note a."), ("text", "I do."), ("tool-call", ""),
        ("tool-return", str({"toolCallId": "call-1", "toolName": "notes__add", "status": "ok", "output": "a"})),
        ("system-prompt", "granted"), ("system-prompt", '{"type": "auth.pending"}'),
    ] == parts  # fmt: skip
    assert ["notes__add"] == [tool.name for tool in seen[1]]


@pytest.mark.rule("turns.ours-30")
@pytest.mark.parametrize("args", ['{"text": ', "[1]", "null", '"x"', "NaN"])
async def test_arguments_that_are_no_object_come_as_they_are_and_are_not_called_another_object(args):
    def answer(_messages: list[Any], _info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart("notes__add", args, tool_call_id="x")])

    (call,) = (await AdaptedModel(FunctionModel(answer), {}).complete(REQUEST)).calls
    assert args == call.args


@pytest.mark.rule("002-5.2-2")
@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("file-system__read", None),
        ("a_b-c__0-d_e", None),
        ("", "unnamed"),
        ("a b\n", "a_b_"),
        ("x" * 999, "x" * 130),
        ("a" * 64 + "__" + "b" * 64, None),
    ],
)
def test_a_name_that_a_model_made_up_is_sent_in_the_form_that_providers_take(name, sent):
    call = ToolCall("call-1", name)
    result = ToolCallResult(tool_call_id="call-1", tool_name=name)
    said = [Message(id="1", role="assistant", calls=[call]), Message(id="2", role="tool", result=result)]
    _, asked, returned = list[Any](messages_of(ModelRequest(system_prompt="", messages=said)))
    assert [sent or name] * 2 == [asked.parts[0].tool_name, returned.parts[0].tool_name]


def test_a_provider_that_the_library_does_not_know_is_refused():
    with pytest.raises(ValueError, match="unheard-of"):
        adapted("unheard-of", "model", None, {})


@pytest.mark.parametrize(("provider", "refused"), [("pyhton", EntryRefused), ("openai-chat", LibraryMissing)])
def test_without_the_library_a_provider_near_a_known_name_is_a_typo_and_another_one_lacks_it(
    tmp_path, monkeypatch, provider, refused
):
    monkeypatch.setitem(sys.modules, "pydantic_ai.models", None)
    with pytest.raises(EntryRefused, match="needs a library") as caught:
        load_model(tmp_path, provider=provider, name="x", api_key=None, params={})
    assert refused is caught.type
    assert ("nearest known one is python" in str(caught.value)) == (provider == "pyhton")
