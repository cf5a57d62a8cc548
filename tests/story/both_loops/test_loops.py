"""Name the loop of each test of this folder, and the one that serves."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from oauthbroker.serving.event_loop import fastest_loop


def test_the_server_prefers_uvloop() -> None:
    assert fastest_loop() is uvloop.new_event_loop


async def test_each_test_here_runs_on_the_loop_that_its_name_says(request: pytest.FixtureRequest) -> None:
    on_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)
    assert on_uvloop == ("uvloop" in request.node.name)
