"""`admin.operators`: a person signs in to `/admin` by the broker's login, and once more before a change."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker.audit import CallRefused, OperatorEntered, PageAction
from oauthbroker.core.clock import SET_BACK
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.broker_login import Operators
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.web.pages.operator_sign_in import path_of
from tests.kit import planted_records
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, BASE, Harness, at, public, running, turn, user_app
from tests.story.binding_kit import CORP_ALICE, broker_login
from tests.story.hostile_web import mounted
from tests.story.signed_in import ADMIN, ADMIN_LOGIN, submit_form, try_key

CALLBACK = f"{ADMIN}/callback"
PLACES = ("", "/grants", "/waiting", "/queues", "/circuits", "/audit")


@pytest.fixture
def corp(test_clock: TestClock) -> Iterator[IdentityProvider]:
    with IdentityProvider(clock=test_clock) as provider:
        yield provider


def login_of(corp: IdentityProvider, **changes: Any) -> Any:
    login = broker_login(corp, operators=Operators(**{"subjects": (CORP_ALICE,), **changes}))
    client = corp.client("broker")
    corp.register(replace(client, redirect_uris=(*client.redirect_uris, CALLBACK)))
    return login


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock, request: pytest.FixtureRequest
) -> AsyncIterator[Harness]:
    login = login_of(corp, **getattr(request, "param", {}))
    more: dict[str, Any] = {"settings": public(BASE), "login": login}
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, **more) as harness:
        yield harness


async def go_to_login(person: Browser, form: str = "/sign-in") -> str:
    """The person pressed the button. Return the login's address."""
    page = await submit_form(person, form)
    assert 200 == page.status, page.text
    assert page.next_url is not None
    return page.next_url


async def at_login(harness: Harness) -> tuple[Browser, str]:
    """A person who has pressed the button, and the login's address."""
    person = harness.browser()
    await person.open(ADMIN_LOGIN)
    return person, await go_to_login(person)


async def sign_in(harness: Harness, corp: IdentityProvider, account: str = "alice") -> Browser:
    """A person signed in at the login and came back."""
    person, login = await at_login(harness)
    await person.open(await corp.agree(login, account, browser=person))
    return person


async def is_out(person: Browser) -> bool:
    pages = [await person.open(ADMIN + place) for place in PLACES]
    return all((303, ADMIN_LOGIN) == (page.status, page.location) for page in pages)


async def a_grant(harness: Harness) -> str:
    asked = await harness.broker.oauth(turn()).get_access_token("mail")
    assert isinstance(asked, AuthorizationRequired)
    await harness.connect(asked)
    grant = await harness.grant()
    assert grant is not None
    return grant.id


def entries(harness: Harness, kind: Any) -> list[Any]:
    return [entry for entry in harness.audit.entries if isinstance(entry, kind)]


# who comes in


async def test_an_operator_signs_in_with_their_own_account_and_the_audit_log_names_them(
    harness: Harness, corp: IdentityProvider
) -> None:
    person = await sign_in(harness, corp)
    assert (303, ADMIN) == (person.page.status, person.page.location), person.page.text
    for place in PLACES:
        assert 200 == (await person.open(ADMIN + place)).status
    assert [CORP_ALICE] == [entry.name for entry in entries(harness, OperatorEntered)]


async def test_the_login_is_asked_for_an_id_token_bound_to_this_browser(
    harness: Harness, corp: IdentityProvider
) -> None:
    person, login = await at_login(harness)
    asked = dict(parse_qsl(urlsplit(login).query))
    assert (CALLBACK, "S256", "openid") == (asked["redirect_uri"], asked["code_challenge_method"], asked["scope"])
    assert all(len(asked[name]) >= 43 for name in ("state", "nonce", "code_challenge"))
    await person.open(ADMIN_LOGIN)
    again = dict(parse_qsl(urlsplit(await go_to_login(person)).query))
    assert not [name for name in ("state", "nonce", "code_challenge") if asked[name] == again[name]]


@pytest.mark.parametrize(
    ("harness", "account", "sentence"),
    [
        ({}, "bob", "not an operator"),
        ({"claims": (("role", "operators"),)}, "bob", "not an operator"),
        ({"acr": ("phr",)}, "alice", "not by the method"),
        ({"amr": ("mfa", "hwk")}, "alice", "not by the method"),
    ],
    indirect=["harness"],
)
async def test_another_person_or_a_weaker_sign_in_stays_out(
    harness: Harness, corp: IdentityProvider, account: str, sentence: str
) -> None:
    corp.script.token.alter_id_token(claims={"acr": "pwd", "amr": ["pwd", "mfa"], "role": ["staff", 7]})
    person = await sign_in(harness, corp, account)
    assert 403 == person.page.status
    assert sentence in person.page.text
    assert await is_out(person)
    assert [("GET /admin/callback", "notAllowed")] == [(it.route, it.code) for it in entries(harness, CallRefused)]


async def test_after_a_refused_sign_in_the_login_asks_for_another_account(
    harness: Harness, corp: IdentityProvider
) -> None:
    """The provider's own session would bring the same account each time."""
    person, first = await at_login(harness)
    assert "prompt" not in dict(parse_qsl(urlsplit(first).query))
    await person.open(await corp.agree(first, "bob", browser=person))
    second = await go_to_login(person)
    assert "login" == dict(parse_qsl(urlsplit(second).query))["prompt"]
    await person.open(await corp.agree(second, "alice", browser=person))
    assert (303, ADMIN) == (person.page.status, person.page.location)


async def test_who_signs_out_is_told_that_the_session_at_the_sign_in_service_goes_on(
    harness: Harness, corp: IdentityProvider
) -> None:
    person = await sign_in(harness, corp)
    await person.open(ADMIN)
    await submit_form(person, "/leave")
    assert "Your session at the sign-in service goes on" in (await person.follow()).text
    assert await is_out(person)


@pytest.mark.parametrize(
    ("harness", "claims"),
    [
        ({"subjects": (), "claims": (("role", "operators"),)}, {"role": ["staff", "operators"]}),
        ({"subjects": (), "claims": (("role", "operators"),)}, {"role": "operators"}),
        ({"subjects": (), "claims": (("realm.roles", "operators"),)}, {"realm": {"roles": ["operators"]}}),
        ({"acr": ("phr", "phrh")}, {"acr": "phrh"}),
        ({"amr": ("mfa",)}, {"amr": ["pwd", "mfa"]}),
    ],
    indirect=["harness"],
)
async def test_a_claim_makes_an_operator_and_the_demanded_method_is_met(
    harness: Harness, corp: IdentityProvider, claims: dict[str, Any]
) -> None:
    corp.script.token.alter_id_token(claims=claims)
    person = await sign_in(harness, corp)
    assert (303, ADMIN) == (person.page.status, person.page.location), person.page.text


@pytest.mark.parametrize("harness", [{"acr": ("phr", "phrh")}], indirect=True)
async def test_the_demanded_method_is_requested(harness: Harness) -> None:
    _, login = await at_login(harness)
    assert "phr phrh" == dict(parse_qsl(urlsplit(login).query))["acr_values"]


async def test_a_key_is_no_way_in_where_operators_have_the_login(harness: Harness) -> None:
    _, key = await harness.broker.api_keys.create("ops", {"operator"})
    person = harness.browser()
    page = await person.open(ADMIN_LOGIN)
    assert "API key" not in page.text
    fields = [*page.document.forms[0].fields, ("key", key.reveal())]
    refused = await person.post(ADMIN_LOGIN, fields, initiator=page)
    assert 405 == refused.status
    assert await is_out(person)


async def test_a_browser_session_of_a_key_ends_when_operators_get_the_login(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock
) -> None:
    login, settings = login_of(corp), public(BASE)
    async with running(
        identity_provider,
        [user_app(identity_provider)],
        clock=test_clock,
        settings=settings,
        login=replace(login, operators=None),
    ) as harness:
        _, key = await harness.broker.api_keys.create("ops", {"operator"})
        person = await try_key(harness, key.reveal())
        assert 200 == (await person.follow()).status
        config = harness.parts.config
        config.adopt(replace(config.bundle, login=login))
        assert await is_out(person)


async def test_an_operator_who_is_removed_is_out_at_once(harness: Harness, corp: IdentityProvider) -> None:
    person = await sign_in(harness, corp)
    assert 200 == (await person.follow()).status
    config = harness.parts.config
    login = config.bundle.login
    assert login is not None
    config.adopt(replace(config.bundle, login=replace(login, operators=Operators(subjects=("corp:user:other",)))))
    assert await is_out(person)


# attacks on the way back


async def test_a_callback_in_another_browser_is_refused(harness: Harness, corp: IdentityProvider) -> None:
    attacker, victim = harness.browser(), harness.browser()
    await attacker.open(ADMIN_LOGIN)
    url = await corp.agree(await go_to_login(attacker), "alice", browser=attacker)
    await victim.open(ADMIN_LOGIN)
    await go_to_login(victim)
    page = await victim.open(url)
    assert page.status >= 400
    assert 0 == corp.count("token"), "the code was not redeemed"
    assert await is_out(victim)


async def test_a_callback_is_good_once_and_not_after_ten_minutes(harness: Harness, corp: IdentityProvider) -> None:
    person, login = await at_login(harness)
    url = await corp.agree(login, "alice", browser=person)
    await person.open(url)
    assert (303, ADMIN) == (person.page.status, person.page.location)
    assert (await person.open(url)).status >= 400
    late, login = await at_login(harness)
    url = await corp.agree(login, "alice", browser=late)
    harness.clock.advance(601)
    assert (await late.open(url)).status >= 400
    assert await is_out(late)


@pytest.mark.parametrize("place", [0, 12, 13, 40, -44, -1], ids=str)
async def test_a_changed_cookie_is_none(harness: Harness, corp: IdentityProvider, place: int) -> None:
    person, login = await at_login(harness)
    url = await corp.agree(login, "alice", browser=person)
    cookie = person.cookies["oab-admin-sign-in"]
    letters = list(cookie.value)
    letters[place] = "1" if letters[place] != "1" else "0"
    person.cookies.set(cookie.name, "".join(letters), cookie.host)
    assert (await person.open(url)).status >= 400
    assert await is_out(person)


@pytest.mark.parametrize("query", ["error=access_denied&state={state}", "state={state}", "code=x", "", "code=a&code=b"])
async def test_a_refused_or_malformed_callback_leads_back_to_the_sign_in(
    harness: Harness, corp: IdentityProvider, query: str
) -> None:
    person, login = await at_login(harness)
    state = dict(parse_qsl(urlsplit(login).query))["state"]
    page = await person.open(f"{CALLBACK}?{query.format(state=state)}")
    assert page.status >= 400
    assert "did not work" in page.text
    assert 0 == corp.count("token")
    assert await is_out(person)


async def test_a_prefetched_callback_redeems_nothing(harness: Harness, corp: IdentityProvider) -> None:
    person, login = await at_login(harness)
    url = await corp.agree(login, "alice", browser=person)
    assert (await person.open(url, headers={"sec-purpose": "prefetch"})).status >= 400
    assert 0 == corp.count("token")


async def test_refused_callbacks_are_counted(harness: Harness) -> None:
    stranger = harness.browser()
    for _ in range(20):
        await stranger.open(f"{CALLBACK}?code=x&state={'s' * 65}")
    assert_error_page(await stranger.open(f"{CALLBACK}?code=x&state={'s' * 65}"), Code.RATE_LIMITED)


async def test_a_user_of_the_login_is_no_operator_at_its_other_callback(
    harness: Harness, corp: IdentityProvider
) -> None:
    """A code for `/login/callback` is refused by the provider: the redirect address differs (RFC 6749 section 4.1.3)."""
    person, url = await at_login(harness)
    other = url.replace("%2Fadmin%2Fcallback", "%2Flogin%2Fcallback")
    assert other != url
    back = (await corp.agree(other, "alice", browser=person)).replace("/login/callback", "/admin/callback")
    assert (await person.open(back)).status >= 400
    assert await is_out(person)


# a change needs a fresh sign-in


async def confirmed(person: Browser, corp: IdentityProvider, account: str = "alice") -> Page:
    """The person was asked to sign in again, and did. Return the page after it."""
    page = await person.follow()
    assert "Confirm that it is you" in page.text
    url = await go_to_login(person)
    asked = dict(parse_qsl(urlsplit(url).query))
    assert ("login", "0") == (asked["prompt"], asked["max_age"])
    return await person.open(await corp.agree(url, account, browser=person))


async def test_a_revocation_needs_a_fresh_sign_in_and_names_the_person(
    harness: Harness, corp: IdentityProvider
) -> None:
    grant, person = await a_grant(harness), await sign_in(harness, corp)
    harness.clock.advance(301)
    before = person.cookies["oab-admin"].value
    await person.open(f"{ADMIN}/grants/{grant}/revoke")
    assert person.page.location is not None
    assert person.page.location.startswith(f"{ADMIN}/again?to=")
    page = await confirmed(person, corp)
    assert (303, f"{ADMIN}/grants/{grant}/revoke") == (page.status, page.location), page.text
    assert before != person.cookies["oab-admin"].value, "the session has a new cookie"
    await person.follow()
    await submit_form(person, "/revoke")
    assert f"{ADMIN}/grants/{grant}?done=revoked" == person.page.location
    assert [(CORP_ALICE, "revoke", grant)] == [
        (entry.operator, entry.action, entry.target) for entry in entries(harness, PageAction)
    ]
    found = await harness.grant(subject=ALICE)
    assert found is not None
    assert found.revoked


@pytest.mark.parametrize("prefix", ["/tools/oauth", "/admin"])
async def test_below_a_path_prefix_the_fresh_sign_in_leads_back_to_its_page(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock, prefix: str
) -> None:
    base = f"https://runtime.example{prefix}"
    login = broker_login(corp, base, operators=Operators(subjects=(CORP_ALICE,)))
    corp.register(replace(corp.client("broker"), redirect_uris=(f"{base}/admin/callback",)))
    apps = [at(identity_provider, base, user_app(identity_provider))]
    async with running(identity_provider, apps, clock=test_clock, settings=public(base), login=login) as harness:
        person = Browser(apps={"https://runtime.example": mounted(harness.broker.asgi.app, prefix)})
        grant = (await planted_records.grant(harness, "mail", ALICE)).id
        await person.open(f"{base}/admin/login")
        await person.open(await corp.agree(await go_to_login(person), "alice", browser=person))
        assert f"{base}/admin" == person.page.location
        harness.clock.advance(301)
        await person.open(f"{base}/admin/grants/{grant}/revoke")
        page = await confirmed(person, corp)
        assert f"{base}/admin/grants/{grant}/revoke" == page.location


async def test_a_form_that_is_sent_too_late_changes_nothing(harness: Harness, corp: IdentityProvider) -> None:
    grant, person = await a_grant(harness), await sign_in(harness, corp)
    await person.open(f"{ADMIN}/grants/{grant}/revoke")
    harness.clock.advance(301)
    await submit_form(person, "/revoke")
    assert person.page.location is not None
    assert person.page.location.startswith(f"{ADMIN}/again?to=")
    found = await harness.grant(subject=ALICE)
    assert found is not None
    assert not found.revoked
    assert [] == entries(harness, PageAction)


async def test_after_the_clock_was_set_back_a_sign_in_counts_no_longer(
    harness: Harness, corp: IdentityProvider
) -> None:
    person = await sign_in(harness, corp)
    assert 200 == (await person.open(ADMIN)).status
    harness.clock.set(harness.clock.now() - SET_BACK - timedelta(minutes=1))
    assert await is_out(person)


@pytest.mark.case("87")
@pytest.mark.parametrize("spoilt", ["origin", "field", "cookie"])
async def test_a_sign_in_that_another_site_starts_is_refused(harness: Harness, spoilt: str) -> None:
    person = harness.browser()
    page = await person.open(ADMIN_LOGIN)
    form = next(form for form in page.document.forms if form.action.endswith("/sign-in"))
    fields = [("csrf", "x" * 43)] if spoilt == "field" else form.fields
    headers = {"origin": "https://evil.example"} if spoilt == "origin" else {}
    if spoilt == "cookie":
        person.cookies.drop()
    refused = await person.post(f"{ADMIN}/sign-in", fields, initiator=page, headers=headers)
    hint = {"origin": "formElsewhere", "field": "formOutdated", "cookie": "noCookie"}[spoilt]
    assert_error_page(refused, Code.OWNER_BINDING_FAILED, hint)


async def test_looking_needs_no_fresh_sign_in(harness: Harness, corp: IdentityProvider) -> None:
    person = await sign_in(harness, corp)
    harness.clock.advance(1000)
    for place in PLACES:
        assert 200 == (await person.open(ADMIN + place)).status


@pytest.mark.parametrize("auth_time", [None, -4000], ids=["untold", "an hour ago"])
async def test_a_login_that_asks_for_no_password_lets_none_of_them_change_anything(
    harness: Harness, corp: IdentityProvider, auth_time: int | None
) -> None:
    """The provider answers with its own session, although it was asked for a fresh sign-in."""
    grant, person = await a_grant(harness), await sign_in(harness, corp)
    harness.clock.advance(301)
    at = None if auth_time is None else int(harness.clock.now().timestamp()) + auth_time
    corp.script.token.alter_id_token(claims={"auth_time": at})
    await person.open(f"{ADMIN}/grants/{grant}/revoke")
    page = await confirmed(person, corp)
    assert page.status >= 400
    assert "did not work" in page.text


async def test_a_first_sign_in_by_an_old_session_of_the_provider_is_not_fresh(
    harness: Harness, corp: IdentityProvider
) -> None:
    grant, now = await a_grant(harness), int(harness.clock.now().timestamp())
    corp.script.token.alter_id_token(claims={"auth_time": now - 3600})
    person = await sign_in(harness, corp)
    assert 200 == (await person.follow()).status
    page = await person.open(f"{ADMIN}/grants/{grant}/revoke")
    assert page.location is not None
    assert page.location.startswith(f"{ADMIN}/again?to=")


async def test_another_account_at_the_fresh_sign_in_gets_no_part_of_the_browser_session(
    harness: Harness, corp: IdentityProvider
) -> None:
    grant, person = await a_grant(harness), await sign_in(harness, corp)
    harness.clock.advance(301)
    await person.open(f"{ADMIN}/grants/{grant}/revoke")
    page = await confirmed(person, corp, "bob")
    assert 403 == page.status
    found = await harness.grant(subject=ALICE)
    assert found is not None
    assert not found.revoked


@pytest.mark.parametrize(
    ("to", "path"),
    [
        ("", ""),
        ("/grants/grant-abc/revoke", "/grants/grant-abc/revoke"),
        ("/queues/drop?queue=a&event=b", "/queues/drop?queue=a&event=b"),
        ("//evil.example", ""),
        ("https://evil.example", ""),
        ("/\\evil.example", ""),
        (".evil.example", ""),
        ("@evil.example", ""),
        ("/grants\r\nset-cookie: a=b", ""),
        ("/" + "a" * 300, ""),
    ],
)
def test_a_sign_in_ends_at_a_page_of_ours_alone(to: str, path: str) -> None:
    assert path == path_of(to)


async def test_the_sign_in_cookie_holds_no_verifier(harness: Harness, corp: IdentityProvider) -> None:
    person, url = await at_login(harness)
    cookie = person.cookies["oab-admin-sign-in"]
    await person.open(await corp.agree(url, "alice", browser=person))
    (sent,) = corp.seen("authorization_code")
    verifier = dict(sent.form)["code_verifier"]
    assert isinstance(verifier, Secret)
    verifier = verifier.reveal()
    assert verifier not in cookie.value
    assert verifier.encode() not in base64.urlsafe_b64decode(cookie.value + "==")
