"""Hostile ways to the page of a key: none stores anything, none asks the service, and none shows a value."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit.running_broker import BOB, Harness, running, turn
from tests.story.keys_kit import GOOD, KeyApi, asked_for, key_app, sent

FORM = {"content-type": "application/x-www-form-urlencoded"}
Pairs = list[tuple[str, str]]


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [key_app(api), key_app(api, "other", title="Other")]
    async with IdentityProvider(clock=test_clock) as idp, running(idp, apps, clock=test_clock) as harness:
        yield harness


def with_key(shown: Page, key: str = GOOD) -> Pairs:
    hidden = [(name, value) for name, value in shown.form("decision").fields if name == "csrf"]
    return [*hidden, ("decision", "continue"), ("credential.apiKey", key)]


VALUES = {
    "CR LF": f"{GOOD}\r\nX-Admin: 1",
    "LF inside": "key-of\nalice-0001",
    "NUL": f"{GOOD}\0",
    "NUL inside": "key-of\0alice",
    "tab inside": "key-of\talice",
    "escape": "key\x1b[31m",
    "DEL": "key\x7f",
    "C1": "key\x85of",
    "no-break space": f"\u00a0{GOOD}\u00a0x",
    "zero width": f"{GOOD}\u200b",
    "right to left": f"\u202e{GOOD}",
    "byte order mark": f"\ufeff{GOOD}",
    "Cyrillic a": "key-of-\u0430lice-0001",
    "full width": "\uff4b\uff45\uff59-of-alice",
    "emoji": "🔑" * 5,
    "combining": "key-of-a\u0301lice",
    "lone surrogate": "key\ud800",
    "only blanks": " \t  ",
    "blank inside and too long": "a " * 4097,
    "8,193": "x" * 8193,
    "a line separator": f"{GOOD}\u2028x",
    "a paragraph separator": "key-of\u2029alice",
}


@pytest.mark.case("155")
@pytest.mark.parametrize("name", VALUES)
async def test_a_value_that_no_header_can_carry_is_refused_beside_its_field(
    harness: Harness, api: KeyApi, name: str
) -> None:
    shown, browser = await opened(harness, api)
    body = "&".join(
        f"{key}={quote(value.encode('utf-8', 'surrogatepass'), safe='')}"
        for key, value in with_key(shown, VALUES[name])
    )
    page = await raw(browser, shown, body.encode())
    assert 400 == page.status, page.text
    assert 'aria-invalid="true"' in page.source
    assert GOOD not in page.source
    await nothing_happened(harness, api)


def replaced(name: str, value: str | None) -> Callable[[Pairs], Pairs]:
    """The form with another value of a field, or without it."""

    def change(pairs: Pairs) -> Pairs:
        kept = [pair for pair in pairs if pair[0] != name]
        return kept if value is None else [*kept, (name, value)]

    return change


FORMS: dict[str, Callable[[Pairs], Pairs]] = {
    "no csrf": replaced("csrf", None),
    "empty csrf": replaced("csrf", ""),
    "forged csrf": replaced("csrf", "A" * 43),
    "long csrf": replaced("csrf", "A" * 9000),
    "no decision": replaced("decision", None),
    "another decision": replaced("decision", "store"),
    "both decisions": lambda pairs: [*pairs, ("decision", "cancel")],
    "csrf twice": lambda pairs: [*pairs, pairs[0]],
    "the key twice": lambda pairs: [*pairs, ("credential.apiKey", "another-key-00001")],
    "the same key twice": lambda pairs: [*pairs, pairs[-1]],
    "no key": replaced("credential.apiKey", None),
    "an unknown field": lambda pairs: [*pairs, ("credential.password", "x")],
    "a field of ours": lambda pairs: [*pairs, ("credential.__class__", "x")],
    "an empty name": lambda pairs: [*pairs, ("credential.", "x")],
    "another spelling": lambda pairs: [*pairs[:-1], ("credential.APIKEY", GOOD)],
    "without a prefix": lambda pairs: [*pairs[:-1], ("apiKey", GOOD)],
    "a list": lambda pairs: [*pairs[:-1], ("credential.apiKey[]", GOOD)],
    "1,000 fields": lambda pairs: [*pairs, *((f"credential.f{number}", "x") for number in range(1000))],
    "17 fields": lambda pairs: [*pairs, *((f"f{number}", "x") for number in range(17))],
    "a long name": lambda pairs: [*pairs, ("credential." + "n" * 20_000, "x")],
}


@pytest.mark.case("151")
@pytest.mark.parametrize("name", FORMS)
async def test_a_form_that_is_not_ours_is_refused(harness: Harness, api: KeyApi, name: str) -> None:
    shown, browser = await opened(harness, api)
    page = await raw(browser, shown, urlencode(FORMS[name](with_key(shown))).encode())
    assert 400 <= page.status < 500, page.text
    assert GOOD not in page.source
    assert "is connected" not in page.text
    await nothing_happened(harness, api)


BODIES: dict[str, tuple[Callable[[bytes], bytes], dict[str, str]]] = {
    "10 MB": (lambda body: body + b"&x=" + b"a" * 10_000_000, FORM),
    "65 KiB": (lambda body: body + b"&x=" + b"a" * 65 * 1024, FORM),
    "JSON": (lambda _: json.dumps({"credential.apiKey": GOOD}).encode(), {"content-type": "application/json"}),
    "text": (lambda body: body, {"content-type": "text/plain"}),
    "multipart": (lambda body: body, {"content-type": "multipart/form-data; boundary=x"}),
    "no type": (lambda body: body, {"content-type": ""}),
    "Latin-1 bytes": (lambda body: body + b"\xe9", FORM),
    "empty": (lambda _: b"", FORM),
    "semicolons": (lambda body: body.replace(b"&", b";"), FORM),
    "another origin": (lambda body: body, {**FORM, "origin": "https://evil.example"}),
    "the origin null": (lambda body: body, {**FORM, "origin": "null"}),
    "a sister's origin": (lambda body: body, {**FORM, "origin": "http://127.0.0.1:8421"}),
    "another scheme": (lambda body: body, {**FORM, "origin": "https://127.0.0.1:8420"}),
    "another site": (lambda body: body, {**FORM, "sec-fetch-site": "cross-site"}),
    "the same site": (lambda body: body, {**FORM, "sec-fetch-site": "same-site"}),
    "another host": (lambda body: body, {**FORM, "host": "evil.example"}),
    "no cookie": (lambda body: body, {**FORM, "cookie": ""}),
    "a tossed cookie": (lambda body: body, {**FORM, "cookie": f"oab={'A' * 43}"}),
    "two cookies": (lambda body: body, {**FORM, "cookie": f"oab={'A' * 43}; oab={'B' * 43}"}),
}


@pytest.mark.case("151")
@pytest.mark.parametrize("name", BODIES)
async def test_a_body_from_elsewhere_is_refused(harness: Harness, api: KeyApi, name: str) -> None:
    shown, browser = await opened(harness, api)
    body, headers = BODIES[name]
    page = await raw(browser, shown, body(urlencode(with_key(shown)).encode()), headers)
    assert 400 <= page.status < 500, page.text
    assert GOOD not in page.source
    await nothing_happened(harness, api)


Try = Callable[[Harness, KeyApi, Browser, Page], Awaitable[int]]


async def by_query(_: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
    page = await browser.open(f"{shown.url}?credential.apiKey={GOOD}&decision=continue")
    assert GOOD not in page.source, "it is not filled in"
    return 400 if page.status == 200 else page.status


def by_method(method: str) -> Try:
    async def go(_: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
        page = await browser.open(shown.url, method=method)
        assert "Check and save" not in page.source
        return page.status

    return go


async def of_another_app(harness: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
    """The form of one link sent to another one: of another app, of another person."""
    other = await asked_for(harness, api, app="other")
    return (await raw(browser, shown, urlencode(with_key(shown)).encode(), url=other.authorization_url)).status


async def of_another_person(harness: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
    other = await asked_for(harness, api, turn(user=BOB))
    return (await raw(browser, shown, urlencode(with_key(shown)).encode(), url=other.authorization_url)).status


async def of_another_browser(harness: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
    other = harness.browser()
    await other.open(shown.url)
    return (await raw(other, shown, urlencode(with_key(shown)).encode())).status


async def without_the_page(harness: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
    """A tool or a chat that has the link, and no page."""
    return (await raw(harness.browser(), shown, urlencode(with_key(shown)[1:]).encode())).status


def by_api(path: str, body: Any, *, role: str = "runtime", method: str = "POST") -> Try:
    async def go(harness: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
        _, key = await harness.broker.api_keys.create("tool", {role})  # type: ignore[arg-type]
        headers = {"authorization": f"Bearer {key.reveal()}", "content-type": "application/json"}
        page = await raw(harness.browser(), shown, json.dumps(body).encode(), headers, url=harness.origin + path)
        return page.status

    return go


def at_the_link(headers: dict[str, str]) -> Try:
    async def go(harness: Harness, api: KeyApi, browser: Browser, shown: Page) -> int:
        _, key = await harness.broker.api_keys.create("tool", {"runtime"})
        said = {name: text.format(key=key.reveal()) for name, text in headers.items()}
        body = json.dumps({"credential": {"apiKey": GOOD}}).encode()
        return (await raw(harness.browser(), shown, body, said)).status

    return go


TURN = turn().auth
WAYS: dict[str, Try] = {
    "prefilled by the query": by_query,
    **{method: by_method(method) for method in ("PUT", "PATCH", "DELETE", "OPTIONS")},
    "another app's link": of_another_app,
    "another person's link": of_another_person,
    "another browser": of_another_browser,
    "without the page": without_the_page,
    "a tool by the API": at_the_link({"authorization": "Bearer {key}", "content-type": "application/json"}),
    "a tool as a form": at_the_link({"authorization": "Bearer {key}", **FORM}),
    "a tool by the API's sessions": by_api("/v1/sessions", {"credential": {"apiKey": GOOD}}),
    "a tool by the import": by_api("/v1/grants", {"app": "meter", "credential": {"apiKey": GOOD}}),
    "a turn that brings a key": by_api(
        "/v1/tokens", {"app": "CredentialApp/meter", "credential": {"apiKey": GOOD}, "turn": {"agentName": "planner"}}
    ),
}


@pytest.mark.case("151")
@pytest.mark.parametrize("name", WAYS)
async def test_no_other_way_types_a_key(harness: Harness, api: KeyApi, name: str) -> None:
    shown, browser = await opened(harness, api)
    status = await WAYS[name](harness, api, browser, shown)
    assert 400 <= status < 500, name
    await nothing_happened(harness, api)


@pytest.mark.case("151")
@pytest.mark.parametrize("headers", [{"sec-purpose": "prefetch"}, {"purpose": "prefetch"}, {}])
@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_a_look_at_the_link_changes_nothing(
    harness: Harness, api: KeyApi, method: str, headers: dict[str, str]
) -> None:
    asked = await asked_for(harness, api)
    before = await harness.session(asked)
    page = await harness.browser().open(asked.authorization_url, headers=headers, method=method)
    assert 200 == page.status
    assert before == await harness.session(asked)
    said = {name.lower(): value for name, value in page.headers}
    assert "no-store" in said["cache-control"]
    assert "frame-ancestors 'none'" in said["content-security-policy"]
    assert "same-origin" == said["referrer-policy"]
    assert ("GET" == method) == bool(page.body)


async def opened(harness: Harness, api: KeyApi) -> tuple[Page, Browser]:
    browser = harness.browser()
    return await browser.open((await asked_for(harness, api)).authorization_url), browser


async def raw(
    browser: Browser, shown: Page, body: bytes, headers: dict[str, str] | None = None, *, url: str = ""
) -> Page:
    """Send a body as it is, from the page that was shown, also if another one is open."""
    return await browser._go("POST", url or shown.url, initiator=shown, extra=headers or FORM, body=body)


async def nothing_happened(harness: Harness, api: KeyApi) -> None:
    """The service was not asked, nothing is stored, and the link goes on working."""
    assert [] == [it.path for it in api.seen]
    assert [] == [it async for it in harness.broker.grants.list()]
    for user in (None, BOB):
        result = await sent(harness, api, of=turn(user=user) if user else None)
        assert isinstance(result, AuthorizationRequired)
    assert GOOD not in harness.log.getvalue()
    assert GOOD not in repr(harness.audit.lines)
