"""Presets: data that says where it comes from, and an app that overrides it where it wants."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from oauthbroker.config import load
from oauthbroker.config.checks.app import RESERVED_OPTIONS
from oauthbroker.config.checks.owner import template_problem
from oauthbroker.config.problems import url_checks
from oauthbroker.model.apps import App, IdentityRule
from oauthbroker.model.connect_params import filled, params_in
from oauthbroker.model.provider_api import AccountHost, ApiAccess, ApiHost, is_host_name
from oauthbroker.providers import presets
from oauthbroker.providers.preset import Preset
from oauthbroker.providers.quirk_values import SCOPE
from oauthbroker.providers.skeleton import example
from tests.unit.config.bundles import APP, GLOBAL, edited, write

ALL = [
    pytest.param(variant, id=f"{preset.name} {mode}".strip())
    for preset in presets().values()
    for mode, variant in preset.variants().items()
]
ENDPOINTS = (
    "  endpoints:\n    authorizationUrl: https://acme.example/authorize\n    tokenUrl: https://acme.example/token\n"
)
OWNER = '  owner:\n    identity:\n      user: {from: tokenResponse, template: "acme:user:{user.id}"}\n'


def app_of(folder: Any, *changes: tuple[str, str], base: str = APP) -> App:
    [draft] = load(write(folder / "b", app=edited(base, *changes))).apps.values()
    return draft.app


def test_an_app_demands_values_of_other_claims_as_a_preset_does(tmp_path: Path):
    with_it = (OWNER, OWNER.replace('{user.id}"}', '{user.id}", requires: {is_bot: false, kind: person}}'))
    rule = app_of(tmp_path, with_it).owner.user_identity
    assert rule is not None
    assert (("is_bot", False), ("kind", "person")) == rule.requires


def preset_app(folder: Any, provider: str, *changes: tuple[str, str], scopes: str = "[read]") -> App:
    """A user-mode app of a preset that writes nothing the preset knows."""
    named = ("provider: acme", f"provider: {provider}")
    return app_of(folder, named, (ENDPOINTS, ""), (OWNER, ""), ("[read, write]", scopes), *changes)


HOST = re.compile(r"(?<![\w/.-])(?:[a-z0-9-]+\.)+(?!(?:adoc|html|js|json|mdx?|mjs|py|ts|yaml)\b)[a-z]{2,}(?=[/,:;) ])")


def test_evidence_names_its_source_and_date():
    """An entry stands for itself: an address that is one, not a file's name, and the day it was read."""
    for preset in presets().values():
        for path, source in preset.evidence.items():
            if source.startswith("documentation"):
                assert HOST.search(source), (preset.name, path, source)
                assert not re.search(r"\bas above\b|the same (page|metadata|copy)|\(the same", source), (
                    preset.name,
                    path,
                )


@pytest.mark.parametrize(
    "source",
    [
        "documentation (the same page: a fact)",
        "documentation (docs.example.com/oauth: a fact)",
        "documentation (the guide, read 2026-11-21: a fact)",
        "documentation (docs.example.com/oauth, read lately: a fact)",
        "hearsay (docs.example.com/oauth, read 2026-11-21)",
    ],
)
def test_evidence_without_an_address_or_a_date_is_refused(source: str):
    said = {"name": "acme", "title": "Acme", "scopeSeparator": ",", "evidence": {"scopeSeparator": source}}
    with pytest.raises(ValidationError, match="evidence"):
        Preset.model_validate(said)


def test_the_first_set_is_there():
    assert {"github", "google", "microsoft", "oidc", "slack"} <= set(presets())


@pytest.mark.parametrize("preset", presets().values(), ids=presets())
def test_every_fact_says_where_it_was_learnt(preset: Preset):
    for variant in (preset, *preset.variants().values()):
        assert [] == [fact for fact in variant.fact_paths() if not variant.source(fact)]
    facts = preset.fact_paths()
    about_nothing = [path for path in preset.evidence if not any(f"{fact}.".startswith(f"{path}.") for fact in facts)]
    assert [] == about_nothing, "evidence of something that is not set"


@pytest.mark.parametrize("preset", ALL)
def test_every_preset_keeps_the_rules_that_apps_have_to_keep(preset: Preset):
    for name, url in preset.endpoints:
        known = [*preset.params, *preset.derived, *preset.connection_facts.callback, "client_id"]
        filled = url.format(**dict.fromkeys(known, "word"))
        assert not url or (url_checks.problem(filled) is None and filled.startswith("https://")), name
    for rule in (preset.identity.global_, preset.identity.user):
        assert rule is None or not rule.template or template_problem(rule.template) is None
    for parameters in (preset.authorize_params, preset.token_params, preset.refresh_params):
        assert not RESERVED_OPTIONS & set(parameters)
    for scope in (
        *preset.always_scopes,
        *preset.unlisted_scopes,
        *preset.scope_aliases,
        *preset.scope_aliases.values(),
    ):
        assert re.fullmatch(SCOPE, scope)


@pytest.mark.parametrize("preset", ALL)
def test_a_preset_has_exactly_the_parameters_its_endpoints_need(preset: Preset):
    used = {name for _, url in preset.endpoints for _, name, _, _ in Formatter().parse(url) if name}
    used |= {name for host in preset.api_hosts if isinstance(host, str) for name in params_in(host)}
    used |= {each.of for each in preset.derived.values()}
    used |= {name for name in params_in(preset.api_base_path) if name in preset.params}
    used -= {"client_id"}  # of the app's client, where a revocation endpoint names it
    used -= set(preset.connection_facts.callback) - set(preset.params)
    assert used == {*preset.params, *preset.derived}
    assert {each.of for each in preset.derived.values()} <= set(preset.params)
    assert all(list(each.values)[-1] == ".+" for each in preset.derived.values()), "a value without a text"


def test_a_preset_with_an_unknown_field_or_without_a_source_is_no_preset():
    good = {"name": "a", "title": "A", "evidence": {}}
    Preset.model_validate(good)
    for bad in (
        {**good, "scopeSeperator": ","},
        {"name": "a", "title": "A"},
        {**good, "evidence": {"revoke": "hearsay"}},
    ):
        with pytest.raises(ValidationError):
            Preset.model_validate(bad)


def test_what_the_app_writes_wins_over_the_preset(tmp_path: Any):
    app = app_of(
        tmp_path,
        (
            "provider: acme",
            "provider: google\n  title: Ours\n  options: {authorize: {prompt: select_account, hd: acme.example}, token: {x: y}}",
        ),
        ("    clientSecret:", "    authMethod: client_secret_basic\n    clientSecret:"),
    )
    assert ("https://acme.example/token", "") == (app.endpoints.token_url, app.endpoints.revoke_url)
    assert {"access_type": "offline", "prompt": "select_account", "hd": "acme.example"} == app.habits.authorize_params
    assert {"x": "y"} == app.habits.token_params
    assert ("Ours", "client_secret_basic") == (app.display_name, app.client.auth_method)
    assert IdentityRule("tokenResponse", "acme:user:{user.id}") == app.owner.user_identity


@pytest.mark.parametrize(
    "provider, params, audience",
    [
        ("microsoft", "{tenant: acme.example}", "tokenEndpoint"),  # it has no single issuer
        ("okta", "{domain: acme.okta.com}", "endpoint"),
        ("auth0", "{domain: acme.eu.auth0.com}", "issuer"),
        ("keycloak", "{server: id.acme.example, realm: acme}", "issuer"),
    ],
)
def test_a_client_that_signs_names_the_audience_that_its_provider_documents(
    provider: str, params: str, audience: str, tmp_path: Any
):
    signing = ("    clientSecret:", "    authMethod: private_key_jwt\n    clientSecret:")
    app = preset_app(tmp_path, provider, ("  flow:", f"  params: {params}\n  flow:"), signing)
    assert audience == app.client.assertion_audience
    said = ("    clientSecret:", "    authMethod: private_key_jwt\n    assertionAudience: issuer\n    clientSecret:")
    if app.endpoints.issuer:
        app = preset_app(tmp_path, provider, ("  flow:", f"  params: {params}\n  flow:"), said)
        assert "issuer" == app.client.assertion_audience


def test_google_knows_a_person_by_sub_and_a_domain_by_hd(tmp_path: Any):
    person = preset_app(tmp_path, "google")
    shared = app_of(
        tmp_path, ("provider: slack", "provider: google"), ("slack:user:T1:U1", "google:user:1"), base=GLOBAL
    )
    assert IdentityRule("idToken", "google:user:{sub}", name="email") == person.owner.user_identity
    assert IdentityRule("idToken", "google:domain:{hd}", name="hd") == shared.owner.global_identity
    assert ("https://accounts.google.com", ("openid",)) == (person.endpoints.issuer, person.habits.always_scopes)


def test_github_knows_a_person_by_number(tmp_path: Any):
    app = preset_app(tmp_path, "github", scopes="[repo, gist]")
    assert IdentityRule("userInfo", "github:user:{id}", name="login") == app.owner.user_identity
    assert ("own", "token") == (app.revocation.kind, app.revocation.reach)
    assert None is app.habits.default_lifetime_seconds


def test_microsoft_fills_in_the_tenant_and_takes_both_spellings_of_a_scope(tmp_path: Any):
    params = ("  flow:", "  params: {tenant: contoso.onmicrosoft.com}\n  flow:")
    app = preset_app(tmp_path, "microsoft", params, scopes="[Mail.Read, 'https://graph.microsoft.com/User.Read']")
    assert "https://login.microsoftonline.com/contoso.onmicrosoft.com/oauth2/v2.0/token" == app.endpoints.token_url
    assert "https://login.microsoftonline.com/{tid}/v2.0" == app.habits.issuer_template
    assert ("openid", "profile", "offline_access") == app.habits.always_scopes  # without profile there is no oid
    assert {
        "https://graph.microsoft.com/Mail.Read": "Mail.Read",
        "User.Read": "https://graph.microsoft.com/User.Read",
    } == app.habits.scope_aliases


def test_an_openid_provider_needs_its_issuer_and_a_prefix_and_gets_openid(tmp_path: Any):
    app = preset_app(
        tmp_path,
        "oidc",
        (
            "  redirect:",
            '  endpoints: {issuer: "https://login.acme.example"}\n  owner: {identity: {user: {template: "acme:user:{sub}"}}}\n  redirect:',
        ),
    )
    assert IdentityRule("idToken", "acme:user:{sub}") == app.owner.user_identity
    assert ("openid",) == app.habits.always_scopes


def test_an_own_provider_that_reads_an_id_token_asks_for_openid_too(tmp_path: Any):
    app = app_of(
        tmp_path,
        ("from: tokenResponse", "from: idToken"),
        ("    tokenUrl:", "    issuer: https://acme.example\n    tokenUrl:"),
    )
    assert ("openid",) == app.habits.always_scopes


def test_an_alias_never_hides_a_scope_that_the_app_spells_out(tmp_path: Any):
    long = "https://www.googleapis.com/auth/userinfo.email"
    short = preset_app(tmp_path, "google", scopes="[email]")
    spelt = app_of(tmp_path, ("provider: acme", "provider: google"), ("[read, write]", f'["{long}", email]'))
    graph = "https://graph.microsoft.com/"
    params = ("  flow:", "  params: {tenant: common}\n  flow:")
    both = preset_app(tmp_path, "microsoft", params, scopes=f'["{graph}Mail.Read", Mail.Read]')
    assert {} == both.habits.scope_aliases
    assert {long: "email"} == short.habits.scope_aliases
    assert {} == spelt.habits.scope_aliases


@pytest.mark.parametrize(
    "mode, written, param",
    [("global", "", "scope"), ("user", "", "user_scope"), ("global", "user", "user_scope"), ("user", "bot", "scope")],
)
def test_slacks_token_follows_the_subject_mode_unless_the_app_says_otherwise(
    mode: str, written: str, param: str, tmp_path: Any
):
    option = f"  options: {{slack: {{tokenMode: {written}}}}}\n" if written else ""
    owner = "  owner: {authorizers: anyone}\n" if mode == "global" else ""
    app = preset_app(tmp_path, "slack", ("subjectMode: user\n", f"subjectMode: {mode}\n{option}{owner}"))
    assert (param, ",") == (app.habits.scope_param, app.habits.scope_separator)


def test_admitting_all_authorizers_needs_no_identity_of_a_person(tmp_path: Any):
    app = app_of(tmp_path, ('["slack:user:T1:U1"]', "anyone"), base=GLOBAL)
    assert ("anyone", None) == (app.owner.authorizers, app.owner.user_identity)


def test_a_named_authorizer_brings_the_identity_it_is_compared_with(tmp_path: Any):
    owner = app_of(tmp_path, base=GLOBAL).owner
    assert ("slack:user:T1:U1",) == owner.authorizers
    assert (
        IdentityRule("tokenResponse", "slack:user:{team.id}:{authed_user.id}", name="team.name") == owner.user_identity
    )


def test_an_authorizer_may_have_the_colons_that_its_provider_writes(tmp_path: Any):
    identity = '{user: {from: tokenResponse, template: "slack:user:{*account_id}"}}'
    written = f'owner: {{identity: {identity}, authorizers: ["slack:user:712020:f0a1"]}}'
    owner = app_of(tmp_path, ('owner: {authorizers: ["slack:user:T1:U1"]}', written), base=GLOBAL).owner
    assert ("slack:user:712020:f0a1",) == owner.authorizers


def test_a_claim_may_be_a_url_as_some_providers_name_theirs(tmp_path: Any):
    template = "acme:user:{https://acme.example/team_id}:{sub}"
    app = app_of(tmp_path, ("acme:user:{user.id}", template))
    assert IdentityRule("tokenResponse", template) == app.owner.user_identity


def test_a_callback_path_and_a_base_url_have_defaults(tmp_path: Any):
    app = app_of(tmp_path, ("  redirect: {callbackPath: /oauth/callback/acme}\n", ""))
    assert "http://127.0.0.1:8420/oauth/callback/acme" == app.redirect.uri


def test_a_resource_may_be_one_or_many(tmp_path: Any):
    one = app_of(tmp_path, ("  scopes: [read", "  resource: https://api.acme.example\n  scopes: [read"))
    two = app_of(
        tmp_path, ("  scopes: [read", "  resource: ['https://a.example/', 'https://b.example/']\n  scopes: [read")
    )
    assert (("https://api.acme.example",), ("https://a.example/", "https://b.example/")) == (one.resource, two.resource)


def test_references_may_be_written_in_both_forms_and_both_api_versions(tmp_path: Any):
    tool = (
        "apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {name: t, labels: {a: ~}}\nspec:\n  anything: [no, 0123]\n"
        "  auth: {oauthAppRef: {kind: OAuthApp, name: acme, apiVersion: goondan.ai/v1}}\n"
    )
    loaded = load(write(tmp_path / "b", app=edited(APP, ("agents.example.io/v1alpha1", "goondan.ai/v1")), tool=tool))
    assert "acme" == loaded.tools["Tool/t"][0].app


def test_resources_of_others_are_left_alone(tmp_path: Any):
    other = "apiVersion: agents.example.io/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec: {tools: [1, ~], x: yes}\n"
    assert {"acme"} == set(load(write(tmp_path / "b", app=APP, agent=other)).apps)


# --- what an app says itself


def test_an_app_without_a_preset_may_say_everything_that_a_preset_says(tmp_path: Any):
    quirks = "  quirks: {scopeSeparator: ';', tokenNames: {access_token: key}, tokenHeaders: {X-Version: '1'}, userInfoMethod: POST, userInfoBody: {query: '{ me { id } }'}}\n"
    options = "  options: {refresh: {audience: api}}\n"
    app = app_of(tmp_path, ("  redirect:", f"{quirks}{options}  redirect:"))
    assert (";", {"access_token": "key"}, {"X-Version": "1"}) == (
        app.habits.scope_separator,
        app.habits.token_names,
        app.habits.token_headers,
    )
    assert ("POST", {"query": "{ me { id } }"}) == (app.habits.user_info_method, app.habits.user_info_body)
    assert {"audience": "api"} == app.habits.refresh_params


def test_an_apps_quirks_win_over_its_preset(tmp_path: Any):
    app = app_of(
        tmp_path,
        ("provider: acme", "provider: google\n  quirks: {alwaysScopes: [], scopePrefixes: ['https://acme.example/']}"),
    )
    assert () == app.habits.always_scopes
    assert ["RS256"] == list(app.habits.id_token_algorithms)
    assert {"https://acme.example/read": "read", "https://acme.example/write": "write"} == app.habits.scope_aliases


def test_an_app_says_how_its_provider_revokes(tmp_path: Any):
    own = "  quirks: {revoke: {kind: own, reach: token, method: DELETE, authenticate: bearer, body: none}}\n"
    there = "{authorizationUrl: https://acme.example/a, tokenUrl: https://acme.example/t, revokeUrl: https://acme.example/r}"
    way = app_of(tmp_path, (ENDPOINTS, f"  endpoints: {there}\n"), ("  redirect:", f"{own}  redirect:")).revocation
    assert ("own", "token", "DELETE", "bearer", "none") == (way.kind, way.reach, way.method, way.authenticate, way.body)
    for words in ("kind: none", "kind: none, reach: none"):
        none = preset_app(tmp_path, "google", ("  redirect:", f"  quirks: {{revoke: {{{words}}}}}\n  redirect:"))
        assert ("none", "none") == (none.revocation.kind, none.revocation.reach)


@pytest.mark.parametrize(
    "provider, title, expected",
    [("oidc", "", "acme"), ("oidc", "  title: Post\n", "Post"), ("slack", "", "Slack")],
    ids=["no provider's name", "a title", "a provider's name"],
)
def test_people_never_read_the_name_of_a_protocol(tmp_path: Path, provider: str, title: str, expected: str) -> None:
    """Without a title, an app of any OpenID provider goes by its own name."""
    written = APP.replace("provider: acme\n", f"provider: {provider}\n{title}")
    if provider == "slack":
        written = written.replace(ENDPOINTS, "").replace(OWNER, "")
    [draft] = load(write(tmp_path / "b", app=written)).apps.values()
    assert expected == draft.app.display_name


def folder(parent: Path, name: str) -> Path:
    parent.joinpath(name).mkdir()
    return parent / name


def test_the_hosts_of_an_api_are_the_presets_until_an_app_writes_its_own(tmp_path: Any):
    slack = ("provider: slack", 'provider: slack\n  api: {hosts: [files.example, "api.example:8443"], methods: [GET]}')
    assert ApiAccess((ApiHost("slack.com"),)) == app_of(folder(tmp_path, "1"), base=GLOBAL).api
    own = ApiAccess((ApiHost("files.example"), ApiHost("api.example", 8443)), ("GET",))
    assert own == app_of(folder(tmp_path, "2"), slack, base=GLOBAL).api
    assert ApiAccess() == app_of(folder(tmp_path, "3")).api


def test_a_host_that_differs_by_account_is_one_that_tools_are_told(tmp_path: Any):
    written = "quirks: {toolData: [base]}\n  api: {hosts: [{providerData: base, within: .my.example.com}], delivery: injected}"
    app = app_of(tmp_path, ("  scopes: [read, write]", f"  {written}\n  scopes: [read, write]"))
    assert ApiAccess((AccountHost("base", ".my.example.com"),), injected=True) == app.api


@pytest.mark.parametrize("preset", ALL)
def test_a_host_in_a_preset_is_a_name_of_its_own(preset: Preset):
    usual = {name: example(param) for name, param in preset.params.items()}
    usual |= {name: each.text_for(usual[each.of]) or "" for name, each in preset.derived.items()}
    hosts = [filled(host, usual) for host in preset.api_hosts if isinstance(host, str)]
    assert all(is_host_name(host) and "." in host for host in hosts)


@pytest.mark.parametrize(
    "said, path",
    [
        ("", "/ex/jira/{cloudid}/"),
        ("params: {product: confluence}\n  ", "/ex/confluence/{cloudid}/"),
        ("api: {basePath: /}\n  ", "/"),
        ("api: {hosts: [api.atlassian.com]}\n  ", ""),
    ],
)
def test_the_path_of_a_presets_api_belongs_to_the_presets_hosts(said: str, path: str, tmp_path: Any):
    app = preset_app(tmp_path, "atlassian", ("  flow:", f"  {said}flow:"), scopes='["read:jira-work"]')
    assert (path, "https://api.atlassian.com/") == (app.api.base_path, app.api.base_url)


@pytest.mark.parametrize("preset", ALL)
def test_the_hosts_of_a_mode_are_those_of_its_own_region(preset: Preset):
    """Where the preset's who-am-I endpoint is at a host of the API, that of each mode is, too."""

    def is_at_the_api(variant: Preset) -> bool:
        return urlsplit(variant.endpoints.user_info_url).netloc in variant.api_hosts

    assert is_at_the_api(preset) <= all(map(is_at_the_api, preset.variants().values()))


@pytest.mark.parametrize("preset", ALL)
def test_a_host_of_a_preset_that_differs_by_account_is_one_that_tools_are_told(preset: Preset):
    told = {*preset.tool_data, *preset.connection_facts.names}
    assert {host.provider_data for host in preset.api_hosts if not isinstance(host, str)} <= told


GITLAB = """\
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: gitlab}
spec:
  provider: gitlab
  flow: authorizationCode
  subjectMode: user
  client: {clientId: {value: an-id}, clientSecret: {valueFrom: {env: GITLAB_SECRET}}}
  scopes: [read_api]
"""


@pytest.mark.parametrize(
    ("more", "variables"),
    [
        ("", ("GITLAB_TOKEN",)),
        ("  params: {host: gitlab.com}\n", ("GITLAB_TOKEN",)),
        ("  params: {host: git.example}\n", ()),
        ("  connectParams: {host: {within: .git.example}}\n", ()),
        (ENDPOINTS + "    userInfoUrl: https://acme.example/me\n", ()),
    ],
)
def test_programs_find_a_token_in_their_variable_only_at_the_usual_host(
    tmp_path: Path, more: str, variables: tuple[str, ...]
) -> None:
    """`glab` in a clone of gitlab.com would send the token of another host there."""
    provider = "  provider: gitlab\n"
    assert variables == app_of(tmp_path, ("  provider: gitlab\n", provider + more), base=GITLAB).environment


@pytest.mark.parametrize(("mode", "variables"), [("global", ("SLACK_BOT_TOKEN",)), ("user", ("SLACK_USER_TOKEN",))])
def test_the_variable_is_that_of_the_kind_of_token(mode: str, variables: tuple[str, ...]) -> None:
    slack = presets()["slack"]
    assert slack.modes is not None
    assert list(variables) == slack.in_mode(slack.modes.default[mode]).environment  # type: ignore[index]
