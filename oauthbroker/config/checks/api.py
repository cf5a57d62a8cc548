"""Check `OAuthApp.spec.api`: the hosts, methods and headers of requests that may carry the app's token."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from oauthbroker.config.checks.connect import connect_params_of, sampled
from oauthbroker.config.checks.mcp import host_of_server
from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.problems.url_checks import HTTPS_ADVICE
from oauthbroker.config.values.preset_merge import Merged
from oauthbroker.config.written.resource_specs import ApiHostSpec, ProviderApiSpec
from oauthbroker.core.header_names import is_never_sent, overrides_method, spelled
from oauthbroker.core.path_steps import climbs
from oauthbroker.model.provider_api import (
    METHODS,
    AccountHost,
    ApiAccess,
    ApiHost,
    ConnectedHost,
    is_address,
    is_host_name,
    written_host,
)
from oauthbroker.model.provider_networks import ProviderNetworks, is_loopback

ProblemText = tuple[str, str]
AnyHost = ApiHost | AccountHost | ConnectedHost
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # field-name, RFC 9110 section 5.1
_PATH: Final = re.compile(r"/[A-Za-z0-9._~:@!$&'()*+,;=/-]{0,255}")
PLAIN_HTTP: Final = "for development on one machine write weaken: [plainHttpProvider] in the Broker resource"


def api_of(app: Merged) -> ApiAccess:
    """Return the API of an app, with its own hosts or else its preset's. Hosts with problems are left out."""
    said = app.spec.api or ProviderApiSpec.empty()
    hosts = [*(_named_host(app, each) for each in app.place.api_hosts), *host_of_server(app)]
    path = app.place.api_base_path  # of the preset's hosts
    if said.hosts is not None:
        hosts, path = [_host(app, each) for each in said.hosts], ""
    methods = METHODS if said.methods is None else tuple(said.methods)
    headers = None if said.headers is None else frozenset(spelled(name.encode()) for name in said.headers)
    kept = tuple(host for host in hosts if host is not None)
    path = path if said.base_path is None else said.base_path
    paths = tuple(said.paths or ())
    return ApiAccess(kept, methods, injected=said.delivery is not None, headers=headers, base_path=path, paths=paths)


def check_api(app: Merged, reach: ProviderNetworks) -> None:
    """Check each host and header by itself, and that none and no method stands twice."""
    said = app.spec.api
    if said is None:
        return
    seen: list[object] = []
    for index, written in enumerate(said.hosts or ()):
        at: Keys = ("api", "hosts", index)
        if not app.written.whole(*at):
            continue
        problem = _problem(app, written, reach)
        host = _host(app, written)
        same = (host.name, host.port) if isinstance(host, ApiHost) else host
        if problem is None and same in seen:
            problem = "the same host twice", "remove one"
        if problem is not None:
            app.written.refuse(at, *problem)
        seen.append(same)
    for index, method in enumerate(said.methods or ()):
        if method in (said.methods or ())[:index]:
            app.written.refuse(("api", "methods", index), "the same method twice", "remove one")
    _check_headers(app, said.headers or ())
    _check_paths(app, said.paths or ())
    fields = {"hosts": said.hosts, "methods": said.methods, "headers": said.headers, "paths": said.paths}
    for name, items in fields.items():
        if items == []:
            app.written.refuse(("api", name), "an empty list", "write at least one, or remove the field")
    if said.delivery is not None and not (said.hosts or app.place.api_hosts or host_of_server(app)):
        app.written.missing(("api", "hosts"), "write the hosts of the provider's API: a token leaves in no other way")


def _check_paths(app: Merged, paths: Sequence[str]) -> None:
    for index, path in enumerate(paths):
        if not _PATH.fullmatch(path) or climbs(path) or "//" in path:
            hint = "write segments behind a slash, such as /v1/issues"
            app.written.refuse(("api", "paths", index), "not the beginning of a path", hint)
        elif path in paths[:index]:
            app.written.refuse(("api", "paths", index), "the same path twice", "remove one")


def _check_headers(app: Merged, headers: Sequence[str]) -> None:
    seen = set[bytes]()
    for index, written in enumerate(headers):
        name = spelled(written.encode())
        if not _HEADER.fullmatch(written):
            app.written.refuse(("api", "headers", index), "not the name of a header", "write a name such as Accept")
        elif name in seen:
            app.written.refuse(("api", "headers", index), "the same header twice", "remove one")
        elif name == spelled(app.habits.token_header.encode()):
            what = "the header of the token, which the broker itself sets"
            app.written.refuse(("api", "headers", index), what, "remove it")
        elif is_never_sent(name) or overrides_method(name):
            app.written.refuse(("api", "headers", index), "a header that never goes to a provider", "remove it")
        seen.add(name)


def _named_host(app: Merged, name: str | AccountHost) -> AnyHost | None:
    if isinstance(name, AccountHost):
        return name
    if "{" in name and app.spec.connect_params:
        return ConnectedHost(name, connect_params_of(app)) if written_host(sampled(app, name)) is not None else None
    return written_host(name)


def _host(app: Merged, written: ApiHostSpec) -> AnyHost | None:
    if written.name is not None:
        return _named_host(app, written.name)
    return AccountHost(written.provider_data or "", written.within or "")


def _problem(app: Merged, written: ApiHostSpec, reach: ProviderNetworks) -> ProblemText | None:
    if written.name is None:
        return _account_problem(app, written)
    if written.provider_data is not None or written.within is not None:
        return "a name beside providerData", "keep one of the two"
    host = written_host(sampled(app, written.name))
    if host is None:
        return "not a host", "write a name in small letters, with or without a port, without https:// or a path"
    if "{" in written.name and host.port != 443:
        return "a port behind a host that differs by connection", "leave it out: such a host is reached at 443 alone"
    if "://" not in written.name and (host.name == "localhost" or (is_address(host.name) and is_loopback(host.name))):
        place = f"127.0.0.1:{host.port}" if host.port != 443 else "127.0.0.1"
        return "this machine without http://", f"write http://{place}, or https://{place} if it has a certificate there"
    if host.scheme == "https" and host.port == 80:
        return "https at the port of http", "leave the port out, or write the one that has a certificate"
    if host.scheme == "http" and not is_loopback(host.name):
        return "http instead of https", HTTPS_ADVICE
    if host.scheme == "http" and not reach.loopback:
        return "http instead of https", PLAIN_HTTP
    if is_address(host.name) and (not reach.admits(host.name) or ipaddress.ip_address(host.name).is_global):
        return "an address instead of a name", "write a name, or list its network in the Broker's providerNetworks"
    return None


def _account_problem(app: Merged, written: ApiHostSpec) -> ProblemText | None:
    data, within = written.provider_data, written.within
    if not data or not within:
        return "half of a host that differs by account", "write {providerData: <member>, within: .example.com}"
    if not within.startswith(".") or "." not in within[1:] or not is_host_name(within[1:]):
        return "not a domain of its own", "write a dot and at least two labels, such as .my.example.com"
    if data not in {*app.habits.tool_data, *app.facts.names}:
        return "a member that tools do not get", "add it to quirks.toolData or to facts, so that tools know the host"
    return None
