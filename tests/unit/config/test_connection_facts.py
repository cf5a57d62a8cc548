"""`OAuthApp.spec.facts` and `api.basePath`: what loads, and which mistakes `check` tells, at which place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oauthbroker.config import load
from oauthbroker.model.apps import App
from oauthbroker.model.connection_facts import CallbackFact, TokenClaim
from oauthbroker.providers import presets
from tests.unit.config.bundles import APP, BROKER, MARK, edited, problems_in, unmarked, write

ENDPOINT = ("tokenUrl: https://acme.example/token", "tokenUrl: https://{dc}/token")
LISTED = "{callback: {dc: {oneOf: [https://eu.acme.example, us.acme.example]}}}"
SITES = "{url: https://acme.example/sites, each: {site: id}"


def app_text(facts: str, *changes: tuple[str, str], more: str = "") -> str:
    return edited(APP, *changes) + f"  facts: {facts}\n" + (f"  {more}\n" if more else "")


def loaded(folder: Path, text: str) -> App:
    write(folder, broker=BROKER, app=text)
    return load(folder).apps["acme"].app


def test_each_form_of_a_fact_loads(tmp_path: Path) -> None:
    text = app_text(
        "{callback: {realmId: {pattern: '[0-9]+'}, shop: {within: .shops.example}, dc: {oneOf: [a.example], default: a.example}},"
        " hmac: true, userInfo: {centre: metadata.dc},"
        " requests: [{url: https://acme.example/sites, path: values, each: {site: id}, label: name, choose: page},"
        " {url: https://api.acme.example/t, each: {tenant: id}, where: {event: {claim: event_id}, primary: true}}]}",
        ENDPOINT,
        ("authorizationUrl:", "userInfoUrl: https://acme.example/me\n    authorizationUrl:"),
        more="api: {hosts: [api.acme.example], basePath: '/sites/{site}/'}",
    )
    app = loaded(tmp_path, text)
    assert CallbackFact(one_of=("a.example",), default="a.example") == app.facts.callback["dc"]
    assert {"event": TokenClaim("event_id"), "primary": True} == app.facts.requests[1].where
    assert (True, False) == (app.facts.requests[0].choose, app.facts.requests[1].choose)
    assert ("realmId", "shop", "dc", "centre", "site", "tenant") == app.facts.names
    assert "/sites/{site}/" == app.api.base_path


MISTAKES: dict[str, tuple[str, str, tuple[tuple[str, str], ...], str]] = {
    "no rule": ("{callback: {a: @@{}}}", "spec.facts.callback.a", (), ""),
    "two rules": ("{callback: {a: @@{pattern: x, within: .acme.example}}}", "spec.facts.callback.a", (), ""),
    "a pattern that is too large": ("{callback: {a: {pattern: @@'a{99999999999999}'}}}", "spec.facts.callback.?.pattern", (), ""),
    "a broken pattern": ("{callback: {a: {pattern: @@'['}}}", "spec.facts.callback.?.pattern", (), ""),
    "a suffix without a dot": ("{callback: {a: {within: @@acme.example}}}", "spec.facts.callback.?.within", (), ""),
    "a public suffix": ("{callback: {a: {within: @@.com}}}", "spec.facts.callback.?.within", (), ""),
    "an empty list": ("{callback: {a: {oneOf: @@[]}}}", "spec.facts.callback.?.oneOf", (), ""),
    "a default beside its rule": (
        "{callback: {a: {oneOf: [x], default: @@y}}}", "spec.facts.callback.a.default", (), ""),
    "the state": ("{callback: {state: @@{pattern: x}}}", "spec.facts.callback.?", (), ""),
    "a secret": ("{userInfo: {access_token: @@a}}", "spec.facts.userInfo.?", (), ""),
    "userinfo without its address": ("{userInfo: {dc: a}}", "spec.endpoints.userInfoUrl", (), ""),
    "three requests": (f"{{requests: @@[{SITES}}}, {SITES}}}, {SITES}}}]}}", "spec.facts.requests", (), ""),
    "a request to another host": (
        "{requests: [{url: @@https://evil.example/sites, each: {site: id}}]}", "spec.facts.requests[0].url", (), ""),
    "a request to another port": (
        "{requests: [{url: @@https://acme.example:8443/s, each: {site: id}}]}", "spec.facts.requests[0].url", (), ""),
    "a request in plain http": (
        "{requests: [{url: @@http://acme.example/sites, each: {site: id}}]}", "spec.facts.requests[0].url", (), ""),
    "a fact in the address of a request": (
        "{requests: [{url: @@'https://{dc}/sites', each: {site: id}}]}", "spec.facts.requests[0].url", (), ""),
    "a word that is no choice": (f"{{requests: [{SITES}, choose: @@first}}]}}", "spec.facts.requests[0].choose", (), ""),
    "the same fact twice": (f"@@{{userInfo: {{site: a}}, requests: [{SITES}}}]}}", "spec.facts",
        (("authorizationUrl:", "userInfoUrl: https://acme.example/me\n    authorizationUrl:"),), ""),
    "two choices": (
        f"{{requests: @@[{SITES}, choose: page}}, {{url: https://acme.example/b, each: {{b: id}}, choose: page}}]}}",
        "spec.facts.requests", (), ""),
    "a pattern in a host": ("{callback: {dc: @@{pattern: '.*'}}}", "spec.facts.callback.dc", (ENDPOINT,), ""),
    "a value that is no host": (
        "{callback: {dc: @@{oneOf: [eu.acme.example/x?y]}}}", "spec.facts.callback.dc", (ENDPOINT,), ""),
    "a value with a path": ("{callback: {dc: @@{oneOf: [eu.acme.example/x]}}}", "spec.facts.callback.dc", (ENDPOINT,), ""),
    "a value with a user": ("{callback: {dc: @@{oneOf: [a@eu.acme.example]}}}", "spec.facts.callback.dc", (ENDPOINT,), ""),
    "a value inside the network": ("{callback: {dc: @@{oneOf: [10.0.0.1]}}}", "spec.facts.callback.dc", (ENDPOINT,), ""),
    "a fact in the page for browsers": (LISTED, "spec.endpoints.authorizationUrl",
        (("authorizationUrl: https://acme.example/authorize", "authorizationUrl: @@'https://{dc}/authorize'"),), ""),
    "a fact outside the host": (LISTED, "spec.endpoints.tokenUrl",
        (("tokenUrl: https://acme.example/token", "tokenUrl: @@'https://acme.example/{dc}/token'"),), ""),
    "a name that is no fact": ("{}", "spec.endpoints.tokenUrl",
        (("tokenUrl: https://acme.example/token", "tokenUrl: @@'https://{dc}/token'"),), ""),
    "a base path of an unknown fact": ("{}", "spec.api.basePath", (), "api: {hosts: [a.example], basePath: @@'/{x}/'}"),
    "a base path with dots": ("{}", "spec.api.basePath", (), "api: {hosts: [a.example], basePath: @@/a/../b/}"),
    "a base path without its end": ("{}", "spec.api.basePath", (), "api: {hosts: [a.example], basePath: @@/a}"),
    "a signature without a secret": ("{hmac: @@true}", "spec.facts.hmac",
        (("clientSecret: {valueFrom: {env: ACME_SECRET}}", "authMethod: none"),), ""),
}  # fmt: skip


@pytest.mark.parametrize("facts, path, changes, more", MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_is_one_problem_at_its_place(
    tmp_path: Path, facts: str, path: str, changes: tuple[tuple[str, str], ...], more: str
) -> None:
    text, at = app_text(facts, *changes, more=more), None
    if MARK in text:
        text, at = unmarked(text)
    write(tmp_path, broker=BROKER, app=text)
    problems = problems_in(tmp_path)
    assert [path] == [problem.path for problem in problems], [str(problem) for problem in problems]
    assert at is None or at == (problems[0].line, problems[0].column)


@pytest.mark.parametrize("flow", ["deviceCode", "clientCredentials"])
def test_a_flow_without_a_callback_has_no_facts_of_one(tmp_path: Path, flow: Any) -> None:
    change = ("flow: authorizationCode", f"flow: {flow}")
    write(tmp_path, broker=BROKER, app=app_text("{callback: {a: {pattern: x}}}", change))
    assert "spec.facts.callback" in {problem.path for problem in problems_in(tmp_path)}
    write(tmp_path, broker=BROKER, app=app_text(f"{{requests: [{SITES}, choose: page}}]}}", change))
    assert {"spec.facts.requests[0].choose"} & {problem.path for problem in problems_in(tmp_path)}


def test_an_app_with_endpoints_elsewhere_gets_none_of_the_presets_facts(tmp_path: Path) -> None:
    """Its requests would take the token to the preset's hosts."""
    app = loaded(tmp_path, edited(APP, ("provider: acme", "provider: atlassian")))
    assert () == app.facts.names
    assert "facts" in load(tmp_path).apps["acme"].dropped


def test_what_an_app_writes_replaces_that_part_of_the_presets_facts(tmp_path: Path) -> None:
    own = edited(APP, ("provider: acme", "provider: shopify"), ("subjectMode: user", "subjectMode: global"))
    own = own[: own.index("  endpoints:")] + own[own.index("  scopes:") : own.index("  owner:")]
    own += "  params: {shop: acme}\n  owner: {authorizers: anyone}\n"
    app = loaded(tmp_path, own)
    assert {"shop": CallbackFact(one_of=("acme.myshopify.com",))} == app.facts.callback
    assert app.facts.hmac
    app = loaded(tmp_path, own + "  facts: {callback: {}}\n")
    assert ({}, True) == (app.facts.callback, app.facts.hmac)


@pytest.mark.parametrize("preset", [each for each in presets().values() if each.connection_facts.names], ids=str)
def test_the_facts_of_a_preset_have_names_of_their_own(preset: Any) -> None:
    names = preset.connection_facts.names
    assert len(names) == len(set(names))
    for fact in preset.connection_facts.callback.values():
        assert 1 == sum(each is not None for each in (fact.pattern, fact.one_of, fact.within))
