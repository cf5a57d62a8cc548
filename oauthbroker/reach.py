"""Which networks providers may be in: the public internet, and what the operator lists. Pure: nothing is resolved.

Addresses come out of documents and resolvers that others control. Without this a provider's own metadata, or a name
that changes its mind, could make us send a client secret to a neighbour in our own network.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


@dataclass(frozen=True, slots=True)
class Reach:
    """`networks` are addresses or networks beside the public ones; `loopback` is for development on one machine."""

    networks: tuple[str, ...] = ()
    loopback: bool = False

    def admits(self, text: str) -> bool:
        """Whether a provider may be at this address. False for what is no address."""
        try:
            address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
        except ValueError:
            return False
        seen = _meant(address)
        if any(each in ipaddress.ip_network(network) for network in self.networks for each in {address, seen}):
            return True
        if seen.is_loopback:
            return self.loopback
        return seen.is_global and not seen.is_multicast and address.is_global

    def refuses(self, host: str) -> bool:
        """Whether this host is an address, and one that is not admitted. What a name means is only known later."""
        try:
            ipaddress.ip_address(host.strip("[]").partition("%")[0])
        except ValueError:
            return False
        return not self.admits(host)


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to, where it does: mapped, compatible, 6to4, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
