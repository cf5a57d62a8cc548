"""Check `OAuthApp.spec.facts`, and the places where facts stand: endpoints and `api.basePath`."""

from __future__ import annotations

import re
from typing import Final

from oauthbroker.config.checks.api import api_of
from oauthbroker.config.checks.connect import sampled
from oauthbroker.config.checks.endpoints import endpoint_problem, fetched_problem, samples
from oauthbroker.config.problems import url_checks
from oauthbroker.config.values.preset_merge import Merged
from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.model.connect_params import params_in
from oauthbroker.model.connection_facts import SLOTS_OF_FACTS, FactRequest, host_in
from oauthbroker.model.provider_api import ApiHost, written_host
from oauthbroker.model.provider_networks import ProviderNetworks

_BASE_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~{}-]+/)*")
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]+)?|\[[0-9a-f:]+\]")
_RULES_OF_A_HOST: Final = "write oneOf with host names, or within: .example.com; a pattern is not enough"


def check_facts(app: Merged, reach: ProviderNetworks) -> None:
    """Check the facts of an app, its own and its preset's."""
    facts = app.facts
    if app.spec.flow != "authorizationCode" and (facts.callback or facts.hmac):
        app.written.refuse(("facts", "callback"), "a callback in a flow without one", "remove it, or change the flow")
    if app.spec.flow == "clientCredentials" and facts.asked:
        app.written.refuse(("facts",), "facts of an account in a flow without one", "remove them, or change the flow")
    if facts.hmac and app.auth_method in {"none", "private_key_jwt"}:
        app.written.refuse(("facts", "hmac"), "a signature with a secret that the client lacks", "remove it")
    for name in {name for name in facts.names if facts.names.count(name) > 1}:
        app.written.refuse(("facts",), f"the fact {name} twice", "give each fact one source")
    for name, fact in facts.callback.items():
        if sum(map(bool, (fact.pattern, fact.one_of, fact.within))) != 1:
            if app.written.whole("facts", "callback", name):
                what = "not exactly one of pattern, oneOf and within"
                app.written.refuse(("facts", "callback", name), what, "write one of the three")
        elif fact.default and not fact.admits(fact.default):
            at = ("facts", "callback", name, "default")
            app.written.refuse(at, "a default that the fact's own rule refuses", "write a value that it admits")
    if facts.user_info and not (app.endpoints.user_info_url or app.endpoints.issuer):
        app.written.missing(("endpoints", "userInfoUrl"), "write it: facts.userInfo are read there")
    for index, request in enumerate(facts.requests):
        _check_request(app, index, request, reach)
    if sum(each.choose for each in facts.requests) > 1:
        app.written.refuse(("facts", "requests"), "two choices of one connection", "write choose: page once")
    _check_endpoints(app, reach)
    _check_base_path(app)


def _check_request(app: Merged, index: int, request: FactRequest, reach: ProviderNetworks) -> None:
    at = ("facts", "requests", index)
    if request.choose and app.spec.flow != "authorizationCode":
        app.written.refuse((*at, "choose"), "a choice on a page in a flow without one", "select one with where")
    url = sampled(app, request.url)
    problem = fetched_problem(url, reach, query=True)
    if problem is None and url_checks.origin_of(url) not in known_origins(app):
        problem = "a host that is neither an endpoint's nor one of api.hosts", "list it in api.hosts"
    if problem is not None:
        app.written.refuse((*at, "url"), *problem)


def known_origins(app: Merged) -> set[tuple[str, str, int | None]]:
    """Return the origins of the app's endpoints and API: tokens are sent to no other one."""
    urls = [sampled(app, getattr(app.endpoints, slot)) for slot in app.endpoints.__slots__]
    hosts = [each for each in api_of(app).hosts if isinstance(each, ApiHost)]
    hosts += [each for each in map(written_host, app.place.named_hosts) if each is not None]
    return {url_checks.origin_of(url) for url in urls if url and "{" not in url} | {
        (each.scheme, each.name, each.port) for each in hosts
    }


def _check_endpoints(app: Merged, reach: ProviderNetworks) -> None:
    """Check the endpoints in which a fact stands, with each of its values."""
    missing = app.preset.params if app.preset is not None and not app.place.is_elsewhere else {}
    for slot, name in ENDPOINT_NAMES.items():
        url = sampled(app, getattr(app.endpoints, slot))
        for fact_name in params_in(url):
            fact, at = app.facts.callback.get(fact_name), ("endpoints", name)
            if fact is None or fact_name in missing:  # `check_provider` names the missing one
                continue
            if slot not in SLOTS_OF_FACTS:
                app.written.refuse(at, "a fact that is not known yet when this address is used", "write the host")
            elif not fact.may_be_host:
                app.written.refuse(("facts", "callback", fact_name), "a pattern in a host", _RULES_OF_A_HOST)
            elif f"{{{fact_name}}}" not in url.split("/")[2]:
                app.written.refuse(at, "a fact outside the host", "let facts stand in the host only")
            elif not all(map(_HOST.fullmatch, map(host_in, fact.one_of))):
                app.written.refuse(("facts", "callback", fact_name), "a value that is no host", "write names of hosts")
            elif problem := next(filter(None, (endpoint_problem(slot, it, reach) for it in samples(app, url))), None):
                app.written.refuse(("facts", "callback", fact_name), problem[0], f"correct its values: {problem[1]}")


def _check_base_path(app: Merged) -> None:
    path = api_of(app).base_path
    at = ("api", "basePath")
    if not path:
        return
    if not _BASE_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        app.written.refuse(at, "not a base path", "write segments between slashes, such as /ex/jira/{cloudid}/")
    for name in params_in(path):
        if name not in {*app.facts.names, *app.habits.tool_data, *(app.spec.connect_params or {})}:
            app.written.refuse(at, f"{{{name}}} is no fact of this app", "declare it in facts, or in quirks.toolData")
