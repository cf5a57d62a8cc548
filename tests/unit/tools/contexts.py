"""A context for calls of handlers."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from oauthbroker.tools.calling.context import AuthorizedToolContext, ToolContext
from oauthbroker.tools.types.results import Message

BLANK = ToolContext(
    agent_name="planner",
    instance_key="thread-1",
    turn_id="turn-1",
    trace_id="trace-1",
    tool_call_id="call-1",
    message=Message(id="m-1", role="assistant", text="hi"),
    workdir=Path("/nonexistent"),
    logger=logging.getLogger("tests.tools"),
)


def context(**changes: Any) -> ToolContext:
    return replace(BLANK, **changes)


def authorized(oauth: Any) -> AuthorizedToolContext[Any]:
    blank = context()
    members = {name: getattr(blank, name) for name in blank.__dataclass_fields__}
    return AuthorizedToolContext(**members, oauth=oauth)
