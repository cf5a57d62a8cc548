"""The HTTP proxy by which requests leave a company's network: what goes through it, and which names it may resolve."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import quote

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.secret import Secret
from oauthbroker.model.provider_networks import is_loopback

_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
# Two labels at least. The last one begins with a letter: a host that ends in a number is an IPv4 address to some
# resolvers, in decimal, octal or hexadecimal (WHATWG URL, section 3.5).
_NAME = re.compile(rf"({_LABEL}\.)+[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?")
# Special-use names of IANA, and what routers, clusters and companies call their own.
_INNER = ("local", "localhost", "localdomain", "internal", "intranet", "private", "corp", "lan", "home", "home.arpa",
          "svc", "cluster", "default", "onion", "alt", "test", "invalid")  # fmt: skip

PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")  # of other programs; we never read them
PROXY_RESOLVES = (
    "outgoingProxy.resolve: proxy. The proxy looks names up, so it alone keeps requests out of your own networks."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingProxy:
    """`host` and `port` are the proxy's, spoken to by TLS with `tls`; `ca` (PEM) is trusted for that too.

    `credentials` are `user:password`, which the variable `credentials_env` holds; they go to the proxy alone.
    `direct_hosts` are reached without it: names, or suffixes that begin with a dot. With `resolves` the proxy gets
    names and looks them up itself; without, it gets an address that was checked here.
    """

    host: str
    port: int
    tls: bool = False
    ca: str = ""
    credentials_env: str = ""
    credentials: Secret | None = field(default=None, compare=False)
    direct_hosts: tuple[str, ...] = ()
    resolves: bool = False

    @property
    def url(self) -> str:
        """Return the proxy's URL, with its credentials, for a library that takes nothing else. Never log it."""
        user, colon, password = (self.credentials.reveal() if self.credentials else "").partition(":")
        known = f"{quote(user, safe='')}:{quote(password, safe='')}@" if colon else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{known}{host}:{self.port}"

    def is_for(self, host: str) -> bool:
        """Tell whether a connection to this host goes through the proxy. A loopback address is this machine's own."""
        name = host.lower().rstrip(".")
        return not is_loopback(host) and not any(
            name == each or (each.startswith(".") and name.endswith(each)) for each in self.direct_hosts
        )


def is_public_name(host: str) -> bool:
    """Tell whether a proxy may look this name up: it is no address in any spelling, no single label, and none of inner
    networks."""
    name = host.lower()
    if len(name) > 253 or not _NAME.fullmatch(name) or _is_address(name):
        return False
    return not any(name.endswith(f".{each}") for each in _INNER)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
