"""Who the caller is when a proxy of ours stands in between: X-Forwarded-For, believed from listed proxies only.

Nothing else that a proxy or a client says about a request is ever believed: addresses come from `publicBaseUrl`
(case 84). A request with such a header is noted: it did not come from this machine alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.requests import Request
from starlette.types import Scope

from oauthbroker.core.header_names import ORDINARY, is_relayed, overrides_method, spelled
from oauthbroker.web.middleware.exchange import EXCHANGE

Address = IPv4Address | IPv6Address
_WITH_PORT = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:]+))(?::\d{1,5})?")
MOST_HOPS = 32
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Proxies:
    """The proxies of `trustedProxies`: addresses and networks."""

    __slots__ = ("_networks",)

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._networks = tuple(ip_network(each, strict=False) for each in trusted)

    def look_behind(self, scope: Scope) -> bool:
        """Return whether a proxy stands in between: by a header as it came, or because the connection's other end is a
        listed proxy, which names the client. Then drop what only a proxy may say: no route is to believe it."""
        unusual = dict(scope["headers"]).keys() - ORDINARY
        is_listed = bool(self._networks) and self.lists((scope.get("client") or ("",))[0])
        is_relayed_by = is_listed or (bool(unusual) and any(_is_of_proxy(spelled(name)) for name in unusual))
        if is_listed:
            self._name_client(scope)
        if unusual:
            scope["headers"] = [pair for pair in scope["headers"] if not is_relayed(spelled(pair[0]))]
        return is_relayed_by

    def _name_client(self, scope: Scope) -> None:
        """Put the address of who asked into `scope["client"]`."""
        said = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        found = self.client(scope["client"][0], b",".join(said).decode("latin-1"))
        if found is not None:
            scope["client"] = (found, 0)

    def client(self, peer: str, said: str) -> str | None:
        """Return the rightmost address that is not a proxy of ours; None where the peer's word does not count.

        A text that is no address ends the search, and so does loopback: no header makes a caller local.
        """
        at = _address(peer)
        if at is None or not said or not self._lists(at):
            return None
        for hop in reversed(said.rsplit(",", MOST_HOPS)[-MOST_HOPS:]):
            before = _address(hop.strip())
            if before is None or before.is_loopback:
                break
            at = before
            if not self._lists(at):
                break
        return str(at)

    def lists(self, peer: str) -> bool:
        """Return whether this is a proxy of ours."""
        at = _address(peer) if self._networks else None
        return at is not None and self._lists(at)

    def _lists(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _is_of_proxy(name: bytes) -> bool:
    return name == b"via" or is_relayed(name) or overrides_method(name)


def is_local(request: Request) -> bool:
    """Return whether the caller is on this machine: the other end is loopback, so is the requested host, and no proxy
    shows. A proxy on this machine that adds no header and asks for our own name looks the same."""
    exchange = request.scope.get(EXCHANGE)
    if exchange is None or exchange.is_relayed:  # what did not come through the gate is not checked
        return False
    name, colon, port = request.headers.get("host", "").lower().rpartition(":")
    host = name if colon and port.isdigit() else name + colon + port
    try:
        return host in _LOCAL_NAMES and request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _address(text: str) -> Address | None:
    """`192.0.2.1`, `2001:db8::1`, and both with a port; an IPv4-mapped IPv6 address counts as IPv4."""
    with_port = _WITH_PORT.fullmatch(text)
    for each in (text, with_port and (with_port["six"] or with_port["four"])):
        try:
            found = ip_address(each or "")
        except ValueError:
            continue
        return getattr(found, "ipv4_mapped", None) or found
    return None
