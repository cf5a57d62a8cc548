"""What a probe asks: is the process alive, is all well, and can it be sent work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Life
from oauthbroker.diagnostics.health import HealthCheck
from oauthbroker.diagnostics.own_brokers import ASKED, Mac, proof_of
from oauthbroker.observability.logging import Log
from oauthbroker.observability.repeats import Repeats, StoreOutage
from oauthbroker.web.html.form_routes import route
from oauthbroker.web.middleware.security_headers import security_headers

STOPPING = "stopping"
FRESH_SECONDS = 1.0  # probes cost a write; no more than one a second, however many ask
PATIENCE_SECONDS = 2.0
MOMENT_SECONDS = 0.5  # the patience of a probe for being alive, which a store that hangs must not fail
ReadyStatus = Literal["ready", "unready"]


class Readiness:
    """Whether this process can do its work: it is not ending, and its store can be read and written, or is away and
    tokens are handed out without it.

    `probe` reads and reserves space in the store, and raises what that comes to. The log has its note: probes of
    strangers get the code alone.
    """

    def __init__(
        self,
        probe: Callable[[], Awaitable[None]],
        life: Life,
        clock: Clock,
        *,
        may_degrade: Callable[[], bool],
        outage: StoreOutage,
        log: Log,
    ) -> None:
        self._probe = probe
        self._log, self._repeats, self._outage = log, Repeats(clock), outage
        self._lasting = False  # of the last error: a person has to mend it
        self._may_degrade = may_degrade
        self._life = life
        self._clock = clock
        self._looked: tuple[float, str | None] | None = None
        self._looking: asyncio.Task[str | None] | None = None

    async def problems(self) -> tuple[str, ...]:
        """`stopping`, a store's code, or nothing."""
        if self._life.stopping:
            return (STOPPING,)
        found = await self._store(PATIENCE_SECONDS)
        is_away = found == Code.STORE_UNAVAILABLE.value and not self._lasting
        if found is None or (is_away and self._may_degrade()):
            return ()
        return (found,)

    async def look(self) -> None:
        """Look for a moment whether the store is away, so that the health is the present one. A broker that stops
        closes its store, which is no outage."""
        if not self._life.stopping:
            await self._store(MOMENT_SECONDS)

    async def _store(self, patience: float) -> str | None:
        now = self._clock.monotonic()
        if self._looked is not None and 0 <= now - self._looked[0] < FRESH_SECONDS:
            return self._looked[1]
        if self._looking is None or self._looking.done():  # a disk that hangs is asked once, not by each probe
            self._looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(self._looking)
        except TimeoutError:
            return Code.STORE_UNAVAILABLE.value

    async def _look(self) -> str | None:
        try:
            await self._outage.look(self._probe)
            found = None
        except BrokerError as error:
            found, self._lasting = error.code.value, error.lasting
            if self._repeats.is_new(found, error.note):
                self._log.warning("the store cannot be used", code=found, note=error.note)
        self._looked = (self._clock.monotonic(), found)
        return found


def health_routes(health: HealthCheck, readiness: Readiness, mac: Mac) -> list[BaseRoute]:
    async def show_health(request: Request) -> Response:
        """Answer 200 always: the process answers and serves tokens. A restart on another status would end a broker that
        works, and with a broken configuration it would not come up again. The body has the problems, and for another
        broker of this store the proof that we are one."""
        await readiness.look()
        body, challenge, server = health.now().to_json(), request.query_params.get(ASKED), request.scope.get("server")
        if challenge and server and server[1]:
            body[ASKED] = proof_of(mac, challenge, server[1])
        return JSONResponse(body, headers=security_headers())

    async def show_readiness(_: Request) -> Response:
        """Answer 200, or 503 with problems while no work should be sent here. A restart fixes none of them."""
        problems = await readiness.problems()
        status: ReadyStatus = "unready" if problems else "ready"
        body = {"status": status, **({"problems": list(problems)} if problems else {})}
        return JSONResponse(body, 503 if problems else 200, headers=security_headers())

    return [route("/healthz", show_health, "GET", "HEAD"), route("/readyz", show_readiness, "GET", "HEAD")]
