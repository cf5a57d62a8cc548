"""`outgoingProxy` of the Broker resource: the HTTP proxy by which requests leave the network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import astuple, replace
from typing import Final
from urllib.parse import urlsplit

from oauthbroker.config.checks.api import api_of
from oauthbroker.config.checks.connect import sampled
from oauthbroker.config.checks.endpoints import samples
from oauthbroker.config.checks.provider_ca import trusted_ca
from oauthbroker.config.problems import url_checks
from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.values.preset_merge import Merged
from oauthbroker.config.values.value_sources import Source, source_of
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.model.outgoing_proxy import OutgoingProxy, is_public_name
from oauthbroker.model.provider_api import AccountHost, ApiHost

_AT: Final = "outgoingProxy"
_DEFAULT_PORTS: Final = {"http": 3128, "https": 443}
_HOST: Final = re.compile(r"\.?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_CREDENTIALS_ADVICE: Final = "write credentials: {valueFrom: {env: NAME}}; the variable holds user:password"


def outgoing_proxy_of(broker: Written[BrokerSpec]) -> OutgoingProxy | None:
    """Return the proxy, without its credentials' value. A mistake in it is reported by `check_outgoing_proxy`."""
    spec = broker.spec.outgoing_proxy
    if spec is None or _url_problem(spec.url or "") is not None:
        return None
    parts, source = urlsplit(spec.url or ""), spec.credentials.value_from if spec.credentials else None
    return OutgoingProxy(
        host=parts.hostname or "",
        port=parts.port or _DEFAULT_PORTS[parts.scheme],
        tls=parts.scheme == "https",
        ca=trusted_ca(broker, spec.ca if parts.scheme == "https" else None, (_AT, "ca")),
        credentials_env=(source and source.env) or "",
        direct_hosts=tuple(each.lower() for each in spec.except_ or ()),
        resolves=spec.resolve == "proxy",
    )


def check_outgoing_proxy(broker: Written[BrokerSpec]) -> None:
    """Report a proxy that cannot be used as it is written. Nothing is looked up."""
    spec = broker.spec.outgoing_proxy
    if spec is None:
        return
    if spec.url is None:
        broker.missing((_AT, "url"), "write http://proxy.example.com:3128, or https:// for TLS to the proxy")
    elif problem := _url_problem(spec.url):
        broker.refuse((_AT, "url"), *problem)
    if spec.ca is not None and (spec.url or "").startswith("http:"):
        what = "certificates for a proxy that is spoken to without TLS"
        hint = "write an https url; the authority of a proxy that opens TLS to providers belongs into providerCa"
        broker.refuse((_AT, "ca"), what, hint, key=True)
    for at, host in enumerate(spec.except_ or ()):
        if not _HOST.fullmatch(host) and not url_checks.is_host(host):
            hint = "write a name such as idp.corp.example, or .corp.example for all names below it"
            broker.refuse((_AT, "except", at), "not a host", hint)


def proxy_credentials(broker: Written[BrokerSpec]) -> Source | None:
    """Return where the credentials are: a variable, because a key service may have to be asked before the store, and
    with it any secret in it, is open."""
    spec = broker.spec.outgoing_proxy
    if spec is None or spec.credentials is None:
        return None
    source = source_of(broker, (_AT, "credentials"), spec.credentials, plain_hint=_CREDENTIALS_ADVICE)
    if source is not None and source.secret is not None:
        what = "the store with that secret may be opened by a key service that the proxy leads to"
        broker.refuse((_AT, "credentials"), what, _CREDENTIALS_ADVICE)
    return replace(source, is_login=True) if source is not None else None


def check_way_out(app: Merged, broker: Written[BrokerSpec], proxy: OutgoingProxy | None) -> None:
    """Report an app that passes a proxy by where none is configured, and hosts that a proxy may not look up."""
    if app.spec.outgoing_proxy is not None and broker.spec.outgoing_proxy is None:
        app.written.refuse((_AT,), "the Broker resource names no outgoingProxy", "remove it", key=True)
    if proxy is None or not proxy.resolves or app.spec.outgoing_proxy is not None:
        return
    told = set[str]()
    for at, host in _hosts_of(app):
        if host not in told and (problem := lookup_problem(host, proxy)):
            app.written.refuse(at, *problem, key=True)
        told.add(host)


def lookup_problem(host: str, proxy: OutgoingProxy | None) -> tuple[str, str] | None:
    """Return (problem, remedy) for a host that the proxy would have to look up, and does not get, else None."""
    if proxy is None or not proxy.resolves or not proxy.is_for(host) or is_public_name(host):
        return None
    what = f"the proxy may not look {host} up: it is an address, a single label or a name of inner networks"
    return what, "list it under outgoingProxy.except, or write resolve: here"


def _hosts_of(app: Merged) -> Iterator[tuple[Keys, str]]:
    """Yield the hosts that requests for an app go to, with their places. Of those that differ by connection or account
    one stands for all."""
    found: list[tuple[Keys, str]] = [
        (("endpoints",), each) for url in astuple(app.endpoints) for each in samples(app, sampled(app, url))
    ]
    if app.spec.mcp is not None:
        found += [(("mcp", "url"), app.spec.mcp.url or ""), (("mcp", "issuer"), app.spec.mcp.issuer or "")]
    yield from ((at, url_checks.host_of(url)) for at, url in found if url and url_checks.problem(url) is None)
    for each in api_of(app).hosts:
        if isinstance(each, ApiHost):
            name = each.name
        else:
            name = f"a{each.within}" if isinstance(each, AccountHost) else sampled(app, each.template)
        yield ("api", "hosts") if app.spec.api is not None and app.spec.api.hosts else (), name


def _url_problem(url: str) -> tuple[str, str] | None:
    problem = url_checks.problem(url, query=False)
    if problem is not None and problem[0] == "a user name in a URL":
        return problem[0], _CREDENTIALS_ADVICE
    if problem is not None and problem[0] == "not an https URL":
        return "not the URL of an HTTP proxy", "write http://host:port, or https:// for TLS to the proxy"
    if problem is None and urlsplit(url).path not in {"", "/"}:
        return "a path behind a proxy's address", "remove it"
    return problem
