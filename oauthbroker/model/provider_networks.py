"""Which networks providers may be in: the public internet, and what the operator lists. Pure: nothing is resolved.

Addresses come out of documents and resolvers that others control. Without this a provider's own metadata, or a name
that changes its mind, could make us send a client secret to a neighbour in our own network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from oauthbroker.core.dataclasses import dataclass

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA's special-purpose registries. Listed here, because Python's own list differs between its patch releases.
_SPECIAL_V4 = tuple(map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24")))
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # IANA gives out global addresses from here and from nowhere else
_SPECIAL_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))

_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # RFC 8215: the prefixes of a network's own translators
_TRANSLATOR_PREFIXES = frozenset({48, 56, 64, 96})  # RFC 6052 section 2.2
_LAST_32_BITS = (_NAT64, IPv6Network("::/96"), IPv6Network("::ffff:0:0:0/96"))  # compatible; translated (RFC 2765)
_ISATAP = {bytes.fromhex(f"{flags}5efe") for flags in ("0000", "0100", "0200", "0300")}  # RFC 5214 section 6.1


@dataclass(frozen=True, slots=True)
class ProviderNetworks:
    """`networks` are addresses or networks beside the public ones; `loopback` is for development on one machine."""

    networks: tuple[str, ...] = ()
    loopback: bool = False

    def admits(self, text: str) -> bool:
        """Return whether a provider may be at this address. False for other text.

        An IPv6 address that leads to an IPv4 one is admitted where both are.
        """
        address = _address(text)
        if address is None:
            return False
        listed = [ipaddress.ip_network(network) for network in self.networks]
        return all(self._fits(each, listed) for each in (address, *_inside(address, listed)))

    def refuses(self, host: str) -> bool:
        """Return whether this host is an address, and one that is not admitted. What a name means is only known
        later."""
        return _address(host) is not None and not self.admits(host)

    def _fits(self, address: Address, listed: list[Network]) -> bool:
        if any(address in network for network in listed):
            return True
        return self.loopback if address.is_loopback else _is_public(address)


def is_loopback(host: str) -> bool:
    """Return whether it is `localhost` or a loopback address. A name that only resolves to one is not."""
    address = _address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def _address(text: str) -> Address | None:
    """Parse an address. An IPv4-mapped one is the IPv4 address: the system connects by IPv4."""
    try:
        address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not any(address in each for each in _SPECIAL_V4)
    if address in _NAT64:
        return True
    return address in _GLOBAL_UNICAST and not _is_isatap(address) and not any(address in each for each in _SPECIAL_V6)


def _inside(address: Address, listed: list[Network]) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses to which an IPv6 one may lead. Where a local translator keeps them depends on the length
    of its prefix, which is the listed one's."""
    if isinstance(address, IPv4Address) or address.is_loopback or address.is_unspecified:
        return
    if any(address in network for network in _LAST_32_BITS) or _is_isatap(address):
        yield IPv4Address(address.packed[12:])
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _LOCAL_NAT64:
        lengths = {network.prefixlen for network in listed if address in network}
        yield from (_translated(address, length) for length in lengths & _TRANSLATOR_PREFIXES)


def _translated(address: IPv6Address, prefix: int) -> IPv4Address:
    """Return the IPv4 address inside an IPv6 one (RFC 6052 section 2.2): behind the prefix, around the octet that stays
    zero."""
    packed = address.packed
    return IPv4Address(packed[12:] if prefix == 96 else (packed[prefix // 8 : 8] + packed[9:])[:4])


def _is_isatap(address: IPv6Address) -> bool:
    return address.packed[8:12] in _ISATAP
