"""Connect to checked addresses: resolve a name once, check its addresses, and connect to one of these.

A second resolution after the check could return another address (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.protocol.network.name_lookups import Lookups

if TYPE_CHECKING:
    import httpcore2

_ATTEMPT_SECONDS = 3.0  # for each of several addresses but the last


class AddressRefused(Exception):
    """The host has no address that we may connect to."""


# The app whose request opens a connection. Set with the request, read where only the host is known.
asking: ContextVar[str] = ContextVar("oauthbroker_asking", default="")


class Dialer:
    """A network backend of httpcore2 around another one. It connects to checked addresses; TLS still verifies the
    name."""

    def __init__(self, inner: httpcore2.AsyncNetworkBackend, reach: ProviderNetworks, lookups: Lookups) -> None:
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
        """Connect to the first address that answers. Raises `NoAddress`, `AddressRefused`, or the inner backend's
        error for the last address."""
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
