"""Pushed authorization requests (RFC 9126) from the button to the grant: what travels, and what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints, Pushing
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.records.auth_session import MAX_PRESSES
from oauthbroker.testing import IdentityProvider, TestClock, leave
from oauthbroker.testing.canary import off_the_record
from oauthbroker.testing.provider import FOREVER
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import Harness, endpoints_of, running, user_app

RESOURCES = ("https://api.example/a", "https://api.example/b")


def naming(idp: IdentityProvider, **changes: Any) -> App:
    """An app that says itself where requests are pushed to."""
    return user_app(idp, endpoints=replace(endpoints_of(idp), pushed_authorization_url=idp.url("/par")), **changes)


def learning(idp: IdentityProvider, pushing: Pushing = "auto", **changes: Any) -> App:
    """An app with only its issuer."""
    return user_app(idp, endpoints=Endpoints(issuer=idp.base_url), pushed_authorization=pushing, **changes)


def query(url: str) -> list[str]:
    return [name for name, _ in parse_qsl(urlsplit(url).query)]


@pytest.mark.parametrize("par", ["offered", "required"])
@pytest.mark.parametrize("make", [naming, learning])
async def test_the_browser_carries_only_who_asks_and_a_number(
    identity_provider: IdentityProvider, par: Any, make: Callable[..., App]
) -> None:
    identity_provider.par = par
    async with running(identity_provider, [make(identity_provider, resource=RESOURCES)]) as harness:
        asked = await harness.ask_link()
        person = harness.browser()
        url = await harness.to_provider(asked, person)
        assert ["client_id", "request_uri"] == query(url)
        [pushed] = identity_provider.seen("par")
        session = await harness.session(asked)
        assert session.attempt.state == pushed.form["state"]
        assert RESOURCES == pushed.resources
        await person.follow(await identity_provider.agree(url, "alice", browser=person))
        ready = await harness.ask()
        assert isinstance(ready, Ready)
        assert RESOURCES == identity_provider.resources_of(ready.access_token)


async def test_looking_at_the_link_pushes_nothing_and_every_press_of_the_button_once(
    identity_provider: IdentityProvider,
) -> None:
    async with running(identity_provider, [naming(identity_provider)]) as harness:
        asked = await harness.ask_link()
        for _ in range(3):
            await harness.browser().open(asked.authorization_url)
        assert 0 == identity_provider.count("par")
        urls = {await harness.to_provider(asked, harness.browser()) for _ in range(2)}
        assert (2, 2) == (len(urls), identity_provider.count("par"))


@pytest.mark.parametrize("pushing, par", [("never", "offered"), ("auto", "off")])
async def test_where_it_is_not_wanted_or_not_offered_the_url_says_it_all(
    identity_provider: IdentityProvider, pushing: Pushing, par: Any
) -> None:
    identity_provider.par = par
    async with running(identity_provider, [learning(identity_provider, pushing)]) as harness:
        url = await harness.to_provider(await harness.ask_link(), harness.browser())
        assert {"state", "code_challenge", "redirect_uri"} <= set(query(url))
        assert 0 == identity_provider.count("par")
        await harness.connected()


async def test_a_required_endpoint_that_the_provider_lacks_is_the_operators_fault(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Required, and the provider's own document knows no such endpoint: the tool is told, and a person whose link was
    made while that document could not be read."""
    identity_provider.par = "off"
    identity_provider.script.discovery.answer(503)
    app = learning(identity_provider, "required")
    async with running(identity_provider, [app], clock=test_clock) as harness:
        asked = await harness.ask_link()
        test_clock.advance(31)
        refused = await harness.ask(scopes=["read"])
        assert isinstance(refused, Failed)
        assert Code.APP_MISCONFIGURED is refused.code
        assert_error_page(await leave(harness.browser(), asked.authorization_url), Code.APP_MISCONFIGURED)
        assert (await harness.session(asked)).open
        assert 0 == identity_provider.count("authorize")


def unreachable(app: App) -> App:
    return replace(app, endpoints=replace(app.endpoints, pushed_authorization_url="http://127.0.0.1:1/par"))


FAILURES = [
    pytest.param(lambda par: par.answer(503), Code.PROVIDER_UNREACHABLE, id="503"),
    pytest.param(lambda par: par.busy("7", 429), Code.PROVIDER_RATE_LIMITED, id="429"),
    pytest.param(lambda par: par.close_after_accept(), Code.PROVIDER_UNREACHABLE, id="hangs up"),
    pytest.param(lambda par: par.close_after_accept(after_work=True), Code.PROVIDER_UNREACHABLE, id="answer lost"),
    pytest.param(lambda par: par.endless(), Code.PROVIDER_UNREACHABLE, id="endless"),
    pytest.param(lambda par: par.refuse("invalid_request", 400), Code.APP_MISCONFIGURED, id="refused"),
    pytest.param(lambda par: par.refuse("invalid_client", 401), Code.APP_MISCONFIGURED, id="unknown client"),
    pytest.param(lambda par: par.answer(201, "<html>"), Code.APP_MISCONFIGURED, id="html"),
    pytest.param(lambda par: par.fields(request_uri=7), Code.APP_MISCONFIGURED, id="no uri"),
    pytest.param(lambda par: par.fields(request_uri="urn:a\r\nb"), Code.APP_MISCONFIGURED, id="line break"),
    pytest.param(lambda par: par.fields(expires_in=0), Code.APP_MISCONFIGURED, id="expired"),
    pytest.param(lambda par: par.redirect("https://evil.example/par", 307), Code.APP_MISCONFIGURED, id="redirect"),
]


async def looking(harness: Harness, asked: Any, browser: Any = None) -> Any:
    person = browser or harness.browser()
    await person.open(asked.authorization_url)
    return person


@pytest.mark.parametrize("spoil, code", FAILURES)
async def test_a_push_that_fails_leaves_everything_as_it_was_and_the_link_good(
    identity_provider: IdentityProvider, spoil: Callable[[Any], None], code: Code
) -> None:
    async with running(identity_provider, [naming(identity_provider)]) as harness:
        asked = await harness.ask_link()
        before = await harness.session(asked)
        person = harness.browser()
        spoil(identity_provider.script.par)
        assert_error_page(await leave(person, asked.authorization_url), code)
        assert before.pressed() == await harness.session(asked)
        assert await harness.event(wait=0) is None
        assert 0 == identity_provider.count("authorize")
        assert 200 == (await harness.connect(asked, browser=person)).status


@pytest.mark.parametrize("how", ["pushed", "pushed in vain", "plain"])
async def test_a_link_leads_to_the_provider_twenty_times_and_then_to_the_next_link(
    identity_provider: IdentityProvider, how: str
) -> None:
    """A holder of a link could otherwise make us push for as long as it lives."""
    app = user_app(identity_provider) if how == "plain" else naming(identity_provider)
    async with running(identity_provider, [app]) as harness:
        asked, person = await harness.ask_link(), harness.browser()
        back = await harness.way_back(asked, person)
        if how == "pushed in vain":
            identity_provider.script.par.answer(503, times=FOREVER)
        early = [await looking(harness, asked) for _ in range(5)]
        for _ in range(MAX_PRESSES - 2):
            await leave(harness.browser(), asked.authorization_url)
        if how != "pushed in vain":
            back = await harness.way_back(asked, person)
        else:
            await leave(harness.browser(), asked.authorization_url)
        for other in early:
            assert_error_page(await other.submit(), Code.STATE_UNKNOWN)
        assert (0 if how == "plain" else MAX_PRESSES) == identity_provider.count("par")
        again = await harness.ask_link()
        assert again.auth_session_id != asked.auth_session_id
        assert 303 == (await person.follow(back)).status
        assert isinstance(await harness.ask(), Ready)


async def test_many_presses_at_once_stay_within_the_providers_limit(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, [naming(identity_provider)]) as harness:
        asked = await harness.ask_link()
        people = [await looking(harness, asked) for _ in range(60)]
        for third in (people[:20], people[20:40], people[40:]):
            await asyncio.gather(*(person.submit() for person in third))
        assert MAX_PRESSES >= identity_provider.count("par")
        assert MAX_PRESSES == (await harness.session(asked)).presses


async def test_a_push_that_fails_for_one_browser_does_not_strand_another(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, [naming(identity_provider)]) as harness:
        asked = await harness.ask_link()
        first = harness.browser()
        way_back = await harness.way_back(asked, first)
        identity_provider.script.par.answer(503)
        assert_error_page(await leave(harness.browser(), asked.authorization_url), Code.PROVIDER_UNREACHABLE)
        assert 303 == (await first.follow(way_back)).status
        assert isinstance(await harness.ask(), Ready)


async def test_an_endpoint_without_a_listener_is_a_passing_failure(identity_provider: IdentityProvider) -> None:
    async with running(identity_provider, [unreachable(naming(identity_provider))]) as harness:
        asked = await harness.ask_link()
        assert_error_page(await leave(harness.browser(), asked.authorization_url), Code.PROVIDER_UNREACHABLE)
        assert (await harness.session(asked)).open


async def test_a_person_who_lingers_presses_the_button_again(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """A pushed request is good for a minute; the link for ten."""
    async with running(identity_provider, [naming(identity_provider)], clock=test_clock) as harness:
        asked = await harness.ask_link()
        person = harness.browser()
        url = await harness.to_provider(asked, person)
        test_clock.advance(61)
        assert 400 == (await person.follow(url)).status
        assert 200 == (await harness.connect(asked, browser=person)).status


async def test_the_request_uri_of_another_session_does_not_lead_into_this_one(
    identity_provider: IdentityProvider,
) -> None:
    """The state lies at the provider now, and is compared here as ever: with the cookie of the browser that left."""
    async with running(identity_provider, [naming(identity_provider)]) as harness:
        asked = await harness.ask_link()
        stranger, victim = harness.browser(), harness.browser()
        url = await harness.to_provider(asked, stranger)
        back = await identity_provider.agree(url, "mallory", browser=victim)
        assert_error_page(await victim.follow(back), Code.OWNER_BINDING_FAILED)
        assert await harness.grant() is None


async def test_the_next_secret_is_tried_at_the_push_too(identity_provider: IdentityProvider) -> None:
    app = naming(identity_provider)
    client = replace(app.client, client_secret=Secret("not-the-one"), later_secrets=app.client.secrets)
    async with running(identity_provider, [replace(app, client=client)]) as harness:
        await harness.connected()
        assert 2 == identity_provider.count("par")


# a direct link is made long before a user follows it


async def test_a_direct_link_is_never_pushed(identity_provider: IdentityProvider) -> None:
    identity_provider.par = "offered"
    app = learning(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with running(identity_provider, [app]) as harness:
        asked = await harness.ask_link()
        assert {"state", "code_challenge"} <= set(query(asked.authorization_url))
        assert 0 == identity_provider.count("par")


async def test_a_direct_link_to_a_provider_that_requires_pushing_is_the_operators(
    identity_provider: IdentityProvider,
) -> None:
    identity_provider.par = "required"
    app = learning(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with running(identity_provider, [app]) as harness:
        result = await harness.ask()
        assert isinstance(result, Failed)
        assert Code.APP_MISCONFIGURED is result.code


@pytest.mark.case("89")
async def test_the_number_is_in_no_log(identity_provider: IdentityProvider, caplog: pytest.LogCaptureFixture) -> None:
    """It stands for the whole request, until it is used."""
    caplog.set_level(1)
    async with running(identity_provider, [naming(identity_provider)]) as harness:
        with off_the_record():
            url = await harness.to_provider(await harness.ask_link(), harness.browser())
        number = dict(parse_qsl(urlsplit(url).query))["request_uri"]
        assert number.rpartition(":")[2] not in harness.log.getvalue() + caplog.text
