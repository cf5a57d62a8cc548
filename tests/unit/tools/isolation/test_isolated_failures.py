"""The failure of an isolated tool reaches the model with all its members."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.isolation.process_tool import ProcessTool
from oauthbroker.tools.types.failures import ToolFailure
from tests.unit.tools.contexts import context

MEMBERS = {
    "message": "There is no such city.",
    "name": "CityUnknown",
    "code": "E_CITY",
    "suggestion": "Ask for another city.",
    "help_url": "https://docs.example.com/cities",
}
ENTRY = f"""\
from oauthbroker.tools import ToolFailure


def fail(ctx, args):
    raise ToolFailure(**{MEMBERS!r})


class Odd(Exception):
    class error:
        to_json = staticmethod(lambda: {{"name": "Odd", "message": "odd", "helpUrl": 5, "suggestion": []}})


def odd(ctx, args):
    raise Odd


handlers = {{"fail": fail, "odd": odd}}
"""


@pytest.fixture
def tool(tmp_path: Path) -> ProcessTool:
    tmp_path.joinpath("cities.py").write_text(ENTRY, "utf-8")
    return ProcessTool(entry=tmp_path / "cities.py", containment=Containment())


@pytest.mark.rule("002-2.4-4", "002-2.4-5")
async def test_suggestion_and_help_url_of_a_failure_are_kept(tool, tmp_path):
    with pytest.raises(ToolFailure) as failed:
        await tool.call("fail", context(workdir=tmp_path), {})
    assert MEMBERS == {name: getattr(failed.value.error, name) for name in MEMBERS}


async def test_members_that_are_no_text_are_left_out(tool, tmp_path):
    with pytest.raises(ToolFailure) as failed:
        await tool.call("odd", context(workdir=tmp_path), {})
    assert ("odd", None, None) == (str(failed.value), failed.value.error.suggestion, failed.value.error.help_url)
