"""One timer ends every request that is late, each at its own time, and none that was let off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from oauthbroker.web.gate.request_limits import may_take_long
from oauthbroker.web.html.form_routes import Paths, route
from oauthbroker.web.middleware.deadlines import Deadlines
from oauthbroker.web.middleware.exchange import EXCHANGE, HttpExchange
from tests.unit.web.kit import ask, gated

SECONDS = 0.05


async def unused(_message: object = None) -> Any: ...


async def lasting(deadlines: Deadlines, work: Callable[[HttpExchange], Awaitable[object]]) -> float | None:
    """Return the seconds after which the work was ended; None if it came to its own end."""
    began = asyncio.get_running_loop().time()
    exchange = HttpExchange(unused, unused, request_id="", headers=(), deadlines=deadlines)
    deadlines.set(exchange)
    try:
        await work(exchange)
    except asyncio.CancelledError:
        if not exchange.end_time():
            raise
        return asyncio.get_running_loop().time() - began
    finally:
        deadlines.lift(exchange)
    return None


async def forever(_exchange: HttpExchange) -> None:
    await asyncio.sleep(5)


async def test_each_is_ended_at_its_own_time() -> None:
    deadlines = Deadlines(SECONDS)
    asked = []
    for _ in range(3):
        asked.append(asyncio.create_task(lasting(deadlines, forever)))
        await asyncio.sleep(SECONDS / 3)
    ended = [await each for each in asked]
    assert all(seconds is not None and SECONDS * 0.9 <= seconds for seconds in ended)
    assert {} == deadlines._ends
    assert await lasting(deadlines, forever), "and so is one that comes when all others are over"


async def test_one_that_may_take_long_goes_on_while_the_timer_ends_another() -> None:
    deadlines = Deadlines(SECONDS)

    async def let_off(exchange: HttpExchange) -> None:
        exchange.take_time()
        await asyncio.sleep(SECONDS * 3)

    patient, late = await asyncio.gather(lasting(deadlines, let_off), lasting(deadlines, forever))
    assert patient is None
    assert late is not None


async def test_one_that_begins_to_answer_at_the_last_moment_is_not_ended() -> None:
    """Its timer has run, and its task is not cancelled yet."""
    deadlines = Deadlines(0)

    async def at_the_last_moment(exchange: HttpExchange) -> None:
        deadlines._end_late(asyncio.get_running_loop())
        exchange.take_time()
        await asyncio.sleep(0.01)

    assert await lasting(deadlines, at_the_last_moment) is None


def test_a_loop_that_has_ended_keeps_none_of_the_next_from_its_end() -> None:
    deadlines = Deadlines(SECONDS)

    async def left_behind() -> None:
        task = asyncio.create_task(lasting(deadlines, forever))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(left_behind())
    assert asyncio.run(lasting(deadlines, forever)) is not None


async def test_a_late_request_that_is_cancelled_too_stays_cancelled() -> None:
    deadlines = Deadlines(0)

    async def cancelled(exchange: HttpExchange) -> None:
        exchange.end_late()
        task.cancel()
        await asyncio.sleep(5)

    task = asyncio.create_task(lasting(deadlines, cancelled))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_request_in_a_task_that_was_cancelled_before_ends_at_its_time() -> None:
    async def shielded() -> float | None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return await lasting(Deadlines(SECONDS), forever)

    task = asyncio.create_task(shielded())
    await asyncio.sleep(0)
    task.cancel()
    assert await task is not None


@pytest.mark.parametrize("patient", [True, False])
async def test_a_cancelled_request_is_no_late_one(patient: bool) -> None:
    async def waits(request: Request) -> Response:
        if patient:
            may_take_long(request)
        await asyncio.sleep(5)
        return PlainTextResponse("")

    gate, _ = gated(Paths([route("/", waits, "GET")]), seconds=SECONDS)
    task = asyncio.create_task(ask(gate))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {} == gate.deadlines._ends


async def test_a_request_that_is_over_is_kept_by_nothing() -> None:
    seen = []

    async def app(scope, receive, send):
        seen.append(scope)
        await PlainTextResponse("")(scope, receive, send)

    gate, _ = gated(app)
    await ask(gate)
    (scope,) = seen
    assert EXCHANGE not in scope
    assert {} == gate.deadlines._ends
