"""A base tool whose Tool resource declares no `parameters` tells the model which argument is missing."""

from __future__ import annotations

import inspect

import pytest

from oauthbroker.tools.base import agents, bash, file_system, http_fetch
from oauthbroker.tools.types.failures import ToolFailure
from tests.unit.tools.contexts import context

NEEDED = {
    agents: {"request": ["target", "input"], "send": ["target", "input"], "spawn": ["target"]},
    bash: {"exec": ["command"], "script": ["path"]},
    file_system: {"read": ["path"], "write": ["path", "content"]},
    http_fetch: {"get": ["url"], "post": ["url"]},
}
ROWS = [(tool, export, names) for tool, exports in NEEDED.items() for export, names in exports.items()]


@pytest.mark.parametrize(("tool", "export", "names"), ROWS, ids=lambda each: getattr(each, "__name__", str(each)))
async def test_an_argument_that_is_missing_is_named(tmp_path, tool, export, names):
    for name in names:
        others = dict.fromkeys(names, "x")
        for given, reported in (
            ({each: text for each, text in others.items() if each != name}, "missing"),
            (others | {name: 5}, "not a text"),
        ):
            with pytest.raises(ToolFailure, match=f"The argument '{name}' is {reported}") as failed:
                ended = tool.handlers[export](context(workdir=tmp_path), given)
                assert inspect.isawaitable(ended)
                await ended
            assert "E_TOOL_ARGUMENTS" == failed.value.error.code
