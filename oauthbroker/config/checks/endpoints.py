"""Checks of the endpoints of an app, written or made from its parameters."""

from __future__ import annotations

import re
from typing import Final

from oauthbroker.config.checks.app import RESERVED_OPTIONS
from oauthbroker.config.checks.connect import sampled, unknown_param
from oauthbroker.config.problems import url_checks
from oauthbroker.config.values.preset_endpoints import params_of_host, unused_parts
from oauthbroker.config.values.preset_merge import MCP, Merged
from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.core.endpoint_query import parameters_in
from oauthbroker.model.connect_params import params_in
from oauthbroker.model.connection_facts import host_in
from oauthbroker.model.provider_api import is_address, is_host_name
from oauthbroker.model.provider_networks import ProviderNetworks, is_loopback

_OURS: Final = ("a query that names a parameter of ours", "remove it from the URL")
_CLIENT_ID = re.compile(r"(?<=[^/]/)\{client_id\}(?=/|$)")  # a segment of the path


def check_endpoints(app: Merged, reach: ProviderNetworks) -> None:
    written = app.spec.endpoints
    for slot, name in ENDPOINT_NAMES.items():
        said = getattr(written, slot) if written else None
        said = sampled(app, said) if said else said
        if said is None or app.facts.callback.keys() & set(params_in(said)):  # then `check_facts` looks at it
            continue
        if problem := endpoint_problem(slot, said, reach) or _renamed_problem(app, said):
            app.written.refuse(("endpoints", name), *(unknown_param(app, said) or problem))
    _check_named_hosts(app, reach)
    needed = ("authorization_url", "token_url") if app.spec.flow == "authorizationCode" else ("token_url",)
    missing = [ENDPOINT_NAMES[slot] for slot in needed if not getattr(app.endpoints, slot)]
    if not missing or app.endpoints.issuer or app.spec.provider in {None, MCP}:
        return
    hint = "write it, or an issuer that has discovery"
    if app.preset is not None and app.place.dropped:
        hint = f"{hint}: {unused_parts(app.place.dropped, app.preset)[0]}"
    hint += app.meant_preset
    for name in missing:
        app.written.missing(("endpoints", name), hint)


def samples(app: Merged, url: str) -> list[str]:
    """Return the addresses that facts of the callback make of a URL: one for each listed value, and for one name below
    a suffix."""
    urls = [url]
    for name in params_in(url):
        fact = app.facts.callback.get(name)
        if fact is not None and fact.may_be_host:
            values = fact.one_of or (f"a{fact.within}",)
            urls = [each.replace(f"{{{name}}}", host_in(value)) for each in urls for value in values]
    return urls


def endpoint_problem(slot: str, said: str, reach: ProviderNetworks) -> tuple[str, str] | None:
    """Return (problem, remedy) for an endpoint in any form that presets have, else None."""
    if slot == "revoke_url":
        said = _CLIENT_ID.sub("client", said)
    if slot == "authorization_url":  # browsers go there
        problem = url_checks.problem(said) or _plain_http(said, allowed=reach.loopback)
    else:
        problem = fetched_problem(said, reach, query=slot in {"user_info_url", "token_url"})
    if problem is None and RESERVED_OPTIONS & {name.lower() for name in parameters_in(said)}:
        return _OURS
    return problem


def _renamed_problem(app: Merged, said: str) -> tuple[str, str] | None:
    """Return (problem, remedy) for a query with a parameter of ours by the provider's name for it."""
    ours = {name.lower() for name in (*app.habits.param_names.values(), app.habits.scope_param)}
    return _OURS if ours & {name.lower() for name in parameters_in(said)} else None


def _check_named_hosts(app: Merged, reach: ProviderNetworks) -> None:
    """Check the hosts that an app's parameters make out of a preset's endpoints, as those of its own endpoints."""
    if app.preset is None or app.place.is_elsewhere:
        return
    for name, slot in params_of_host(app.preset).items():
        url = getattr(app.endpoints, slot)
        if name not in (app.spec.params or {}) or "{" in url:
            continue
        problem = fetched_problem(url, reach, query=True)
        host = url_checks.host_of(url) if problem is None else ""
        if problem is None and not is_host_name(host) and not is_address(host):
            problem = "not the name of a host", f"write {app.preset.params[name].description}"
        if problem is not None:
            app.written.refuse(("params", name), *problem)


def fetched_problem(url: str, reach: ProviderNetworks, *, query: bool) -> tuple[str, str] | None:
    """Return (problem, remedy) for an address that the broker sends requests to, else None."""
    problem = url_checks.problem(url, query=query) or _plain_http(url, allowed=reach.loopback)
    if problem is None and reach.refuses(url_checks.host_of(url)):
        return "an address inside your own network", "list its network in the Broker's providerNetworks"
    return problem


def _plain_http(url: str, *, allowed: bool) -> tuple[str, str] | None:
    if not url_checks.is_http(url):
        return None
    if not is_loopback(url_checks.host_of(url)):
        return "http instead of https", url_checks.HTTPS_ADVICE
    if not allowed:
        hint = "write https://, or for development on one machine weaken: [plainHttpProvider] in the Broker resource"
        return "http instead of https", hint
    return None
