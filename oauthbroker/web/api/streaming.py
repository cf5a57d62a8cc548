"""Events over HTTP: one by long polling, or a stream of them (server-sent events, the HTML standard, section 9.2).

An event that is handed out is leased. If its caller disconnects or loses its rights before that, the event is given
back at once. An event that was written to a caller keeps its lease until that ends, because the caller may have read
it. A stream ends when its caller lets a lease end: it may hang, and would use up every event's attempts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oauthbroker.core.clock import printed
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import to_its_end
from oauthbroker.events.port import EventLease
from oauthbroker.events.waits import POLL_SECONDS
from oauthbroker.services import Services
from oauthbroker.web.api.handler_call import Still, encoded
from oauthbroker.web.middleware.access_log import note_refusal

HEARTBEAT_SECONDS = 15.0
MOST_UNSETTLED = 16
STREAM = "text/event-stream"


def leased(delivery: EventLease) -> dict[str, Any]:
    """Return an event with its lease, which settles it."""
    return {
        "event": delivery.to_json(),
        "lease": delivery.lease,
        "attempt": delivery.attempt,
        "leaseExpiresAt": printed(delivery.until),
    }


@asynccontextmanager
async def watching(request: Request) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set once the caller has gone. Its body has been read by then: nothing else can come."""
    gone = asyncio.Event()

    async def watch() -> None:
        with suppress(ClientDisconnect):
            while (await request.receive())["type"] != "http.disconnect":
                pass
        gone.set()

    task = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        task.add_done_callback(_heard)
        task.cancel()  # and not awaited: a request that is cancelled there would lose the event that it leased


def _heard(watching: asyncio.Task[None]) -> None:
    """Retrieve an exception, so that asyncio does not report it: the answer does not depend on it."""
    if not watching.cancelled():
        watching.exception()


class OneEvent(Response):
    """The answer to a long poll. A request that is cancelled before the answer was sent gives its event back."""

    media_type = "application/json"

    def __init__(self, delivery: EventLease) -> None:
        super().__init__(encoded(leased(delivery)))
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            await _give_back(self._delivery)
            raise


async def lease_for(
    services: Services, agent: str, wait: float, gone: asyncio.Event, still: Still
) -> EventLease | None:
    """Lease the agent's next event, or None after `wait` seconds, when `gone` is set, or when the broker is ending.

    However this call ends, an event that it did not hand over is given back. Raises what `still` raises.
    """
    leasing = asyncio.ensure_future(services.events.lease(agent, wait=wait, gone=gone))
    try:
        delivery = await asyncio.shield(leasing)
    except asyncio.CancelledError:
        gone.set()
        await to_its_end(asyncio.ensure_future(_give_back_late(leasing)))
        raise
    if delivery is None:
        return None
    try:
        await still()
    except BaseException:
        await _give_back(delivery)
        raise
    if gone.is_set():
        await _give_back(delivery)
        return None
    return delivery


async def _give_back_late(leasing: asyncio.Future[EventLease | None]) -> None:
    with suppress(BrokerError):
        if (late := await leasing) is not None:
            await late.give_back()


async def _give_back(delivery: EventLease) -> None:
    """Give the lease back. If the store does not work now, it ends by itself."""
    with suppress(BrokerError):
        await delivery.give_back()


class EventStream(Response):
    """Every event of an agent while the caller listens; at most `MOST_UNSETTLED` that it has not settled yet."""

    media_type = STREAM

    def __init__(self, *, services: Services, request: Request, agent: str, still: Still) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._services = services
        self._request = request
        self._agent = agent
        self._still = still
        self._open: dict[str, datetime] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  (ASGI)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with watching(self._request) as gone:
            try:
                await self._stream(send, gone)
            except BrokerError as error:  # no caller any more, one that hangs, or a store that does not work now
                note_refusal(scope, error)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, send: Send, gone: asyncio.Event) -> None:
        """Send events. A comment is sent at once, so that the caller knows it is connected, and in every pause."""
        clock, life = self._services.clock, self._services.life
        said = clock.monotonic() - HEARTBEAT_SECONDS
        while not (gone.is_set() or life.stopping):
            await self._look_at_leases()
            left = said + HEARTBEAT_SECONDS - clock.monotonic()
            if left <= 0:
                await self._still()
                await _write(send, b":\n\n")
                said = clock.monotonic()
                continue
            if len(self._open) >= MOST_UNSETTLED:
                with suppress(TimeoutError):
                    await asyncio.wait_for(gone.wait(), POLL_SECONDS)
                continue
            wait = min(left, self._until_a_lease_ends())
            delivery = await lease_for(self._services, self._agent, wait, gone, self._may_go_on)
            if delivery is not None:
                await self._hand_out(send, delivery)
                said = clock.monotonic()

    async def _may_go_on(self) -> None:
        await self._still()
        await self._look_at_leases()

    async def _look_at_leases(self) -> None:
        """Forget settled leases. Raises `leaseLost` when one has ended unsettled."""
        if not self._open:
            return
        now = self._services.clock.now()
        held = await self._services.events.unsettled(self._agent, self._open)
        over = {lease for lease, until in self._open.items() if until <= now}
        lapsed = over - await self._services.events.settled(self._agent, over) if over else over
        self._open = {lease: until for lease, until in self._open.items() if lease in held}
        if lapsed:
            raise BrokerError(Code.LEASE_LOST)

    def _until_a_lease_ends(self) -> float:
        ends = min(self._open.values(), default=None)
        return HEARTBEAT_SECONDS if ends is None else max(0.0, (ends - self._services.clock.now()).total_seconds())

    async def _hand_out(self, send: Send, delivery: EventLease) -> None:
        self._open[delivery.lease] = delivery.until
        try:
            await _write(send, message_of(delivery))
        except asyncio.CancelledError:
            await _give_back(delivery)
            raise


def message_of(delivery: EventLease) -> bytes:
    """Return one message of the stream."""
    data = json.dumps(leased(delivery), ensure_ascii=False, separators=(",", ":"))
    return f"id: {delivery.id}\nevent: {delivery.type}\ndata: {data}\n\n".encode()


async def _write(send: Send, part: bytes) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": True})
