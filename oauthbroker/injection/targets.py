"""Check the target of a request before a token is issued for it. Pure.

A request goes to a host of the configuration, and not to the host of a URL: a parser that reads the URL in another way
changes nothing but the path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.path_steps import check_percent_signs, climbs, is_utf8
from oauthbroker.model.api_refusals import HostForbidden, MethodForbidden, PathForbidden
from oauthbroker.model.apps import App
from oauthbroker.model.provider_api import AccountHost, ApiAccess, ApiHost, ConnectedHost
from oauthbroker.model.token_request import WrongArgument

LONGEST_PATH = 8 * 1024
_AUTHORITY = re.compile(r"([a-z0-9.-]{1,253})(?::([1-9][0-9]{0,4}))?")
_URL = re.compile(r"(https?)://([^/?#\\@]*)((?:[/?][^#]*)?)(?:#.*)?")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"/[!-\[\]-~]*")  # printable ASCII, no backslash


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A permitted target of an app. `path` includes the query, byte for byte as it came. `account` is the
    rule by which the grant's data has to name this host, None for a host of the configuration."""

    app: App
    method: str
    host: ApiHost
    path: str
    account: AccountHost | ConnectedHost | None = None

    def check_account(self, provider_data: Mapping[str, Any]) -> None:
        """Raise `apiHostForbidden` if the host belongs to another account."""
        if self.account is not None and self.account.host_in(provider_data) != self.host.name:
            raise HostForbidden(self.app.api, self.host.written, of_another=True)

    def path_for(self, provider_data: Mapping[str, Any]) -> str:
        """Return the path below the app's base path, which a request may name itself. Raises `factMissing` where the
        grant lacks a member of the base path, and `apiPathForbidden`."""
        if not self.app.api.base_path:
            return self.path
        base = _PLACEHOLDER.sub(lambda found: _segment(found[1], provider_data), self.app.api.base_path)
        below = self.path.removeprefix(base) if self.path.startswith(base) else self.path[1:]
        _check_path(self.app.api, f"/{below}")
        return base + below


def _segment(name: str, provider_data: Mapping[str, Any]) -> str:
    """Return a member of the grant's data as one segment of a path."""
    segment = quote(str(provider_data.get(name, "")), safe="")
    if not segment or climbs(segment):
        raise BrokerError(Code.FACT_MISSING, fact=name)
    return segment


def target_of(app: App, method: str, url: str) -> Target:
    """Check a URL. Raises `apiNotDeclared`, `requestInvalid` (the path), `api{Host,Method,Path}Forbidden`."""
    scheme, authority, path = found.groups() if (found := _URL.fullmatch(url)) is not None else ("", "", "")
    return _target(app, method, authority, path, scheme)


def target_at(app: App, method: str, authority: str, path: str) -> Target:
    """Check a host with or without a port, and a path with its query. Raises as `target_of`."""
    return _target(app, method, authority, path, None)


def _target(app: App, method: str, authority: str, path: str, scheme: str | None) -> Target:
    if not app.api.hosts:
        raise BrokerError(Code.API_NOT_DECLARED)
    host, account = _host(app.api, authority, scheme)
    if method not in app.api.methods:
        raise MethodForbidden(app.api)
    path = f"/{path}" if path[:1] in {"", "?"} else path
    if len(path) > LONGEST_PATH:
        raise BrokerError(Code.REQUEST_INVALID, note="path")
    if not _PATH.fullmatch(path) or climbs(path):
        raise WrongArgument("forwardedUrl", "path")
    check_percent_signs(path.partition("?")[0])  # nginx refuses it, others take the sign itself
    if not app.api.base_path:  # else it may stand in the path, and the grant's data have to tell
        _check_path(app.api, path)
    return Target(app=app, method=method, host=host, path=path, account=account)


def _check_path(api: ApiAccess, path: str) -> None:
    """Raise `apiPathForbidden` unless a path is at or below one of the app's, and of one meaning."""
    asked, listed = path.partition("?")[0], tuple(f"{it.rstrip('/')}/" for it in api.paths)
    if listed and not (f"{asked}/".startswith(listed) and ("%" not in asked or is_utf8(asked))):
        raise PathForbidden(api)


def _host(api: ApiAccess, authority: str, scheme: str | None) -> tuple[ApiHost, AccountHost | ConnectedHost | None]:
    """Return the listed host, and the rule by which the grant's data must name it."""
    found = _AUTHORITY.fullmatch(authority)
    if found is not None:
        name, port = found[1], int(found[2] or (80 if scheme == "http" else 443))
        for host in api.hosts:
            if not isinstance(host, ApiHost):
                if scheme != "http" and port == 443 and host.is_at(name):
                    return ApiHost(name), host
            elif (name, port) == (host.name, host.port) and scheme in {None, host.scheme}:
                return host, None
        raise HostForbidden(api, ApiHost(name, port, "http" if scheme == "http" else "https").written)
    raise HostForbidden(api, "")
