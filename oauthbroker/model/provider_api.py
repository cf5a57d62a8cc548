"""The provider's API of an app: the hosts and methods of requests that may carry its token. Pure: nothing is
resolved."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.model.connect_params import ConnectParam, filled, texts_of

# No CONNECT, which opens a tunnel, and no TRACE, whose answer holds the token.
ApiMethod = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
METHODS: tuple[ApiMethod, ...] = get_args(ApiMethod)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*{_LABEL}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # a last label that some parsers read as part of an IPv4 address
_WRITTEN = re.compile(r"(https?://)?([a-z0-9.-]+)(?::([1-9][0-9]{0,4}))?")


@dataclass(frozen=True, slots=True)
class ApiHost:
    """A host by its exact name. `http` is for a loopback address in development."""

    name: str
    port: int = 443
    scheme: Literal["https", "http"] = "https"

    @property
    def authority(self) -> str:
        """Return the host as requests name it, with a port that is not the scheme's own."""
        own = self.port == (443 if self.scheme == "https" else 80)
        return self.name if own else f"{self.name}:{self.port}"

    @property
    def written(self) -> str:
        """Return the host as the configuration has it."""
        return f"http://{self.authority}" if self.scheme == "http" else self.authority


@dataclass(frozen=True, slots=True)
class AccountHost:
    """A host that differs by account. The member `provider_data` of the grant's data names it, and it ends with
    `within`."""

    provider_data: str
    within: str

    def is_at(self, name: str) -> bool:
        """Tell whether some account has this host."""
        return is_within(name, self.within)

    def host_in(self, data: Mapping[str, Any]) -> str:
        """Return the host of the account whose data it is. Empty for none."""
        return account_host(data.get(self.provider_data))


@dataclass(frozen=True, slots=True)
class ConnectedHost:
    """A host that differs by connection: its `{name}`s are parameters, whose values are in the grant's data, too."""

    template: str
    params: tuple[ConnectParam, ...]

    def is_at(self, name: str) -> bool:
        """Tell whether a connection may have this host."""
        found = _pattern_of(self.template).fullmatch(name) if is_host_name(name) else None
        said = found.groupdict() if found is not None else {}
        return bool(said) and all(param.stands_for(said[param.name]) for param in self.params if param.name in said)

    def host_in(self, data: Mapping[str, Any]) -> str:
        """Return the host of the connection whose data it is. Empty for none."""
        texts = texts_of(self.params, {param.name: str(data.get(param.name, "")) for param in self.params})
        return filled(self.template, texts) if texts is not None else ""


@lru_cache(1024)
def _pattern_of(template: str) -> re.Pattern[str]:
    """Return the pattern of the hosts that a template can have, with a group for each parameter."""
    names = re.split(r"\{([A-Za-z0-9]+)\}", template)
    parts = (f"(?P<{part}>[a-z0-9.-]+)" if at % 2 else re.escape(part) for at, part in enumerate(names))
    return re.compile("".join(parts))


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Where a token may be injected. `injected`: it leaves the broker in no other way. `headers` are the names, in
    lower case, of the only headers that a tool may send; None for all that are not always dropped. `base_path` stands
    before each path; `{names}` in it are members of the grant's data. With `paths` requests stay at or below one of
    them, counted from the base path."""

    hosts: tuple[ApiHost | AccountHost | ConnectedHost, ...] = ()
    methods: tuple[ApiMethod, ...] = METHODS
    injected: bool = False
    _: KW_ONLY
    headers: frozenset[bytes] | None = None
    base_path: str = ""
    paths: tuple[str, ...] = ()

    def places(self, params: Mapping[str, str]) -> list[str]:
        """Return the hosts of the connection with these parameters, or else as they are written: the first one, and the
        others in the order of their names."""
        places = [_place(each, params) for each in self.hosts]
        return [*places[:1], *sorted(places[1:])]

    @property
    def written_hosts(self) -> list[str]:
        """Return the hosts as the configuration has them."""
        return [each.written if isinstance(each, ApiHost) else _place(each, {}) for each in self.hosts]

    @property
    def base_url(self) -> str:
        """Return what a relative address of a client begins with: the first host, if it is the same for each grant."""
        first = self.hosts[0] if self.hosts else None
        return f"{first.scheme}://{first.authority}/" if isinstance(first, ApiHost) else ""


def _place(host: ApiHost | AccountHost | ConnectedHost, params: Mapping[str, str]) -> str:
    if isinstance(host, ApiHost):
        return host.authority
    if isinstance(host, AccountHost):
        return f"{{{host.provider_data}}}{host.within}"
    return host.host_in(params) or host.template


def is_host_name(text: str) -> bool:
    """Return whether it is a name in lower case ASCII that no parser takes for an address."""
    return _NAME.fullmatch(text) is not None and not _NUMBER.fullmatch(text.rpartition(".")[2])


def is_address(text: str) -> bool:
    """Return whether it is an IPv4 address in its usual spelling."""
    try:
        return str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        return False


def written_host(text: str) -> ApiHost | None:
    """Parse `name`, `name:port` or, for development, `http://127.0.0.1:port`; an address may also begin with https://.
    None for other text."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return None
    plain, name = found[1] == "http://", found[2]
    port = int(found[3] or (80 if plain else 443))
    if port > 65535 or not (is_address(name) or (is_host_name(name) and found[1] is None)):
        return None
    return ApiHost(name, port, "http" if plain else "https")


def account_host(value: object) -> str:
    """Return the host name in a member of a provider's data: a name, or an https address without a path. Empty for
    others."""
    text = value.lower().removeprefix("https://").removesuffix("/") if isinstance(value, str) else ""
    return text if is_host_name(text) else ""


def is_within(name: str, suffix: str) -> bool:
    """Return whether a host name lies below a suffix such as `.my.example.com`."""
    return suffix.startswith(".") and name.endswith(suffix) and is_host_name(name)
