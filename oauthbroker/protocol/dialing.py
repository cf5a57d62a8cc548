"""Connections to addresses that were looked at: a name is resolved once, judged, and what was judged is dialled.

Whoever resolves a second time, after having looked, may be told another address then (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from oauthbroker.protocol.lookups import Lookups
from oauthbroker.reach import Reach

if TYPE_CHECKING:
    import httpcore2

_ATTEMPT_SECONDS = 3.0  # for each of several addresses but the last


class AddressRefused(Exception):
    """The host has no address that we may connect to."""


# The app whose request a connection is for. Set where the request is known, read where only the host is.
asking: ContextVar[str] = ContextVar("oauthbroker_asking", default="")


class Dialer:
    """A network backend of httpcore2 around another one. The address is ours; TLS still goes by the name."""

    def __init__(self, inner: httpcore2.AsyncNetworkBackend, reach: Reach, lookups: Lookups) -> None:
        self._inner = inner
        self._reach = reach
        self._lookups = lookups

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Raises `NoAddress`, `AddressRefused`, or what the inner backend raises for the last address."""
        import httpcore2

        *others, last = await self._addresses(host)
        for address in others:
            try:
                return await self._inner.connect_tcp(
                    address, port, min(timeout or _ATTEMPT_SECONDS, _ATTEMPT_SECONDS), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(last, port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise AddressRefused

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def _addresses(self, host: str) -> list[str]:
        admitted = [each for each in await self._lookups.addresses(host, asking.get()) if self._reach.admits(each)]
        if not admitted:
            raise AddressRefused
        return admitted
