"""Values that an isolated tool returns or raises are outputs, refusals or errors as in the agent's process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oauthbroker.tools.isolation.containment import Containment
from oauthbroker.tools.isolation.process_tool import ProcessTool
from oauthbroker.tools.types.failures import ToolFailure
from tests.kit.hostile_values import ERRORS, PLAIN, VALUES
from tests.unit.tools.contexts import context

TOOL = ProcessTool(entry=Path(__file__).with_name("hostile_values_tool.py"), containment=Containment())


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", [*VALUES, *ERRORS])
async def test_a_value_of_an_isolated_tool_never_ends_its_process(name: str, tmp_path: Path):
    if name in PLAIN and "__await__" not in name:
        output = await TOOL.call("give", context(workdir=tmp_path), {"name": name})
        assert json.dumps(output, ensure_ascii=False).encode()
        return
    with pytest.raises(ToolFailure) as failed:
        await TOOL.call("give", context(workdir=tmp_path), {"name": name})
    assert failed.value.error.name not in {"ToolProcessEnded", "ToolAnswerInvalid", "ToolOutputTooLarge", "ToolTimeout"}
    assert name in ERRORS or "__await__" in name or failed.value.error.name == "OutputError"
