"""Members of uvicorn's connection that ours uses and that uvicorn does not promise to keep. A release that renames one is
red here first. The lists are read from our source, so that they are never out of date."""

from __future__ import annotations

import asyncio
import inspect
import re

import pytest
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from oauthbroker.serving.http1.connection import HttpConnection
from oauthbroker.serving.http1.warm_connection import WarmConnection

OURS = inspect.getsource(HttpConnection) + inspect.getsource(WarmConnection)
INHERITED = set(re.findall(r"\bself\.(\w+)", OURS)) - set(
    re.findall(r"\bself\.(_\w+)", inspect.getsource(HttpConnection.__init__))
)
EXTENDED = set(re.findall(r"\bsuper\(\)\.(\w+)", OURS)) - {"__init__"}
OF_A_CYCLE = set(re.findall(r"\bself\.cycle\.(\w+)", OURS))


@pytest.fixture
async def base() -> HttpToolsProtocol:
    config = uvicorn.Config(Starlette(), http="httptools", lifespan="off", log_config=None)
    config.load()
    return HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())


async def test_every_member_of_the_base_that_we_use_is_there(base: HttpToolsProtocol) -> None:
    inherited = INHERITED - vars(HttpConnection).keys() - vars(WarmConnection).keys()
    assert {"cycle", "parser", "scope", "flow", "transport", "_unset_keepalive_if_required"} <= inherited
    assert [] == sorted(name for name in inherited if not hasattr(base, name))


def test_every_method_of_the_base_that_we_extend_is_there() -> None:
    assert {"on_headers_complete", "on_response_complete", "connection_made"} <= EXTENDED
    silenced = {"_unsupported_upgrade_warning"}
    assert [] == sorted(
        name
        for name in (EXTENDED - {"_read", "_read_head", "_answering"}) | silenced
        if not callable(getattr(HttpToolsProtocol, name, None))
    )


def test_every_member_of_a_request_cycle_that_we_use_is_there() -> None:
    there = set(re.findall(r"\bself\.(\w+)", inspect.getsource(RequestResponseCycle.__init__)))
    assert {"keep_alive", "response_complete", "message_event"} <= OF_A_CYCLE
    assert [] == sorted(OF_A_CYCLE - there)


@pytest.mark.parametrize("name", ["pause_reading", "resume_reading", "pause_writing", "resume_writing"])
def test_flow_control_has_the_method(name: str) -> None:
    assert callable(getattr(FlowControl, name))
