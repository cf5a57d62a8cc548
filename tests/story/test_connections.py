"""`/connections`: a person's own page, by a one-time link of the runtime's; no other person's grants are ever on it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import BrokerError, Code
from oauthbroker.audit import ConnectionsOpened, PageAction
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import Browser, IdentityProvider, TestClock, connect_through
from oauthbroker.web.gate import csrf
from tests.kit.callback_pages import assert_error_page
from tests.kit.queues import until_relayed
from tests.kit.running_broker import (
    ALICE,
    BASE,
    BOB,
    TEAM,
    Harness,
    at,
    file_store,
    global_app,
    public,
    running,
    tree,
    turn,
    user_app,
)
from tests.story.hostile_web import PREFIXED_BASE, mounted
from tests.story.signed_in import CONNECTIONS, connections_browser, submit_form
from tests.unit.web import kit


async def test_a_person_sees_their_connections_and_who_used_each_last(harness: Harness) -> None:
    await harness.connected(scopes=["read"])
    harness.clock.advance(125)
    await harness.ask(scopes=["read"], of=turn(agent="researcher"))
    harness.clock.advance(60)
    page = (await connections_browser(harness, {"user": ALICE})).page
    for words in ("Mail", "idp:user:U234567", "planner", "1 min ago by researcher", "3 min ago", "Works", "read"):
        assert words in page.text, words
    assert "Team" not in page.text, "the link says nothing of the team"


async def test_a_shared_connection_is_on_the_page_of_a_link_that_names_it(harness: Harness) -> None:
    await harness.connected("team", of=turn())
    both = (await connections_browser(harness, {"user": ALICE, "global": TEAM})).page.text
    assert "Team" in both
    assert "everyone the agent works for" in both
    assert "Team" not in (await connections_browser(harness, {"user": ALICE})).page.text


async def test_connections_and_waiting_requests_of_one_app_stand_together(harness: Harness) -> None:
    await harness.connected(scopes=["read"])
    await harness.ask_link(scopes=["write"])
    await harness.ask_link(scopes=["write"], of=turn(agent="researcher"))
    await harness.connected("team", of=turn())
    page = (await connections_browser(harness, {"user": ALICE, "global": TEAM})).page
    assert ["Mail", "Team"] == [each.text.strip() for each in kit.Document(page.source).all("h2")]
    mail, team = page.source.split("<h2>")[1:]
    assert (2, 1) == (mail.count("is asking for access"), mail.count("/disconnect"))
    assert (0, 1) == (team.count("is asking for access"), team.count("/disconnect"))


async def test_a_title_of_the_agent_is_told_as_its_runtimes_word(harness: Harness) -> None:
    called = replace(turn(), origin={"titles": {"agent": "Travel planner"}})
    await harness.ask_link("files", of=called)
    await harness.connected(of=called)
    page = (await connections_browser(harness, {"user": ALICE})).page
    assert 2 == page.text.count("Travel planner")
    assert 2 == page.source.count("<bdi>planner</bdi> (named by the runtime)")


@pytest.mark.case("13")
async def test_a_get_of_a_link_changes_nothing_and_opens_no_browser_session(filed: Harness, tmp_path: Path) -> None:
    """Chat applications fetch links: once, twice, by HEAD, with and without cookies."""
    await filed.connected()
    url, expires_at = await filed.broker.connections.link({"user": ALICE})
    assert 600 == (expires_at - filed.clock.now()).total_seconds()
    before = tree(tmp_path)
    for _ in range(3):
        preview = filed.browser()
        page = await preview.open(url)
        assert 200 == page.status
        assert "Mail" not in page.text
        assert ALICE not in page.source
        assert 401 == (await preview.open(CONNECTIONS)).status
    assert before == tree(tmp_path)
    await filed.browser().open(url, method="HEAD")
    person = filed.browser()
    await person.open(url)
    assert 303 == (await person.submit()).status


async def test_a_link_works_once(harness: Harness) -> None:
    url, _ = await harness.broker.connections.link({"user": ALICE})
    first, second = harness.browser(), harness.browser()
    await first.open(url)
    await second.open(url)
    assert 303 == (await first.submit()).status
    assert_error_page(await second.submit(), Code.STATE_UNKNOWN)
    assert 401 == (await second.open(CONNECTIONS)).status
    assert_error_page(await harness.browser().open(url), Code.STATE_UNKNOWN)
    assert 1 == sum(isinstance(entry, ConnectionsOpened) for entry in harness.audit.entries)


async def test_the_browser_that_was_let_in_may_press_twice_and_load_anew(harness: Harness) -> None:
    person = harness.browser()
    url, _ = await harness.broker.connections.link({"user": ALICE})
    form = (await person.open(url)).form("csrf")
    await person.submit(form=form)
    assert (303, CONNECTIONS) == ((again := await person.open(url)).status, again.location)
    assert 1 == sum(isinstance(entry, ConnectionsOpened) for entry in harness.audit.entries)


async def test_a_link_ends_after_ten_minutes_and_a_browser_session_after_thirty(harness: Harness) -> None:
    late, _ = await harness.broker.connections.link({"user": ALICE})
    harness.clock.advance(600)
    assert_error_page(await harness.browser().open(late), Code.STATE_UNKNOWN)
    person = await connections_browser(harness, {"user": ALICE})
    harness.clock.advance(29 * 60)
    assert 200 == (await person.open(CONNECTIONS)).status
    harness.clock.advance(61)
    page = await person.open(CONNECTIONS)
    assert 401 == page.status
    assert "This page has closed" in page.text


@pytest.mark.parametrize(
    ("language", "says"),
    [("en", "Open this page with a link from your conversation"), ("ko", "이 페이지는 대화에서 받은 링크로 열립니다")],
)
async def test_a_page_user_without_a_link_is_told_where_to_get_one(harness: Harness, language: str, says: str) -> None:
    page = await harness.browser().open(CONNECTIONS, headers={"accept-language": language})
    assert 401 == page.status
    assert says in page.text
    assert "away" not in page.text


async def test_who_leaves_is_out_everywhere(filed: Harness, tmp_path: Path) -> None:
    """The cookie that a thief may have kept is of no use any more."""
    person, thief = await connections_browser(filed, {"user": ALICE}), filed.browser()
    thief.cookies.set("oab-connections", person.cookies["oab-connections"].value, "127.0.0.1")
    assert 200 == (await thief.open(CONNECTIONS)).status
    page = await submit_form(person, "/leave")
    assert f"{CONNECTIONS}/left" == page.location
    assert "oab-connections" not in person.cookies
    assert "You have left" in (await person.follow()).text
    assert 401 == (await person.open(CONNECTIONS)).status
    assert 401 == (await thief.open(CONNECTIONS)).status


@pytest.mark.parametrize("cookie", ["", "x", "A" * 65, "A" * 22, "A" * 5000, "connections", "%00"])
async def test_a_forged_cookie_opens_no_browser_session(harness: Harness, cookie: str) -> None:
    stranger = harness.browser()
    if cookie:
        stranger.cookies.set("oab-connections", cookie, "127.0.0.1")
    assert 401 == (await stranger.open(CONNECTIONS)).status


async def test_the_ticket_is_no_cookie_and_a_cookie_no_ticket(harness: Harness) -> None:
    url, _ = await harness.broker.connections.link({"user": ALICE})
    stranger = harness.browser()
    stranger.cookies.set("oab-connections", url.rpartition("/")[2], "127.0.0.1")
    assert 401 == (await stranger.open(CONNECTIONS)).status
    person = await connections_browser(harness, {"user": ALICE})
    with pytest.raises(BrokerError) as refused:
        await harness.broker.connections.browser_sessions.invited(person.cookies["oab-connections"].value)
    assert Code.STATE_UNKNOWN is refused.value.code


async def test_bob_sees_and_ends_nothing_of_alice_and_of_the_team(harness: Harness) -> None:
    """By the page, and by every address that hers has."""
    await harness.connected()
    await harness.connected("team")
    mail, team = await harness.grant(), await harness.grant("team", TEAM)
    assert mail is not None
    assert team is not None
    await harness.ask_link("files")
    alice, bob = (
        await connections_browser(harness, {"user": ALICE, "global": TEAM}),
        await connections_browser(harness, {"user": BOB}),
    )
    for hers in ("Mail", "Files", "Team", ALICE, TEAM, mail.id, "/connect/"):
        assert hers not in bob.page.source
    for grant in (mail, team):
        assert_error_page(await bob.open(f"{CONNECTIONS}/{grant.id}/disconnect"), Code.GRANT_NOT_FOUND)
        for action in ("disconnect", "switch", "again"):
            page = await alice.open(f"{CONNECTIONS}/{grant.id}/disconnect")
            field = dict(page.form("csrf").fields)["csrf"]
            own = await bob.open(CONNECTIONS)
            answer = await bob.post(f"{CONNECTIONS}/{grant.id}/{action}", [("csrf", field)], initiator=own)
            assert_error_page(answer, Code.OWNER_BINDING_FAILED, "formOutdated")
    assert isinstance(await harness.ask(), Ready)
    assert isinstance(await harness.ask("team"), Ready)


async def test_with_bobs_own_form_bob_ends_none_of_alices_grants(harness: Harness) -> None:
    """Bob's browser, Bob's visit, and a field made for that very address: the grant is Alice's."""
    await harness.connected()
    grant = await harness.grant()
    assert grant is not None
    bob = await connections_browser(harness, {"user": BOB})
    cookie = bob.cookies["oab-connections"].value
    for action in ("disconnect", "switch", "again"):
        token = field_for(harness, cookie, f"/connections/{grant.id}/{action}")
        own = await bob.open(CONNECTIONS)
        answer = await bob.post(f"{CONNECTIONS}/{grant.id}/{action}", [("csrf", token)], initiator=own)
        assert_error_page(answer, Code.GRANT_NOT_FOUND)
    assert isinstance(await harness.ask(), Ready)


def field_for(harness: Harness, cookie: str, path: str) -> str:
    """The hidden field as our pages make it."""
    return csrf.csrf_token(lambda message: harness.store.mac("csrf", message.hex()), cookie[22:], path)


async def test_disconnect_asks_first_then_ends_it_here_and_at_the_provider(harness: Harness) -> None:
    await harness.connected()
    await harness.events()
    grant = await harness.grant()
    assert grant is not None
    person = await connections_browser(harness, {"user": ALICE})
    page = await person.open(f"{CONNECTIONS}/{grant.id}/disconnect")
    assert "agents can no longer use Mail for you" in page.text
    assert isinstance(await harness.ask(), Ready), "a question changes nothing"
    page = await submit_form(person, "/disconnect")
    assert f"{CONNECTIONS}?done=disconnected" == page.location
    assert "Agents can no longer use it" in (await person.follow()).text
    assert "Nothing is connected" in person.page.text
    assert isinstance(await harness.ask(), AuthorizationRequired)
    assert harness.idp.count("revoke") > 0
    assert ["auth.revoked"] == [event["type"] for event in await harness.events()]
    assert [("disconnect", grant.id)] == [
        (each.action, each.target) for each in harness.audit.entries if isinstance(each, PageAction)
    ]
    assert_error_page(await person.open(f"{CONNECTIONS}/{grant.id}/disconnect"), Code.GRANT_NOT_FOUND)


async def test_switching_the_account_goes_by_the_connect_page_and_changes_who_agreed(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    shared = global_app(identity_provider)
    shared = replace(shared, owner=replace(shared.owner, authorizers="anyone"))
    async with running(identity_provider, [shared], clock=test_clock) as harness:
        await harness.connected("team")
        await harness.events()
        before = await harness.grant("team", TEAM)
        person = await connections_browser(harness, {"global": TEAM})
        page = await submit_form(person, "/switch")
        assert page.location is not None
        assert page.location.startswith(f"{BASE}/connect/")
        done = await connect_through(person, harness.idp, page.location, "bob")
        assert 200 == done.status, done.text
        after = await harness.grant("team", TEAM)
        assert before is not None
        assert after is not None
        assert (ALICE, BOB) == (before.authorized_by, after.authorized_by)
        assert ["auth.granted"] == [event["type"] for event in await harness.events()], (
            "to the conversation that asked last"
        )


async def test_where_the_account_is_the_subject_no_other_account_is_offered(harness: Harness) -> None:
    await harness.connected()
    grant = await harness.grant()
    assert grant is not None
    person = await connections_browser(harness, {"user": ALICE})
    assert "/switch" not in person.page.source
    token = field_for(harness, person.cookies["oab-connections"].value, f"/connections/{grant.id}/switch")
    answer = await person.post(f"{CONNECTIONS}/{grant.id}/switch", [("csrf", token)], initiator=person.page)
    assert_error_page(answer, Code.REQUEST_INVALID)


async def test_a_connection_that_is_dead_says_so_and_can_be_agreed_to_again(harness: Harness) -> None:
    await harness.connected()
    await kill(harness)
    person = await connections_browser(harness, {"user": ALICE})
    assert "Connect again" in person.page.text
    page = await submit_form(person, "/again")
    assert page.location is not None
    assert 200 == (await connect_through(person, harness.idp, page.location, "alice")).status
    assert isinstance(await harness.ask(), Ready)


async def kill(harness: Harness) -> None:
    """The grant as it is once a provider has said that its refresh token is dead, and its token has ended."""
    await until_relayed(harness.store)
    grant = await harness.grant()
    assert grant is not None
    assert grant.token is not None
    token = replace(grant.token, expires_at=harness.clock.now())
    await harness.change_grant(refresh_state=grant.refresh_state.over("dead"), token=token)


async def test_waiting_requests_are_there_with_their_way_on(harness: Harness) -> None:
    asked = await harness.ask_link()
    person = await connections_browser(harness, {"user": ALICE})
    assert "planner is asking for access" in person.page.text
    assert asked.authorization_url in person.page.source
    assert 200 == (await harness.connect(asked, browser=person)).status


@pytest.mark.parametrize(
    "subjects", [{}, {"user": ""}, {"team": "x"}, {"user": "x" * 1025}, {"user": 7}, {"user": ALICE, "admin": "x"}]
)
async def test_a_link_is_for_subjects_and_nothing_else(harness: Harness, subjects: Any) -> None:
    with pytest.raises(BrokerError) as refused:
        await harness.broker.connections.link(subjects)
    assert Code.REQUEST_INVALID is refused.value.code


async def test_another_worker_of_the_store_honours_link_cookie_and_end(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    store = file_store(tmp_path, test_clock)
    apps = [user_app(identity_provider)]
    async with (
        running(identity_provider, apps, clock=test_clock, store=store) as one,
        running(identity_provider, apps, clock=test_clock, store=file_store(tmp_path, test_clock)) as two,
    ):
        url, _ = await one.broker.connections.link({"user": ALICE})
        person = two.browser()
        await person.open(url)
        assert 303 == (await person.submit()).status
        person.serve(BASE, one.broker.asgi.app)
        assert 200 == (await person.open(CONNECTIONS)).status
        await submit_form(person, "/leave")
        person.serve(BASE, two.broker.asgi.app)
        assert 401 == (await person.open(CONNECTIONS)).status


async def test_the_store_keeps_neither_ticket_nor_cookie(harness: Harness) -> None:
    """Sealed, and still only hashes: not even who opens the seal can come in."""
    url, _ = await harness.broker.connections.link({"user": ALICE})
    ticket = url.rpartition("/")[2]
    person = await connections_browser(harness, {"user": ALICE})
    cookie = person.cookies["oab-connections"].value
    bodies = b"".join([entry.body async for entry in harness.store.scan("browsersessions")])
    assert bodies
    for secret in (ticket[22:], cookie[22:]):
        assert secret.encode() not in bodies


async def test_browser_sessions_that_are_over_are_swept(harness: Harness) -> None:
    await connections_browser(harness, {"user": ALICE})
    await harness.broker.connections.link({"user": ALICE})
    assert 2 == await harness.store.count("browsersessions")
    harness.clock.advance(601)
    await harness.parts.browser_sessions.sweep()
    assert 1 == await harness.store.count("browsersessions")
    harness.clock.advance(1800)
    await harness.parts.browser_sessions.sweep()
    assert 0 == await harness.store.count("browsersessions")


async def test_uses_are_written_once_in_five_minutes_and_when_the_broker_ends(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    apps = [user_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
        await harness.connected()
        assert 1 == await harness.parts.uses.write()
        for _ in range(10):
            await harness.ask()
            assert 0 == await harness.parts.uses.write()
        test_clock.advance(301)
        await harness.ask(of=turn(agent="researcher"))
    async with running(identity_provider, apps, clock=test_clock, store=file_store(tmp_path, test_clock)) as harness:
        grant = await harness.grant()
        assert grant is not None
        use = await harness.parts.uses.last(grant.id)
        assert use is not None
        assert ("planner", "researcher", test_clock.now()) == (use.first_agent, use.agent, use.at)


@pytest.mark.case("16", "85", "87")
async def test_on_https_below_a_path_every_link_form_and_redirect_stays_there_and_cookies_are_host_cookies(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = at(identity_provider, PREFIXED_BASE, user_app(identity_provider))
    async with running(identity_provider, [app], clock=test_clock, settings=public(PREFIXED_BASE)) as harness:
        person = Browser(apps={"https://runtime.example": mounted(harness.broker.asgi.app, "/tools/oauth")})
        asked = await harness.ask_link()
        assert 200 == (await harness.connect(asked, browser=person)).status
        url, _ = await harness.broker.connections.link({"user": ALICE})
        assert url.startswith(f"{PREFIXED_BASE}/connections/open/")
        await person.open(url)
        page = await person.submit()
        assert (303, f"{PREFIXED_BASE}/connections") == (page.status, page.location)
        (given,) = [value for name, value in page.headers if name.lower() == "set-cookie"]
        assert given.startswith("__Host-oab-connections=")
        assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure", "Max-Age=1800"} == set(given.split("; ")[1:])
        page = await person.follow()
        links = [*(form.action for form in page.document.forms), *re.findall(r'href="([^"#]+)"', page.source)]
        assert {True} == {link.startswith(f"{PREFIXED_BASE}/connections/") for link in links}
        grant = await harness.grant()
        assert grant is not None
        await person.open(f"{PREFIXED_BASE}/connections/{grant.id}/disconnect")
        assert f"{PREFIXED_BASE}/connections?done=disconnected" == (await submit_form(person, "/disconnect")).location
        assert isinstance(await harness.ask(), AuthorizationRequired)
