"""Every page and every form there is, found by walking: addresses that try to lead elsewhere (86), other people's pages
that press our buttons (87), markup in names (88). A page that is added later is walked too, or the first test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import pytest
from starlette.routing import Route

from oauthbroker.core.errors import Code
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.observability.metrics import Metric
from oauthbroker.records.open_facts import Candidate, OpenFacts
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.testing.html import Form
from tests.kit import planted_records
from tests.kit.callback_pages import arrival_name
from tests.kit.running_broker import ALICE, BASE, BOB, TEAM, Harness, global_app, public, running, turn, user_app
from tests.story.hostile_web import EVIL, FOREIGN_TARGETS, HOSTILE_TEXTS, REDIRECT_PARAMETERS, as_agent
from tests.story.signed_in import connections_browser, operator_browser
from tests.unit.web.kit import Document

API = "/v1/"
MOST_PAGES = 150
UNSEEN = {"\u202e", "\u200b", "\u00ad", "\ufeff", "\0"}


@dataclass(frozen=True)
class Button:
    """A form on a page, with what its first button sends."""

    page: Page
    form: Form = field(compare=False)

    @property
    def target(self) -> str:
        return urljoin(self.page.url, self.form.action or self.page.url)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [*self.form.fields, *self.form.buttons[:1]]


@dataclass
class Walk:
    """The pages that one user came across."""

    browser: Browser
    pages: dict[str, Page] = field(default_factory=dict)

    async def go(self, *starts: str) -> Walk:
        """Open these and their links within our origin; follow redirects."""
        left = list(starts)
        while left:
            url = left.pop(0)
            if url in self.pages or not url.startswith(BASE) or len(self.pages) > MOST_PAGES:
                continue
            page = self.pages[url] = await self.browser.open(url)
            left += [urljoin(url, link).partition("#")[0] for link in page.document.links]
            left += [page.location] if page.location is not None else []
        assert len(self.pages) <= MOST_PAGES
        return self

    @property
    def buttons(self) -> list[Button]:
        """One of each kind: a form on two pages is one."""
        found = {}
        for page in self.pages.values():
            for form in page.document.forms:
                button = Button(page, form)
                found[form.method, urlsplit(button.target).path, tuple(sorted(form.names))] = button
        return list(found.values())


@dataclass
class World:
    """A broker with something of everything, a person at her connections and an operator."""

    harness: Harness
    agent: str = "planner"
    subject: str = ALICE
    arrivals: dict[str, str] = field(default_factory=dict)
    connected: dict[str, str] = field(default_factory=dict)

    async def furnish(self) -> None:
        harness, of = self.harness, turn(user=self.subject, agent=as_agent(self.agent), instance=self.agent)
        for app in ("mail", "team"):
            await planted_records.grant(harness, app, self.subject if app == "mail" else TEAM)
        await planted_records.dead_grant(harness, "files", self.subject)
        await planted_records.ending_grant(harness, "mail", BOB)
        await planted_records.ended_grant(harness, "files", BOB)
        await planted_records.dead_letter(harness, agent=as_agent(self.agent))
        planted_records.open_circuit(harness, "files")
        await self.come_back("files")
        await self.come_with_wrong_account("files")
        await self.come_connected("mail", "12")
        await self.come_connected("files", "")
        await harness.broker.api_keys.create("ops", {"operator"})
        self.asked = await harness.ask_link("files", of=of)

    async def person(self) -> Walk:
        """Return a user with a link to her connections, and one to a consent page."""
        walk = Walk(await connections_browser(self.harness, {"user": self.subject, "global": TEAM}))
        url, _ = await self.harness.broker.connections.link({"user": self.subject})
        session = self.asked.auth_session_id
        places = ("/connections/left", f"/next/{session}", "/connect")
        for name, value in self.connected.items():
            walk.browser.cookies.set(name, value, "127.0.0.1")
        for place, arrival in self.arrivals.items():
            walk.browser.cookies.set(arrival_name(place), arrival, "127.0.0.1")
            assert 200 == (await walk.go(BASE + place)).pages[BASE + place].status
        name, value, ended = self.ended
        walk.browser.cookies.set(name, value, "127.0.0.1")
        return await walk.go(
            ended, f"{BASE}/connections", self.asked.authorization_url, url, *(BASE + each for each in places)
        )

    async def come_back(self, app: str) -> None:
        """A browser comes from a session that was declined; `arrivals` keeps its identification."""
        harness, browser = self.harness, self.harness.browser()
        asked = await harness.ask_link(app, of=turn(user=self.subject, agent=as_agent(self.agent), instance="declined"))
        await browser.open(asked.authorization_url)
        await browser.submit({"decision": "cancel"})
        self.arrivals[f"/declined/{app}"] = browser.cookies[arrival_name(f"/declined/{app}")].value

    async def come_with_wrong_account(self, app: str) -> None:
        """A browser whose session failed for its account; `ended` is its cookie, and the link."""
        harness, browser = self.harness, self.harness.browser()
        asked = await harness.ask_link(
            app, of=turn(user=self.subject, agent=as_agent(self.agent), instance="wrong account")
        )
        await harness.to_provider(asked, browser)
        locator = locator_of(asked.auth_session_id)
        versioned = await harness.repository.session(locator)
        assert versioned is not None
        failed = versioned.record.failed(harness.clock.now(), Code.SUBJECT_MISMATCH)
        await harness.repository.save_session(failed, expect=versioned.generation)
        self.ended = (f"oab-{locator}", browser.cookies[f"oab-{locator}"].value, asked.authorization_url)

    async def come_connected(self, app: str, sites: str) -> None:
        """A browser whose user has connected, or has to choose one of the sites first. `arrivals` and `connected`
        identify it."""
        harness, browser = self.harness, self.harness.browser()
        of = turn(user=self.subject, agent=as_agent(self.agent), instance=f"sites {sites}")
        asked = await harness.ask_link(app, [harness.broker.bundle.apps[app].scopes[-1]], of=of)
        await harness.to_provider(asked, browser)
        await browser.open(asked.authorization_url)
        await browser.submit({"decision": "cancel"})
        locator = locator_of(asked.auth_session_id)
        async with harness.repository.pair(GrantKey(app, self.subject)):  # the relay may still write it
            versioned = await harness.repository.session(locator)
            assert versioned is not None
            done = replace(versioned.record, status="completed", failure=None)
            await harness.repository.save_session(done, expect=versioned.generation)
        found = tuple(Candidate(label=self.agent, facts={"site": self.subject + number}) for number in sites)
        open_facts = OpenFacts(candidates=found) if found else None
        named = {"auth_session_id": done.id, "account_name": self.agent}
        await harness.change_grant(app, self.subject, **named, open_facts=open_facts)
        self.arrivals[f"/connected/{app}"] = browser.cookies[arrival_name(f"/declined/{app}")].value
        self.connected[f"oab-{locator}"] = browser.cookies[f"oab-{locator}"].value

    async def operator(self) -> Walk:
        walk = Walk(await operator_browser(self.harness))
        return await walk.go(f"{BASE}/admin", f"{BASE}/admin/login", f"{BASE}/admin/left")

    async def stranger(self) -> Walk:
        """Return a user without a session who comes from a provider with invented parameters."""
        places = (
            "/oauth/callback/mail?code=x&state=y",
            "/healthz",
            "/readyz",
            "/metrics",
            "/clients/mail.json",
            "/nowhere",
            "/",
            "/docs",
            "/connect/again/nowhere",
            "/admin",
            "/connections",
        )
        return await Walk(self.harness.browser()).go(*(BASE + each for each in places))

    async def walks(self) -> list[Walk]:
        return [await self.person(), await self.operator(), await self.stranger()]

    async def state(self) -> dict[str, int]:
        """What a pressed button could change: every record but those of who visits."""
        kinds = ("grants", "sessions", "waiting", "events", "queues", "due", "turns", "apikeys")
        return {f"{kind}/{it.key.name}": it.generation for kind in kinds async for it in self.harness.store.scan(kind)}


@asynccontextmanager
async def world(idp: IdentityProvider, clock: TestClock, payload: str = "") -> AsyncIterator[World]:
    """Where operators on this machine need no key. `payload` is in every name that comes from elsewhere."""
    apps = [user_app(idp), user_app(idp, "files"), global_app(idp)]
    if payload:
        scope = "".join(character for character in payload if character.isprintable() and character != " ")[:200] or "x"
        apps = [replace(app, title=payload, provider=payload, scopes=("read", scope)) for app in apps]
    settings = public(BASE, admin_loopback=True)
    async with running(idp, apps, clock=clock, settings=settings, background=False) as harness:
        made = World(harness)
        if payload:
            made = World(harness, payload[:500], f"idp:user:{payload.replace(':', ';')[:100]}")
        await made.furnish()
        yield made


@pytest.fixture
async def here(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[World]:
    async with world(identity_provider, test_clock) as made:
        yield made


async def test_the_walk_comes_by_every_page_and_every_form(here: World) -> None:
    """So that the claims below hold for all of them."""
    seen, pressed = set[str](), set[str]()
    for walk in await here.walks():
        pressed |= {await template_of(here, button.target) for button in walk.buttons if button.form.method == "post"}
    for metric, labels in here.harness.broker.metrics.counts:
        if metric is Metric.HTTP_REQUESTS and labels[1] == "GET":
            seen.add(labels[0])
    routes = [each for each in here.harness.broker.asgi.app.router.routes if isinstance(each, Route)]  # type: ignore[attr-defined]
    ours = [(route.path, route.methods or set()) for route in routes if not route.path.startswith(API)]
    assert len(ours) > 30
    assert set() == {path for path, methods in ours if "GET" in methods} - seen - OTHER_APPS
    assert set() == {path for path, methods in ours if "POST" in methods} - pressed - ONLY_WITHOUT_KEY


OTHER_APPS = {"/oauth/callback/files", "/oauth/callback/team", "/oauth/callback/{app}"}
ONLY_WITHOUT_KEY = set[str]()


async def template_of(here: World, url: str) -> str:
    for route in here.harness.broker.asgi.app.router.routes:  # type: ignore[attr-defined]
        path = urlsplit(url).path
        if isinstance(route, Route) and route.path_regex.match(path) and "POST" in (route.methods or set()):
            return route.path
    return "-"


# 86


def assert_leads_nowhere_else(page: Page) -> None:
    """Neither a header nor an element leads to the address in the request."""
    assert page.location is None or page.location.startswith(f"{BASE}/"), page.url
    assert "evil.example" not in "".join(f"{name}: {value}\n" for name, value in page.headers).lower()
    document = page.document
    leads = [*document.links, *(form.action for form in document.forms), document.refresh or ""]
    assert [] == [lead for lead in leads if "evil.example" in lead.lower() and not is_own_query(lead)]
    assert [] == [lead for lead in leads if lead.lower().startswith(("javascript:", "data:", "//", "\\", "/\\"))]


def is_own_query(lead: str) -> bool:
    """A search that is shown again stays a value in the query of our own page."""
    parts = urlsplit(urljoin(f"{BASE}/", lead))
    return f"{parts.scheme}://{parts.netloc}" == BASE and "evil.example" not in parts.path


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.case("86")
@pytest.mark.parametrize("way", FOREIGN_TARGETS)
async def test_no_parameter_of_any_page_leads_anywhere(here: World, way: str) -> None:
    more = "&".join(
        f"{name}={quote(way, safe='')}" for name in (*REDIRECT_PARAMETERS, "page", "after", "app", "subject", "type")
    )
    for walk in await here.walks():
        for url in list(walk.pages):
            assert_leads_nowhere_else(await walk.browser.open(f"{url}{'&' if '?' in url else '?'}{more}"))
            parts = urlsplit(url)
            for path in (
                f"{parts.path}/{quote(way, safe='')}",
                f"/{way}{parts.path}",
                f"{parts.path.rpartition('/')[0]}/{way}",
            ):
                if path.isascii() and path.isprintable() and not path.startswith(("//", "/\\", "\\")):
                    assert_leads_nowhere_else(await walk.browser.open(f"{BASE}{path}"))


@pytest.mark.slow
@pytest.mark.case("86")
async def test_no_field_of_any_form_leads_anywhere(here: World) -> None:
    fields = [
        (name, way)
        for name in REDIRECT_PARAMETERS
        for way in (FOREIGN_TARGETS[0], FOREIGN_TARGETS[4], FOREIGN_TARGETS[9])
    ]
    for number, sign_in in enumerate((here.person, here.operator)):
        for button in (await sign_in()).buttons:
            browser = (await sign_in()).browser
            if button.form.method == "get":
                query = "&".join(f"{name}={quote(value, safe='')}" for name, value in [*button.pairs, *fields])
                assert_leads_nowhere_else(await browser.open(f"{button.target.partition('?')[0]}?{query}"))
                continue
            page = await browser.open(button.page.url)
            again = [it for it in page.document.forms if urljoin(page.url, it.action or page.url) == button.target]
            pairs = Button(page, again[0]).pairs if again else button.pairs
            done = await browser.post(button.target, [*pairs, *fields], initiator=page)
            assert done.status < 500, (number, button.target)
            assert_leads_nowhere_else(replace_refresh(here, done))


def replace_refresh(here: World, page: Page) -> Page:
    """The way out of the connect page leads to the app's own provider, and says so."""
    provider = here.harness.idp.url("/authorize?")
    assert page.document.refresh is None or page.document.refresh.startswith((provider, BASE, "/"))
    return page


# 87

WRONG: dict[str, dict[str, Any]] = {
    "another site": {"headers": {"origin": EVIL}},
    "a frame without a name": {"headers": {"origin": "null"}},
    "another port": {"headers": {"origin": "http://127.0.0.1:8421"}},
    "cross-site": {"headers": {"sec-fetch-site": "cross-site"}},
    "same-site": {"headers": {"sec-fetch-site": "same-site"}},
    "no field": {"csrf": None},
    "an empty field": {"csrf": ""},
    "a field that was made up": {"csrf": "w" * 43},
}


@pytest.mark.slow
@pytest.mark.case("87")
@pytest.mark.parametrize("wrong", WRONG)
async def test_no_other_page_presses_any_button_of_ours(here: World, wrong: str) -> None:
    """With the person's cookies, from the right address, with all other fields as they are."""
    spoilt, tried = WRONG[wrong], 0
    for walk in await here.walks():
        before = await here.state()
        for button in walk.buttons:
            if button.form.method != "post":
                continue
            pairs = [pair for pair in button.pairs if pair[0] != "csrf" or "csrf" not in spoilt]
            if spoilt.get("csrf") is not None:
                pairs.append(("csrf", spoilt["csrf"]))
            page = await walk.browser.post(button.target, pairs, initiator=button.page, headers=spoilt.get("headers"))
            assert 400 <= page.status < 500, (button.target, page.status)
            tried += 1
        assert before == await here.state()
    assert tried >= 8


@pytest.mark.slow
@pytest.mark.case("87")
async def test_a_field_of_one_page_user_presses_no_button_of_another(here: World) -> None:
    """Mallory has pages of her own; her fields fit her browser and no other."""
    before = await here.state()
    for sign_in in (here.person, here.operator):
        hers, victims = (await sign_in()).buttons, await sign_in()
        for button in hers:
            if button.form.method == "post":
                page = await victims.browser.post(button.target, button.pairs, initiator=button.page)
                assert 400 <= page.status < 500, (button.target, page.status)
    assert {name: at for name, at in before.items() if not name.startswith("apikeys")} == {
        name: at for name, at in (await here.state()).items() if not name.startswith("apikeys")
    }


@pytest.mark.case("87", "92")
async def test_no_page_can_be_framed_kept_run_or_posted_elsewhere(here: World) -> None:
    for walk in await here.walks():
        for url, page in walk.pages.items():
            policy = page.header("content-security-policy")
            for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
                assert part in policy, url
            assert "unsafe" not in policy, url
            assert "DENY" == page.header("x-frame-options"), url
            assert "no-store" in page.header("cache-control"), url
            assert page.header("referrer-policy") in {"no-referrer", "same-origin"}, url
            assert "nosniff" == page.header("x-content-type-options"), url
            if page.document.forms:
                assert "form-action 'self'" in policy, url


# 88


def skeleton(page: Page) -> set[tuple[str, str]]:
    """Which elements there are, and which attributes they have."""
    document = Document(page.source)
    return {(element.tag, name) for element in document.elements for name in ("", *element.attributes)}


async def shown(here: World) -> list[Page]:
    return [
        page for walk in await here.walks() for page in walk.pages.values() if "html" in page.header("content-type")
    ]


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.case("88")
@pytest.mark.parametrize("payload", HOSTILE_TEXTS, ids=lambda text: repr(text[:20]))
async def test_names_from_elsewhere_add_no_element_and_no_attribute_to_any_page(
    identity_provider: IdentityProvider, test_clock: TestClock, payload: str
) -> None:
    """App, provider, scope, subject, agent and conversation are the payload: the pages have the elements that they have
    with plain names, and it leads nowhere."""
    async with world(identity_provider, test_clock) as here:
        plain = set().union(*map(skeleton, await shown(here)))
    async with world(identity_provider, test_clock, payload) as here:
        pages = await shown(here)
        for page in pages:
            assert skeleton(page) <= plain, page.url
            leads = [*page.document.links, *(form.action for form in page.document.forms)]
            assert [] == [lead for lead in leads if not urljoin(page.url, lead).startswith(f"{BASE}/")]
            assert not UNSEEN & set(page.text), page.url
            assert len(page.source) < 200_000, page.url
            assert "\r\nSet-Cookie" not in "".join(f"{name}: {value}\n" for name, value in page.headers)
        if payload.isprintable() and len(payload) < 60:
            assert 5 <= sum(payload in page.text for page in pages), "shown as text"
