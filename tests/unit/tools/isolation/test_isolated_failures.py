"""The failure of an isolated tool reaches the model with all its members."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.isolation.process_tool import ProcessTool
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import TRUNCATED, Submitted
from tests.unit.tools.contexts import context
from tests.unit.tools.kit import performed

MEMBERS = {
    "message": "There is no such city.",
    "name": "CityUnknown",
    "code": "E_CITY",
    "suggestion": "Ask for another city.",
    "help_url": "https://docs.example.com/cities",
}
ENTRY = f"""\
from oauthbroker.tools import GoesOn, Submitted, ToolFailure


def fail(ctx, args):
    raise ToolFailure(**{MEMBERS!r})


def long(ctx, args):
    text = args["text"] * 100_000
    raise ToolFailure(text, name=text, code=text, suggestion=text, help_url=text)


def plain(ctx, args):
    raise ValueError(args["text"] * 100_000)


def goes_on(ctx, args):
    async def work():
        return 1

    return GoesOn(work())


def submitted(ctx, args):
    return Submitted("job-7")


class Odd(Exception):
    class error:
        to_json = staticmethod(lambda: {{"name": "Odd", "message": "odd", "helpUrl": 5, "suggestion": []}})


def odd(ctx, args):
    raise Odd


handlers = {{"fail": fail, "odd": odd, "long": long, "plain": plain, "goes_on": goes_on, "submitted": submitted}}
"""


@pytest.fixture
def tool(tmp_path: Path) -> ProcessTool:
    tmp_path.joinpath("cities.py").write_text(ENTRY, "utf-8")
    return ProcessTool(entry=tmp_path / "cities.py", containment=Containment())


@pytest.mark.rule("002-2.4-4", "002-2.4-5", "002-10.1-2")
async def test_suggestion_and_help_url_of_a_failure_are_kept(tool, tmp_path):
    with pytest.raises(ToolFailure) as failed:
        await tool.call("fail", context(workdir=tmp_path), {})
    assert MEMBERS == {name: getattr(failed.value.error, name) for name in MEMBERS}


@pytest.mark.rule("002-10.2-3")
async def test_no_work_of_an_isolated_call_goes_on_in_its_process(tool, tmp_path):
    with pytest.raises(ToolFailure, match="of the type 'GoesOn'") as failed:
        await tool.call("goes_on", context(workdir=tmp_path), {})
    assert "E_TOOL_OUTPUT" == failed.value.error.code
    assert Submitted("job-7") == await tool.call("submitted", context(workdir=tmp_path), {}), "it goes on elsewhere"


@pytest.mark.rule("002-10.1-2", "002-10.4-1", "002-2.4-2")
@pytest.mark.parametrize("text", ["x", "한 ", "😀 ", "\0 ", '" '])
@pytest.mark.parametrize("export", ["long", "plain"])
async def test_a_long_failure_is_reported_as_that_of_a_tool_of_the_agents_process(tool, tmp_path, export, text):
    def here(_ctx: object, _args: object) -> None:
        whole = text * 100_000
        raise ToolFailure(whole, name=whole, code=whole) if export == "long" else ValueError(whole)

    async def isolated(_ctx: object, _args: object) -> object:
        return await tool.call(export, context(workdir=tmp_path), {"text": text})

    one, other = [(await performed(handler, limit=120)).error for handler in (here, isolated)]
    assert one is not None
    assert other is not None
    assert (120, TRUNCATED) == (len(other.message), other.message[-len(TRUNCATED) :])
    assert one.message == other.message
    assert one.name == other.name or " " not in text, "it ends at a space"


async def test_members_that_are_no_text_are_left_out(tool, tmp_path):
    with pytest.raises(ToolFailure) as failed:
        await tool.call("odd", context(workdir=tmp_path), {})
    assert ("odd", None, None) == (str(failed.value), failed.value.error.suggestion, failed.value.error.help_url)
