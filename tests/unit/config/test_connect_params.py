"""`connectParams`: the accepted forms, the refusals, and that no value leads to another host."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from oauthbroker.config import load, resolve
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.connect_params import values_of
from tests.unit.config.bundles import APP, BROKER, edited, refused, write

OWNED: Final = """  owner:
    identity:
      user: {from: tokenResponse, template: "acme:user:{user.id}"}
"""
ENDPOINTS: Final = """  endpoints:
    authorizationUrl: https://acme.example/authorize
    tokenUrl: https://acme.example/token
"""


def own(params: str, *changes: tuple[str, str], at: str = "https://{shop}.acme.example") -> str:
    """An app of a provider of its own, whose endpoints have a parameter."""
    endpoints = ENDPOINTS.replace("https://acme.example", at)
    return edited(APP, (ENDPOINTS, f"{endpoints}  connectParams: {params}\n"), *changes)


def preset(provider: str, params: str, *changes: tuple[str, str]) -> str:
    """An app with a preset whose placeholder is said by the person."""
    return edited(
        APP, ("provider: acme", f"provider: {provider}"), (ENDPOINTS, f"  connectParams: {params}\n"), *changes
    )  # fmt: skip


def app_in(folder: Path, text: str) -> App:
    loaded = load(write(folder, broker=BROKER, app=text))
    return resolve(loaded, {"ACME_SECRET": "s"}, {}).apps["acme"]


def hosts_of(app: App) -> set[str]:
    urls = [getattr(app.endpoints, slot) for slot in Endpoints.__slots__]
    return {urlsplit(url).netloc for url in urls if url}


ZENDESK: Final = preset("zendesk", "{subdomain: {}}", ('{from: tokenResponse, template: "acme:user:{user.id}"}', '{from: userInfo, template: "zendesk:user:{user.id}"}'))  # fmt: skip


@pytest.mark.parametrize(
    "text, account, hosts",
    [
        (own("{shop: {}}"), "one", {"one.acme.example"}),
        (own("{shop: {within: .acme.example}}"), "one", {"one.acme.example"}),
        (own("{shop: {oneOf: [one, two]}}"), "two", {"two.acme.example"}),
        (own("{shop: {within: .acme.example}}", at="https://{shop}"), "one", {"one.acme.example"}),
        (own("{shop: {}}", at="https://acme.example/{shop}"), "Site_1", {"acme.example"}),
        (own("{shop: {}, area: {}}", at="https://{shop}.acme.example/{area}"), "one,eu", {"one.acme.example"}),
        (ZENDESK, "globex", {"globex.zendesk.com"}),
    ],
)  # fmt: skip
def test_an_account_fills_every_address(tmp_path: Path, text: str, account: str, hosts: set[str]) -> None:
    app = app_in(tmp_path, text)
    assert not app.is_at_a_connection
    there = app.at(values_of(app.connect_params, account))
    assert there.is_at_a_connection
    assert hosts == hosts_of(there)
    assert app.config_digest == there.config_digest, "one configuration"
    assert app.registration != there.registration, "a grant of one is no grant of another"


@pytest.mark.parametrize(
    "text, path, what",
    [
        (own("{shop: {}}", at="https://acme.example"), "spec.connectParams.shop", "stands in no address"),
        (own("{shop: {}}", at="https://{shop}"), "spec.connectParams.shop", "whole host"),
        (
            own("{shop: {}}", at="https://login.{shop}.acme.example"),
            "spec.connectParams.shop",
            "no domain of one owner bounds it",
        ),
        (own("{shop: {}}", at="https://{shop}.com"), "spec.connectParams.shop", "no domain of one owner"),
        (own("{shop: {}}", at="https://{shop}.acme.example:8443"), "spec.connectParams.shop", "no domain of one owner"),
        (own("{shop: {within: .com}}", at="https://{shop}"), "spec.connectParams.shop", "no domain that it can"),
        (own("{shop: {within: .evil.example}}"), "spec.connectParams.shop", "within differs"),
        (own('{shop: {oneOf: ["a/b"]}}'), "spec.connectParams.shop", "could lead elsewhere"),
        (own("{shop: {oneOf: [a, a]}}"), "spec.connectParams.shop", "twice"),
        (own("{shop: {oneOf: []}}"), "spec.connectParams.shop", "empty"),
        (own('{shop: {pattern: "("}}'), "spec.connectParams.shop", "pattern"),
        (own('{shop: {pattern: "a{99999999999999}"}}'), "spec.connectParams.shop", "pattern"),
        (own('{shop: {title: ""}}'), "spec.connectParams.shop", "title"),
        (own("{sh-op: {}}", at="https://{sh-op}.acme.example"), "spec.connectParams.sh-op", "not the name"),
    ],
)
def test_a_parameter_that_could_lead_elsewhere_is_refused(tmp_path: Path, text: str, path: str, what: str) -> None:
    problems = refused(write(tmp_path, broker=BROKER, app=text)).problems
    assert [path] == [each.path for each in problems if "connectParams" in each.path]
    assert what in problems[0].what


def test_hosts_of_several_owners_need_a_path_and_a_name_each(tmp_path: Path) -> None:
    """Else a hostile one gets the code of an honest one, or its user 7 passes for the honest one's."""
    text = own("{shop: {oneOf: [a.example, b.example]}}", at="https://{shop}")
    problems = refused(write(tmp_path, broker=BROKER, app=text)).problems
    assert {"spec.redirect.callbackPath", "spec.owner.identity.user.template"} == {each.path for each in problems}
    ends = own("{shop: {oneOf: [acme, evil]}}", at="https://{shop}.example")
    assert len(problems) == len(refused(write(tmp_path, broker=BROKER, app=ends)).problems)
    promised = edited(text, ("  scopes:", "  quirks: {issuerPromised: true}\n  scopes:"))
    assert app_in(tmp_path, promised).connect_params


@pytest.mark.parametrize("rest", [".example", ".acme.example:8443"])
def test_a_list_of_values_is_enough_where_no_domain_bounds_them(tmp_path: Path, rest: str) -> None:
    text = own(
        "{shop: {oneOf: [one, two]}}",
        ("callbackPath: /oauth/callback/acme", "callbackPath: '/oauth/callback/acme/{shop}'"),
        ("acme:user:{user.id}", "acme:user:{connectParams.shop}:{user.id}"),
        at=f"https://{{shop}}{rest}",
    )
    app = app_in(tmp_path, text)
    assert {f"two{rest}"} == hosts_of(app.at(values_of(app.connect_params, "two")))


def test_requests_go_to_a_host_of_a_connection_at_443_alone(tmp_path: Path) -> None:
    hosts = "  api: {hosts: ['{shop}.acme.example:8443', '{shop}.acme.example']}\n  scopes:"
    text = own("{shop: {oneOf: [one]}}", ("  scopes:", hosts), at="https://acme.example/{shop}")
    problems = refused(write(tmp_path, broker=BROKER, app=text)).problems
    assert [True] == ["a port" in it.what for it in problems if it.path == "spec.api.hosts[0]"]


def test_a_direct_link_cannot_ask_for_a_parameter(tmp_path: Path) -> None:
    text = own(
        "{shop: {}}", ("{callbackPath: /oauth/callback/acme}", "{callbackPath: /oauth/callback/acme, link: direct}")
    )
    assert "spec.redirect.link" in {each.path for each in refused(write(tmp_path, broker=BROKER, app=text)).problems}


HOSTILE: Final = [
    "", " ", ".", "..", "...", "-", "-a", "a-", "a.", ".a", "a..b", "a.b", "www.evil.example", "evil.example#", "evil.example?",
    "evil.example/", "evil.example\\", "evil.example:443", "a:443", "a@b", "@b", "user:pw@evil.example", "//evil.example", "/",
    "\\", "a/b", "a\\b", "a/../b", "../", "..%2f", "%2e%2e", "%2f", "a%2eb", "a%00", "a\x00", "a\x00.evil.example", "a\n", "a\r\nb",
    "\ta", "a\t", "a\x7f", "a\x1b[31m", "a b", "a+b", "a,b", "a;b", "a&b=c", "a=b", "a?b", "a#b", "a!b", "a$b", "a'b", 'a"b',
    "a(b)", "a*b", "*", "a{b}", "{shop}", "{}", "a|b", "a<b>", "a^b", "a`b", "a~", "~", "a_b", "_a", "A", "EVIL", "\u0430", "a\u0430",
    "\uff41", "a\u3002b", "a\uff0eb", "a\u2024b", "\u00e9", "e\u0301", "stra\u00dfe", "\u0130", "\u202eelive", "a\u200bb", "a\u00ad",
    "\ufeffa", "\u2100", "a\u2044b", "xn--80ak6aa92e", "xn--", "0x7f000001", "127.0.0.1", "2130706433", "0", "[::1]", "::1", "localhost",
    "metadata", "169.254.169.254", "a" * 63, "a" * 64, "a" * 254, "a." * 126 + "a", "https://evil.example", "HTTPS://a.acme.example",
    "javascript:1", "data:,", "file:///etc/passwd", "null", "true", "\ud800",
]  # fmt: skip
FORMS: Final = {
    "label": (own("{shop: {}}"), ".acme.example"),
    "label by suffix": (own("{shop: {within: .acme.example}}", at="https://{shop}"), ".acme.example"),
    "list": (own("{shop: {oneOf: [one, two]}}", at="https://{shop}.acme.example"), ".acme.example"),
    "segment": (own("{shop: {}}", at="https://acme.example/{shop}/x"), "acme.example"),
    "loose segment": (own('{shop: {pattern: ".*"}}', at="https://acme.example/{shop}/x"), "acme.example"),
}  # fmt: skip


@pytest.mark.sample(150)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_leads_to_another_host_or_out_of_its_place(
    tmp_path_factory: pytest.TempPathFactory, form: str, value: str
) -> None:
    """100 values, by an account's name and typed: refused, or one label of the host, or one segment of the path."""
    text, end = FORMS[form]
    if form not in _APPS:
        _APPS[form] = app_in(tmp_path_factory.mktemp("app"), text)
    app = _APPS[form]
    said = [values_of(app.connect_params, value)] if _is_taken(app, value) else []
    typed = app.connect_params[0].typed(value)
    said += [{"shop": typed}] if typed is not None else []
    for values in said:
        there = app.at(values)
        for slot in Endpoints.__slots__:
            url = getattr(there.endpoints, slot)
            if not url:
                continue
            parts = urlsplit(url)
            assert parts.netloc == parts.hostname, "no port, no user"
            assert parts.netloc.endswith(end)
            assert parts.netloc.count(".") == (2 if end.startswith(".") else 1)
            assert ("", "") == (parts.query, parts.fragment)
            assert ".." not in parts.path.split("/")
            assert parts.path.count("/") == (1 if end.startswith(".") else 3)
            assert url.isascii()
            assert url.isprintable()


_APPS: Final[dict[str, App]] = {}


def _is_taken(app: App, account: str) -> bool:
    code = None
    try:
        values_of(app.connect_params, account)
    except BrokerError as error:
        code = error.code
    assert code in {None, Code.ACCOUNT_FORBIDDEN}
    return code is None


def test_a_person_may_paste_the_whole_host(tmp_path: Path) -> None:
    [param] = app_in(tmp_path, own("{shop: {}}")).connect_params
    for typed in ("one", " one ", "One", "one.acme.example", "https://one.acme.example/", "ONE.ACME.EXAMPLE"):
        assert "one" == param.typed(typed), typed


def test_the_facts_of_a_preset_follow_the_parameter(tmp_path: Path) -> None:
    """Shopify's callback names the shop, which has to be the one that was asked for."""
    text = preset(
        "shopify",
        "{shop: {}}",
        ("subjectMode: user", "subjectMode: global"),
        (OWNED, "  owner: {authorizers: anyone}\n"),
    )
    app = app_in(tmp_path, text)
    fact = app.at({"shop": "one"}).facts.callback["shop"]
    assert [True, False] == [fact.admits(f"{shop}.myshopify.com") for shop in ("one", "two")]


SHOPIFY: Final = (
    ("subjectMode: user", "subjectMode: global"),
    (
        '    identity:\n      user: {from: tokenResponse, template: "acme:user:{user.id}"}\n',
        "    authorizers: anyone\n",
    ),
)


def test_the_callback_of_a_shop_has_to_name_the_shop_of_its_connection(tmp_path: Path) -> None:
    app = app_in(tmp_path, preset("shopify", "{shop: {title: Your shop}}", *SHOPIFY))
    there = app.at(values_of(app.connect_params, "one"))
    assert {"one.myshopify.com"} == hosts_of(there)
    assert ("one.myshopify.com",) == there.facts.callback["shop"].one_of
    assert not app.facts.callback["shop"].admits("one.myshopify.com"), "not before the shop is known"


def test_a_request_for_facts_goes_to_the_host_of_its_connection(tmp_path: Path) -> None:
    facts = '  facts: {requests: [{url: "https://{shop}.acme.example/me", each: {plan: plan}}]}\n'
    app = app_in(tmp_path, own("{shop: {}}", ("  scopes:", f"{facts}  scopes:")))
    [request] = app.at(values_of(app.connect_params, "one")).facts.requests
    assert "https://one.acme.example/me" == request.url


def test_a_preset_parameter_that_is_missing_is_one_problem_and_names_both_ways(tmp_path: Path) -> None:
    text = preset("shopify", "{}", *SHOPIFY)
    [problem] = refused(write(tmp_path, broker=BROKER, app=text)).problems
    assert "spec.params.shop" == problem.path
    assert "connectParams" in problem.hint


@pytest.mark.parametrize("params", ["{shop: {}}", "{}"])
def test_a_template_names_no_parameter_that_the_app_lacks(tmp_path: Path, params: str) -> None:
    at = "https://{shop}.acme.example" if "shop" in params else "https://acme.example"
    text = own(params, ("acme:user:{user.id}", "acme:user:{connectParams.shopp}:{user.id}"), at=at)
    [problem] = refused(write(tmp_path, broker=BROKER, app=text)).problems
    assert "spec.owner.identity.user.template" == problem.path
    assert "shopp" in problem.what
