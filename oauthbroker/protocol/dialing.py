"""Connections to addresses that were looked at: a name is resolved once, judged, and what was judged is dialled.

Whoever resolves a second time, after having looked, may be told another address then (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oauthbroker.reach import Reach

if TYPE_CHECKING:
    import httpcore2

_ATTEMPT_SECONDS = 3.0  # for each of several addresses but the last


class AddressRefused(Exception):
    """The host has no address that we may connect to."""


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, in the order of the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Dialer:
    """A network backend of httpcore2 around another one. The address is ours; TLS still goes by the name."""

    def __init__(self, inner: httpcore2.AsyncNetworkBackend, reach: Reach) -> None:
        self._inner = inner
        self._reach = reach

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Raises `AddressRefused`, or what the inner backend raises for the last address."""
        import httpcore2

        *others, last = await self._addresses(host, port)
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

    async def _addresses(self, host: str, port: int) -> list[str]:
        import httpcore2

        try:
            found: list[str] | None = await resolve(host, port)
        except OSError:
            found = None
        if not found:
            raise httpcore2.ConnectError("the name has no address")
        admitted = [address for address in found if self._reach.admits(address)]
        if not admitted:
            raise AddressRefused
        return admitted
