"""Connect to checked addresses: resolve a name once, check its addresses, and connect to one of these.

A second resolution after the check could return another address (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from oauthbroker.model.outgoing_proxy import OutgoingProxy, is_public_name
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.protocol.network.name_lookups import Lookups, NoAddress
from oauthbroker.protocol.network.proxy_tunnel import ProxyFailed, ProxyTunnels

if TYPE_CHECKING:
    import httpcore2

_ATTEMPT_SECONDS = 3.0  # for each of several addresses but the last
_UNKNOWN_HERE = (
    "its name has no address here, and the outgoing proxy gets addresses; "
    "if it can look names up, write outgoingProxy.resolve: proxy"
)
_INSIDE = "the provider's address is in a network that is not listed in providerNetworks"


class AddressRefused(Exception):
    """The host has no address that we may connect to. `note` says why."""

    def __init__(self, note: str = _INSIDE) -> None:
        super().__init__(note)
        self.note = note


class Asking(NamedTuple):
    """Whose request opens a connection: the app, and whether it goes past the company's proxy."""

    app: str = ""
    direct: bool = False


# Set with the request, read where only the host is known.
_NOBODY = Asking()
asking: ContextVar[Asking] = ContextVar("oauthbroker_asking", default=_NOBODY)


class Dialer:
    """A network backend of httpcore2 around another one. It connects to checked addresses, through the company's proxy
    where there is one; TLS still verifies the name."""

    def __init__(
        self,
        inner: httpcore2.AsyncNetworkBackend,
        *,
        reach: ProviderNetworks,
        lookups: Lookups,
        proxy: OutgoingProxy | None = None,
    ) -> None:
        self._inner = inner
        self._reach = reach
        self._lookups = lookups
        self._proxy = proxy

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers. Raises `NoAddress`, `AddressRefused`, `ProxyFailed`, or the inner
        backend's error for the last address."""
        if self._proxy is not None and self._proxy.is_for(host) and not asking.get().direct:
            return await self._tunnel(self._proxy, host, port)
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

    async def _tunnel(self, proxy: OutgoingProxy, host: str, port: int) -> httpcore2.AsyncNetworkStream:
        """Reach the host through the proxy: by the first checked address that it can reach, or by a name that it looks
        up itself."""
        tunnels = ProxyTunnels(proxy, self._inner, self._lookups)
        if proxy.resolves:
            if not is_public_name(host):
                raise AddressRefused("the proxy looks names up, and may only get public ones of two labels or more")
            return await tunnels.open(host, port)
        unknown = False
        try:
            *others, last = await self._addresses(host)
        except NoAddress:
            unknown = True
        if unknown:
            raise NoAddress(_UNKNOWN_HERE)
        for address in others:
            try:
                return await tunnels.open(address, port)
            except ProxyFailed as failed:
                if failed.refused:
                    raise
        return await tunnels.open(last, port)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise AddressRefused

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def _addresses(self, host: str) -> list[str]:
        admitted = [each for each in await self._lookups.addresses(host, asking.get().app) if self._reach.admits(each)]
        if not admitted:
            raise AddressRefused
        return admitted
