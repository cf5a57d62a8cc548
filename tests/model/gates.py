"""Where a real refresh stops so that a trace decides what comes next: the seams of the store and of the provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.owner_check import OwnerFacts
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.transport import TransportFailed
from oauthbroker.store.format.port import Entry, Key, Lease, Store

PATIENCE = 20.0  # seconds
OVER = "over"
_gated: ContextVar[Gates | None] = ContextVar("gated", default=None)


class Gates:
    """The stops of one refresh. It waits at each one until it is told to go on, and ends there if its process dies."""

    def __init__(self) -> None:
        self.at = ""
        self.caller: asyncio.Task[Any] | None = None
        self.was_stored = True  # at the first try
        self._arrived, self._go, self._dead = asyncio.Event(), asyncio.Event(), False

    def begin(self, work: Coroutine[Any, Any, Any], rest: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Start a call for its caller. It is over when `rest` is, too: what goes on after the answer."""

        async def whole(caller: asyncio.Task[Any]) -> None:
            await asyncio.wait([caller])
            await rest()
            self._arrive(OVER)

        token = _gated.set(self)
        self.caller = asyncio.create_task(work)
        self._whole = asyncio.create_task(whole(self.caller))
        _gated.reset(token)

    def die(self) -> None:
        self._dead = True
        self._go.set()
        if self.caller is not None:
            self._whole.cancel()
            self.caller.cancel()

    @property
    def answered(self) -> bool:
        return self.caller is not None and self.caller.done()

    async def stop(self, name: str) -> None:
        self._go.clear()
        self._arrive(name)
        await self._go.wait()
        if self._dead:
            raise asyncio.CancelledError

    def _arrive(self, name: str) -> None:
        self.at = name
        self._arrived.set()

    async def until(self, name: str, *passing: str) -> None:
        """Go on until the stop with this name, past those that are `passing`."""
        while True:
            if self.at:
                self._arrived.clear()
                self.at = ""
                self._go.set()
            async with asyncio.timeout(PATIENCE):
                await self._arrived.wait()
            assert self.at == name or self.at in passing, f"it is at {self.at!r}, not at {name!r}"
            if self.at == name:
                return


async def stop(name: str) -> None:
    if (gates := _gated.get()) is not None:
        await gates.stop(name)


@dataclass
class Shared:
    """What the hosts share beside the records: the leases of the model, and whether the store can be reached."""

    up: bool = True
    history: int = 0
    lease: int = 0  # as in the model
    quiet: set[int] = field(default_factory=set)
    since: set[int] = field(default_factory=set)  # generations written since the store lost its last writes

    def check_up(self) -> None:
        if not self.up:
            raise BrokerError(Code.STORE_UNAVAILABLE)


@dataclass
class PlayedLease:
    """A lease whose end the trace decides."""

    shared: Shared
    host: int

    @property
    def lost(self) -> bool:
        return self.shared.lease != self.host

    async def holds(self) -> bool:
        self.shared.check_up()
        return not self.lost and self.host not in self.shared.quiet


class GatedStore:
    """The store of one host: a real one, with stops. Provider leases are played; pair leases and entries are real."""

    def __init__(self, real: Store, shared: Shared, host: int) -> None:
        self._real, self._shared, self._host = real, shared, host
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def get(self, key: Key) -> Entry | None:
        self._shared.check_up()
        return await self._real.get(key)

    def unchanged(self, entry: Entry) -> bool:
        return self._shared.up and self._real.unchanged(entry)

    async def is_current(self, *entries: Entry) -> bool:
        return self._shared.up and await self._real.is_current(*entries)

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        self._shared.check_up()
        entry = await self._real.put(key, body, **more)
        if key.kind == "grants":
            self._shared.since.add(entry.generation)
        return entry

    async def history(self) -> str:
        self._shared.check_up()
        return str(self._shared.history)

    async def outlived(self, entry: Entry) -> bool:
        return self._shared.history > 0 and entry.generation not in self._shared.since

    def lease(self, key: Key, *, wait: float) -> AbstractAsyncContextManager[Lease]:
        return self._provider() if key.kind == "provider" else self._pair(key, wait)

    @asynccontextmanager
    async def _provider(self) -> AsyncIterator[Lease]:
        await stop("take")
        held = await self._taken()
        try:
            yield held
        finally:
            self._release()

    def _release(self) -> None:
        if not self.dead and abs(self._shared.lease) == self._host:
            self._shared.lease = 0 if self._shared.up else -self._host

    async def _taken(self) -> Lease:
        assert self._shared.lease <= 0, "two hosts hold the lease"
        self._shared.lease = self._host
        await stop("leased")
        return PlayedLease(self._shared, self._host)

    @asynccontextmanager
    async def _pair(self, key: Key, wait: float) -> AsyncIterator[Lease]:
        await stop("write")
        self._shared.check_up()
        async with self._real.lease(key, wait=wait) as held:
            yield held
        await stop("written")


class GatedAsker:
    """Asks the provider of a trace. `reply` is called with the refresh token and returns its answer; an answer that is
    `None` has been lost."""

    def __init__(self, reply: Callable[[str], bytes | None]) -> None:
        self._reply = reply
        self.fate = ""  # of the answer: "", lost or junk

    async def ask(self, app: App, build: Callable[[App], ProviderRequest], *, kind: str = "") -> ProviderResponse:
        assert kind == "refresh"
        form = build(app).form
        assert form is not None
        await stop("send")
        body = self._reply(form["refresh_token"].reveal())  # type: ignore[union-attr]
        if body is not None:
            await stop("answer")
        if body is None or self.fate == "lost":
            raise TransportFailed("no answer in time", sent=True)
        if self.fate == "junk":
            body = body.replace(b"access_token", b"nothing")
        return ProviderResponse(
            status=400 if b"error" in body else 200, content_type="application/json", retry_after=None, body=body
        )


class Owners:
    """Reads no owner: the answers name none."""

    async def read_again(self, *_: Any) -> OwnerFacts:
        return OwnerFacts()


class NoDiscovery:
    async def endpoints(self, app: App) -> Endpoints:
        return app.endpoints
