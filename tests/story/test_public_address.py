"""One public address for everything: path prefixes, https, languages; and sessions that outlive their configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urljoin, urlsplit

import pytest
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.web.api.proxy import _target_of
from oauthbroker.web.words import PAGES
from tests.kit.callback_pages import assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import BASE, Harness, at, file_store, public, running, user_app
from tests.story.hostile_web import PREFIXED_BASE, mounted
from tests.unit.web import kit

HTTPS = "https://broker.test"


def stripped(web: ASGIApp, path: str) -> ASGIApp:
    """Behind a proxy that takes the prefix off without a header."""

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"].startswith(path + "/"), "the browser left the prefix"
        short = {"path": scope["path"].removeprefix(path), "raw_path": scope["raw_path"].removeprefix(path.encode())}
        await web({**scope, **short}, receive, send)

    return proxy


def unchanged(web: ASGIApp, _path: str) -> ASGIApp:
    """Behind a proxy that forwards the path as it is."""
    return web


@pytest.mark.parametrize("base", [PREFIXED_BASE, PREFIXED_BASE + "/"])
@pytest.mark.parametrize("front", [mounted, stripped, unchanged])
async def test_below_a_path_prefix_links_forms_cookies_callback_and_redirect_all_work(
    identity_provider: IdentityProvider, test_clock: TestClock, front: Callable[[ASGIApp, str], ASGIApp], base: str
) -> None:
    app = at(identity_provider, base, user_app(identity_provider))
    async with running(identity_provider, [app], clock=test_clock, settings=public(base)) as harness:
        person = Browser(apps={"https://runtime.example": front(harness.broker.asgi.app, "/tools/oauth")})
        asked = await harness.ask_link()
        assert asked.authorization_url.startswith(f"{PREFIXED_BASE}/connect/")
        page = await harness.connect(asked, browser=person)
        assert (200, f"{PREFIXED_BASE}/connected/mail") == (page.status, page.url)
        sent = parse_qs(urlsplit(next(each.url for each in person.history if "/authorize?" in each.url)).query)
        assert [f"{PREFIXED_BASE}/oauth/callback/mail"] == sent["redirect_uri"]
        assert isinstance(await harness.ask(), Ready)


@pytest.mark.parametrize("prefix", ["/b", "/oauth", "/connect", "/v1", "/a%20b"])
async def test_whether_the_proxy_takes_the_path_off_or_not_each_route_answers_and_no_other(
    identity_provider: IdentityProvider, test_clock: TestClock, prefix: str
) -> None:
    """Also where a route of the broker begins like the path."""
    async with running(identity_provider, [], clock=test_clock, settings=public(BASE + prefix)) as harness:
        app, path, host = harness.broker.asgi.app, unquote(prefix), urlsplit(BASE).netloc

        async def status(asked: str, host: str = host) -> int:
            return (await kit.ask(app, asked, host=host)).status

        for below in ("/healthz", "/v1/openapi.json", "/docs", "/", "/connections"):
            assert await status(below) == await status(path + below) != 404
        assert 200 == await status(f"{path}/healthz", "10.0.0.7:8420"), "a probe asks by address"
        assert 404 == await status(f"{path}{path}x/healthz") == await status("/healthz/healthz")
        away = await kit.ask(app, "/oauth/callback/mail", host=host)
        assert away.body == (await kit.ask(app, f"{path}/oauth/callback/mail", host=host)).body


async def test_the_address_without_its_last_slash_leads_to_the_first_page(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [], clock=test_clock, settings=public(f"{BASE}/b")) as harness:
        person = harness.browser()
        page = await person.open(f"{BASE}/b")
        assert (307, f"{BASE}/b/") == (page.status, urljoin(page.url, page.location or ""))
        page = await person.follow()
        assert f"{BASE}/b/connections" in {urljoin(page.url, link) for link in page.document.links}


def test_a_tool_reaches_its_provider_below_a_path_that_needs_percent_signs() -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/\u00e9 b(1)/v1/proxy/mail/-/api/me",
        "query_string": b"",
        "headers": [],
    }
    raw = b"/%C3%A9%20b(1)/v1/proxy/mail/-/api/me"
    target = _target_of(Request({**scope, "raw_path": raw, "root_path": "/\u00e9 b(1)"}))
    assert ("mail", "-", "/api/me") == target


@pytest.mark.parametrize(("base", "said"), [(HTTPS, "max-age=31536000"), (BASE, None)])
@pytest.mark.parametrize("path", ["/admin/login", "/nothing", "/v1/tokens", "/healthz"])
async def test_browsers_come_back_by_https_alone_where_the_address_is_https(
    identity_provider: IdentityProvider, test_clock: TestClock, base: str, said: str | None, path: str
) -> None:
    async with running(identity_provider, [], clock=test_clock, settings=public(base)) as harness:
        answer = await kit.ask(harness.broker.asgi.app, path, host=urlsplit(base).netloc)
        assert said == answer.headers.get("strict-transport-security")


async def test_below_a_path_prefix_a_no_leads_to_a_page_of_ours_too(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = at(identity_provider, PREFIXED_BASE, user_app(identity_provider))
    async with running(identity_provider, [app], clock=test_clock, settings=public(PREFIXED_BASE)) as harness:
        person = Browser(apps={"https://runtime.example": mounted(harness.broker.asgi.app, "/tools/oauth")})
        await person.open((await harness.ask_link()).authorization_url)
        assert f"{PREFIXED_BASE}/declined/mail" == (await person.submit({"decision": "cancel"})).location
        assert 200 == (await person.follow()).status


@pytest.mark.case("16", "87")
async def test_on_https_every_cookie_is_a_host_cookie_and_secure(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = at(identity_provider, HTTPS, user_app(identity_provider))
    async with running(identity_provider, [app], clock=test_clock, settings=public(HTTPS)) as harness:
        asked = await harness.ask_link()
        person = harness.browser()
        url = await harness.way_back(asked, person)
        locator = asked.auth_session_id.removeprefix("as-")
        ours = {"__Host-oab", f"__Host-oab-{locator}"}
        assert ours == {cookie.name for cookie in person.cookies.all if cookie.host == "broker.test"}
        assert all(cookie.secure and cookie.http_only for cookie in person.cookies.all if cookie.name in ours)
        done = await person.follow(url)
        assert (303, f"{HTTPS}/connected/mail") == (done.status, done.location)
        [arrival] = {cookie.name for cookie in person.cookies.all if cookie.host == "broker.test"} - ours
        assert arrival.startswith("__Host-oab_arrival-")
        ours |= {arrival}
        assert all(cookie.secure and cookie.http_only for cookie in person.cookies.all if cookie.name in ours)


@pytest.mark.case("16")
async def test_a_session_cookie_lives_an_hour_longer_than_its_link(harness: Harness) -> None:
    """The callback is refused after the link's end (case 4); until the cookie ends its browser is told why."""
    asked = await harness.ask_link()
    harness.clock.advance(540)
    person = harness.browser()
    await person.open(asked.authorization_url)
    page = await person.submit()
    (cookie,) = [value for name, value in page.headers if name.lower() == "set-cookie"]
    assert "Max-Age=3660" in cookie


@pytest.mark.parametrize(
    "accepted, locale, language",
    [
        ("ko-KR,ko;q=0.9,en;q=0.8", "en", "ko"),
        ("en-GB", "ko", "en"),
        ("fr,de;q=0.5", "ko", "ko"),
        ("fr", "en", "en"),
        ("*", "ko", "ko"),
        ("en;q=0.1,ko;q=0.2", "en", "ko"),
    ],
)
async def test_every_page_of_the_way_speaks_the_readers_language(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    accepted: str,
    locale: Literal["en", "ko"],
    language: Literal["en", "ko"],
) -> None:
    words = {
        "en": ("planner is asking", "You are being sent to", "Mail is connected"),
        "ko": ("Mail 연결", "이동 중", "Mail 연결 완료"),
    }
    app = user_app(identity_provider)
    settings = public(BASE, locale=locale)
    async with running(identity_provider, [app], clock=test_clock, settings=settings) as harness:
        asked = await harness.ask_link()
        person = Browser(apps={BASE: harness.broker.asgi.app}, language=accepted)
        last = await harness.connect(asked, browser=person)
        ours = [page for page in person.history if page.url.startswith(BASE) and page.status == 200]
        assert [language] * 3 == [page.header("content-language") for page in ours]
        assert [f'<html lang="{language}"' in page.source for page in ours] == [True] * 3
        for page, word in zip(ours, words[language], strict=True):
            assert word in page.text
        assert last is ours[-1]
        gone = await person.open(asked.authorization_url)
        assert PAGES[language].connected_lead in gone.text


async def test_the_invitation_speaks_the_brokers_language(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, settings=public(BASE, locale="ko")
    ) as harness:
        assert "Mail" in (await harness.ask_link()).message
        assert not (await harness.ask_link()).message.isascii()
        result = await harness.ask("nowhere")
        assert Code.OAUTH_APP_NOT_FOUND.sentence("ko") == result.message


Change = Callable[[App], App]
CHANGES: dict[str, Change] = {
    "another client": lambda app: replace(app, client=replace(app.client, client_id="client-new")),
    "another token endpoint": lambda app: replace(app, endpoints=replace(app.endpoints, token_url=app.endpoints.token_url + "/v2")),
    "another key set": lambda app: replace(app, endpoints=replace(app.endpoints, jwks_url="https://other.example")),
    "fewer scopes": lambda app: replace(app, scopes=("read",)),
    "another binding": lambda app: replace(app, owner=replace(app.owner, binding="localOperator")),
    "another resource": lambda app: replace(app, resource=("https://api.example",)),
}  # fmt: skip


async def restarted(
    idp: IdentityProvider,
    clock: TestClock,
    folder: Path,
    change: Change,
    then: Callable[[Harness, Any], Awaitable[None]],
) -> None:
    """A person is on the way; meanwhile the broker starts again with another configuration."""
    before, person = user_app(idp), Browser()
    async with running(idp, [before], clock=clock, store=file_store(folder, clock)) as harness:
        asked = await harness.ask_link()
        person.serve(BASE, harness.broker.asgi.app)
        url = await harness.way_back(asked, person)
    async with running(idp, [change(before)], clock=clock, store=file_store(folder, clock)) as harness:
        person.serve(BASE, harness.broker.asgi.app)
        await then(harness, (asked, person, url))


@pytest.mark.case("98")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_session_of_another_configuration_dies_at_the_callback(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, change: Change
) -> None:
    async def then(harness: Harness, way: Any) -> None:
        asked, person, url = way
        assert_error_page(await person.follow(url), Code.STATE_EXPIRED)
        assert 0 == harness.idp.count("token"), "the code is not redeemed"
        assert "expired" == (await harness.session(asked)).status
        assert asked.auth_session_id != (await harness.ask_link()).auth_session_id

    await restarted(identity_provider, test_clock, tmp_path, change, then)


@pytest.mark.case("98")
async def test_a_session_of_another_configuration_dies_at_the_connect_page(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    async def then(harness: Harness, way: Any) -> None:
        asked, person, _ = way
        assert_error_page(await person.open(asked.authorization_url), Code.STATE_UNKNOWN, "otherConfig")
        assert [] == person.page.document.forms, "there is no button; one of before ends it (test_dead_links.py)"
        assert asked.auth_session_id != (await harness.ask_link()).auth_session_id
        await harness.connected()

    def narrower(app: App) -> App:
        return replace(app, resource=("https://api.example",))

    await restarted(identity_provider, test_clock, tmp_path, narrower, then)


@pytest.mark.case("98")
async def test_an_unchanged_configuration_lets_people_finish_after_a_restart(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    """A rotated client secret is no change: it is what a restart is for."""

    async def then(harness: Harness, way: Any) -> None:
        _, person, url = way
        assert_leads_to_connected(await person.follow(url))
        assert isinstance(await harness.ask(), Ready)

    def rotated(app: App) -> App:
        client = identity_provider.change(app.client.client_id, client_secret=None)
        return replace(app, client=replace(app.client, client_secret=client.client_secret))

    await restarted(identity_provider, test_clock, tmp_path, rotated, then)


@pytest.mark.case("98")
async def test_a_removed_app_leaves_no_page_and_no_callback(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    async def then(harness: Harness, way: Any) -> None:
        asked, person, url = way
        for address in (url, asked.authorization_url):
            assert_error_page(await person.open(address), Code.STATE_UNKNOWN, "otherConfig")
        for address in (url.replace("state=", "state=x"), url.partition("?")[0], url.replace("/mail?", "/other?")):
            assert 404 == (await person.open(address)).status
        assert 404 == (await person.open(f"{BASE}/connected/mail")).status
        assert 0 == harness.idp.count("token")

    await restarted(identity_provider, test_clock, tmp_path, lambda _: user_app(identity_provider, "files"), then)


async def test_a_callback_at_a_host_that_lacks_the_app_is_taken_by_one_that_has_it(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """The hosts are started anew one after another. The page says to be loaded again."""
    person = Browser()
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        person.serve(BASE, harness.broker.asgi.app)
        url = await harness.way_back(await harness.ask_link(), person)
        other = [user_app(identity_provider, "files")]
        async with running(identity_provider, other, clock=test_clock, store=harness.store, background=False) as late:
            person.serve(BASE, late.broker.asgi.app)
            assert_error_page(await person.open(url), Code.STATE_UNKNOWN, "otherConfig")
            person.serve(BASE, harness.broker.asgi.app)
            assert_leads_to_connected(await person.follow(url))
