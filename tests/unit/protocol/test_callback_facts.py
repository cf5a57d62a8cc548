"""Facts in the query of a callback: which are believed, and the signature of the query."""

from __future__ import annotations

import hmac
from dataclasses import replace
from hashlib import sha256
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.connection_facts import CallbackFact, ConnectionFacts
from oauthbroker.model.located_app import located
from oauthbroker.model.owner_check import pin_of
from oauthbroker.protocol.callback_checks import ValidCallback, parse_callback
from oauthbroker.protocol.callback_facts import callback_facts, check_signature
from tests.kit.forms import examples
from tests.kit.samples import app_with

STATE = "L" * 22 + "s" * 43
ZOHO = ("https://accounts.zoho.com", "https://accounts.zoho.eu")
RULES = {
    "realmId": CallbackFact(pattern="[0-9]{1,20}"),
    "accounts-server": CallbackFact(one_of=ZOHO, default=ZOHO[0]),
    "shop": CallbackFact(within=".myshopify.com"),
}
GOOD = {"realmId": "42", "shop": "a-shop.myshopify.com"}


def app_of(*names: str, signed: bool = False) -> App:
    facts = ConnectionFacts(callback={name: RULES[name] for name in names}, hmac=signed)
    app = app_with(facts=facts)
    return replace(
        app,
        client=replace(app.client, client_secret=Secret("hush"), later_secrets=(Secret("newer"),)),
        endpoints=replace(
            app.endpoints, token_url="https://{accounts-server}/token", refresh_url="https://{shop}/refresh"
        ),
    )


def found(app: App, query: str) -> dict[str, str] | str:
    """Return the facts, or the name of the one that is refused."""
    try:
        return callback_facts(app, ValidCallback(Secret("c"), query=query.encode()))
    except BrokerError as error:
        refused = error
    assert Code.CALLBACK_FACT_INVALID is refused.code
    assert refused.words["fact"] in refused.message("en")
    assert refused.words["fact"] in refused.message("ko")
    return refused.words["fact"]


ADMITTED = [
    ("realmId", "42", "42"),
    ("realmId", "%34%32", "42"),
    ("accounts-server", quote(ZOHO[1], safe=""), ZOHO[1]),
    ("shop", "a-shop.myshopify.com", "a-shop.myshopify.com"),
]


@pytest.mark.parametrize("name, written, expected", ADMITTED)
def test_a_declared_value_is_read_as_it_came(name: str, written: str, expected: str) -> None:
    assert {name: expected} == found(app_of(name), f"code=c&{name}={written}&state=s&other=1")


def test_a_missing_one_has_its_default_and_without_one_it_is_told_by_name() -> None:
    assert {"accounts-server": ZOHO[0]} == found(app_of("accounts-server"), "code=c&state=s")
    assert "realmId" == found(app_of("realmId"), "code=c&state=s")


HOSTILE_COMPANIES = [
    "",
    "4 2",
    "-1",
    "1" * 21,
    "4\uff12",
    "42/..",
    "42%0a",
    "0x2a",
    "%F0%9F%92%A3",
    "42%00",
    "%ff",
    "x" * 600,
]
HOSTILE_SHOPS = [
    "evil.example",
    "evil.example/.myshopify.com",
    "evil.example%23.myshopify.com",
    "evil.example%3F.myshopify.com",
    "evil.example%5C.myshopify.com",
    "a.b.myshopify.com",
    ".myshopify.com",
    "myshopify.com",
    "-a.myshopify.com",
    "a-.myshopify.com",
    "A-Shop.myshopify.com",
    "a.MYSHOPIFY.com",
    "a.myshopify.com.",
    "a.myshopify.com%0d%0aHost: evil.example",
    "a.myshopify.com:8443",
    "user@a.myshopify.com",
    "evil.example%40a.myshopify.com",
    "https://a.myshopify.com",
    "xn--80ak6aa92e.evil.example",
    "%D0%B0.myshopify.com",
    "a%E3%80%82myshopify.com",
    "a%2Emyshopify%2Ecom%2F%2Fevil",
    "127.0.0.1",
    "[::1]",
    "0.0.0.0",
    "a" * 64 + ".myshopify.com",
    "a.myshopify.com%00",
    "a..myshopify.com",
    " a.myshopify.com",
    "a.myshopify.com%20",
    "a_b.myshopify.com",
]
HOSTILE_CENTRES = [
    "accounts.zoho.eu",
    "https://accounts.zoho.eu/",
    "https://ACCOUNTS.zoho.eu",
    "https://accounts.zoho.eu@evil.example",
    "https://accounts.zoho.eu.evil.example",
    "http://accounts.zoho.eu",
    "https%3A%2F%2Faccounts.zoho.eu%2F..",
    "",
]
HOSTILE = [
    *(("realmId", each) for each in HOSTILE_COMPANIES),
    *(("shop", each) for each in HOSTILE_SHOPS),
    *(("accounts-server", each) for each in HOSTILE_CENTRES),
]


@pytest.mark.parametrize("name, value", HOSTILE)
def test_every_other_value_is_refused_by_name(name: str, value: str) -> None:
    assert name == found(app_of(name), f"code=c&{name}={value}&state=s")


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("second", ["{n}={v}", "%{h}{r}={v}", "{n}=", "{n}"])
def test_a_parameter_that_occurs_twice_is_refused_in_any_spelling(name: str, second: str) -> None:
    value = {**GOOD, "accounts-server": ZOHO[1]}[name]
    again = second.format(n=name, v=value, h=f"{ord(name[0]):02x}", r=name[1:])
    assert name == found(app_of(name), f"{name}={value}&{again}")


@given(st.text(max_size=600))
@settings(max_examples=examples(300))
def test_no_text_makes_an_address_of_another_host(text: str) -> None:
    app = app_of("accounts-server", "shop")
    there = located(app, {"accounts-server": text, "shop": text}).endpoints
    assert there.token_url in {f"{each}/token" for each in ZOHO} | {"https://{accounts-server}/token"}
    label = there.refresh_url.removeprefix("https://").removesuffix(".myshopify.com/refresh")
    assert there.refresh_url == "https://{shop}/refresh" or not set(label) - set(
        "abcdefghijklmnopqrstuvwxyz0123456789-"
    )


def test_the_same_client_is_meant_at_each_host() -> None:
    app = app_of("accounts-server", "shop")
    there = located(app, {"accounts-server": ZOHO[1], "shop": GOOD["shop"]})
    assert ("https://accounts.zoho.eu/token", "https://a-shop.myshopify.com/refresh") == (
        there.endpoints.token_url,
        there.endpoints.refresh_url,
    )
    assert (app.registration, app.name) == (there.registration, there.name)


def test_grants_and_pins_of_before_the_fact_was_declared_stay_those_of_the_default_host() -> None:
    app = app_of("accounts-server")
    before = replace(
        app, facts=ConnectionFacts(), endpoints=replace(app.endpoints, token_url="https://accounts.zoho.com/token")
    )
    assert before.registration == app.registration
    assert pin_of(before, "zoho:user:1", None) == pin_of(app, "zoho:user:1", None)
    assert "https://accounts.zoho.com/token" == located(app, {}).endpoints.token_url


def signed(pairs: dict[str, str], secret: str = "hush", *, leave: str = "hmac") -> str:
    text = "&".join(sorted(f"{name}={value}" for name, value in pairs.items() if name != leave))
    return urlencode({**pairs, "hmac": hmac.new(secret.encode(), text.encode(), sha256).hexdigest()})


SHOPIFY = {"code": "c-1", "shop": "some-shop.myshopify.com", "state": STATE, "timestamp": "1337178173"}


def is_believed(query: str) -> bool:
    try:
        check_signature(app_of("shop", signed=True), parse_callback(query.encode()))
    except BrokerError as error:
        return error.code is not Code.CALLBACK_MALFORMED
    return True


def test_a_query_that_the_clients_secret_signs_is_believed() -> None:
    assert is_believed(signed(SHOPIFY))
    assert is_believed(signed(SHOPIFY, "newer")), "while a secret is being replaced"


NOT_SIGNED = {
    "none": urlencode(SHOPIFY),
    "empty": urlencode({**SHOPIFY, "hmac": ""}),
    "another secret": signed(SHOPIFY, "guess"),
    "another shop": signed(SHOPIFY).replace("some-shop", "evil-shop"),
    "another code": signed(SHOPIFY).replace("c-1", "c-2"),
    "one parameter more": signed(SHOPIFY) + "&more=1",
    "one parameter less": signed({**SHOPIFY, "more": "1"}).replace("&more=1", ""),
    "twice": signed(SHOPIFY) + "&" + signed(SHOPIFY).rpartition("&")[2],
    "a parameter twice": signed(SHOPIFY) + "&shop=some-shop.myshopify.com",
    "upper case": signed(SHOPIFY).rpartition("=")[0] + "=" + signed(SHOPIFY).rpartition("=")[2].upper(),
    "not ASCII": urlencode({**SHOPIFY, "hmac": "é" * 64}),
    "a value that is no UTF-8": signed(SHOPIFY) + "&more=%ff",
    "a name that is no UTF-8": signed(SHOPIFY) + "&%ff=1",
    "glued": signed({**SHOPIFY, "a": "1&b=2"}),
}


@pytest.mark.parametrize("query", NOT_SIGNED.values(), ids=list(NOT_SIGNED))
def test_every_other_query_is_not(query: str) -> None:
    assert not is_believed(query)


def test_an_error_may_come_without_a_signature_but_not_with_a_wrong_one() -> None:
    error = {"error": "access_denied", "state": STATE}
    assert is_believed(urlencode(error))
    assert not is_believed(urlencode({**error, "hmac": "0" * 64}))


def test_a_known_signature_is_reproduced() -> None:
    """The example of ShopifyAPI's own tests: the secret is `hush`."""
    params = {
        "shop": "some-shop.myshopify.com",
        "code": "a94a110d86d2452eb3e2af4cfb8a3828",
        "timestamp": "1337178173",
    }
    text = "&".join(f"{name}={params[name]}" for name in sorted(params))
    assert "2cb1a277650a659f1b11e92a4a64275b128e037f2c3390e3c8fd2d8721dac9e2" == (
        hmac.new(b"hush", text.encode(), sha256).hexdigest()
    )
