"""The server's own stories once more: another loop may cut, hold up and end connections in its own way."""

from __future__ import annotations

import asyncio

import uvloop

from oauthbroker.serving.loop import fastest_loop
from tests.story.test_server_answers import *  # noqa: F403
from tests.story.test_server_doors import *  # noqa: F403
from tests.story.test_server_limits import *  # noqa: F403


async def test_this_is_the_loop_that_serves() -> None:
    make = fastest_loop()
    assert make is uvloop.new_event_loop
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
