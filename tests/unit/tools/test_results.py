"""Results of tool calls as JSON, and how long their messages are (specification 002, sections 9.2 and 10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.tools.types.results import TRUNCATED, ToolCall, ToolCallResult, ToolError, truncated

CALL = ToolCall("call-1", "http-fetch__get", {"url": "https://api.example/"})


@pytest.mark.rule("002-10.1-1", "002-10.3-1")
def test_an_error_has_the_members_that_the_document_prints():
    error = ToolError(
        message="요청 실패",
        suggestion="입력 파라미터를 확인하세요.",
        help_url="https://docs.goondan.ai/errors/E_TOOL",
    )
    assert ToolCallResult.failed(CALL, error).to_json() == {
        "toolCallId": "call-1",
        "toolName": "http-fetch__get",
        "status": "error",
        "error": {
            "code": "E_TOOL",
            "name": "Error",
            "message": "요청 실패",
            "suggestion": "입력 파라미터를 확인하세요.",
            "helpUrl": "https://docs.goondan.ai/errors/E_TOOL",
        },
    }


@pytest.mark.rule("004-12.3.1-1")
def test_an_error_is_reported_as_the_other_document_prints_it():
    reported = ToolCallResult.failed(CALL, ToolError(message="요청 실패")).to_json()
    printed = {"status": "error", "error": {"message": "요청 실패", "name": "Error", "code": "E_TOOL"}}
    assert printed == {member: reported[member] for member in printed}


@pytest.mark.rule("002-8.2-1")
def test_a_call_has_the_members_id_name_and_args():
    reported = {"id": "call-1", "name": "http-fetch__get", "args": {"url": "https://api.example/"}}
    assert (reported, CALL) == (CALL.to_json(), ToolCall.from_json(reported))


@given(
    output=st.none() | st.text() | st.lists(st.integers()),
    handle=st.none() | st.text(min_size=1),
    error=st.none()
    | st.builds(ToolError, message=st.text(), suggestion=st.none() | st.text(), help_url=st.none() | st.text()),
)
def test_a_result_that_is_read_from_its_json_prints_the_same(output: Any, handle: str | None, error: ToolError | None):
    status: Any = "ok" if error is None else "error"
    result = ToolCallResult(
        tool_call_id="c", tool_name="a__b", status=status, output=output, handle=handle, error=error
    )
    assert result.to_json() == ToolCallResult.from_json(result.to_json()).to_json()


@pytest.mark.rule("004-12.3-1", "004-12.3-2")
def test_a_result_has_an_output_or_a_handle():
    done = ToolCallResult(tool_call_id="call-1", tool_name="a__b", output=None)
    assert done.to_json() == {"toolCallId": "call-1", "toolName": "a__b", "status": "ok", "output": None}
    submitted = ToolCallResult(tool_call_id="call-1", tool_name="a__b", handle="h-1")
    assert submitted.to_json() == {"toolCallId": "call-1", "toolName": "a__b", "status": "ok", "handle": "h-1"}


@pytest.mark.rule("002-10.4-1")
@given(message=st.text(max_size=80), limit=st.integers(1, 60))
def test_a_message_is_cut_to_the_limit_with_the_suffix_inside(message, limit):
    cut = truncated(message, limit)
    assert len(cut) <= limit
    assert cut == message if len(message) <= limit else cut.endswith(TRUNCATED[:limit])


def printed(message: str, limit: int) -> str:
    """Return what the document's function does, which counts UTF-16 code units."""
    units = message.encode("utf-16-le")
    if len(units) // 2 <= limit:
        return message
    return units[: 2 * (limit - len(TRUNCATED))].decode("utf-16-le", "replace") + TRUNCATED


@pytest.mark.rule("002-10.4-1")
@given(
    message=st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=80),
    limit=st.integers(15, 60),
)
def test_a_message_is_cut_as_the_document_does(message, limit):
    assert truncated(message, limit) == printed(message, limit)


@pytest.mark.rule("002-10.4-1")
def test_a_character_beyond_16_bits_counts_once_and_is_never_halved():
    assert "\U0001f600" * 20 == truncated("\U0001f600" * 20, 20)
    assert "\U0001f600" * 5 + TRUNCATED == truncated("\U0001f600" * 21, 20)
    assert "\ufffd" in printed("\U0001f600" * 21, 20), "the printed function leaves half a character"
