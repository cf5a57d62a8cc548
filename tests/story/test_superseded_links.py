"""Asking again: which earlier link is superseded, and what a link that is still open asks for."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.authorization.finish import Finish
from oauthbroker.model.apps import App
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from tests.kit.broker_process import granted_event_ids
from tests.kit.running_broker import (
    ALICE,
    Harness,
    endpoints_of,
    file_store,
    running,
    scopes_last_asked_for,
    stored_grant,
    turn,
    user_app,
)


def direct(app: App) -> App:
    return replace(app, redirect=replace(app.redirect, link="direct"))


async def links(harness: Harness) -> list[str]:
    block = await harness.broker.pending(turn())
    return [] if block is None else [item["authSessionId"] for item in block["items"]]


@pytest.mark.parametrize("link", ["connect", "direct"])
async def test_asking_again_leaves_a_session_in_mid_exchange_alone(identity_provider, test_clock, link):
    app = user_app(identity_provider)
    async with running(identity_provider, [direct(app) if link == "direct" else app], clock=test_clock) as harness:
        asked = await harness.ask_link()
        person, hold = harness.browser(), identity_provider.script.token.hang()
        if link == "direct":
            way_back = await identity_provider.agree(asked.authorization_url, "alice", browser=person)
        else:
            way_back = await harness.way_back(asked, person)
        returning = asyncio.create_task(person.open(way_back))
        await hold.arrived()
        again = await harness.ask_link()
        assert again.auth_session_id != asked.auth_session_id
        assert [again.auth_session_id] == await links(harness), "a link that is being redeemed leads nowhere"
        hold.release()
        assert 303 == (await returning).status
        assert "completed" == (await harness.session(asked)).status
        assert isinstance(await harness.ask(), Ready)
        assert 0 == identity_provider.count("revoke")
        assert sorted(granted_event_ids(asked, again)) == sorted(
            event["eventId"] for event in await harness.events(count=2)
        )
        assert [] == await links(harness)


async def test_a_button_pressed_while_its_link_is_superseded_wins(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    """The browser comes between the reading of the waiting list and the end of the old session."""
    first = await harness.ask_link()
    harness.clock.advance(400)  # no longer fresh enough to be given out again
    lapse, person, urls = Finish.lapse_locked, harness.browser(), list[str]()

    async def after_the_button(self: Finish, held: Any, **more: Any) -> bool:
        if not urls:
            urls.append(await harness.to_provider(first, person))
        return await lapse(self, held, **more)

    monkeypatch.setattr(Finish, "lapse_locked", after_the_button)
    second = await harness.ask_link()
    assert 1 == len(urls)
    assert second.auth_session_id != first.auth_session_id
    assert [first.auth_session_id, second.auth_session_id] == await links(harness)
    back = await harness.idp.agree(urls[0], "alice", browser=person)
    assert 303 == (await person.follow(back)).status
    assert "completed" == (await harness.session(first)).status == (await harness.session(second)).status


async def test_a_link_that_was_followed_is_not_superseded(harness: Harness):
    """Asking again must not cut off the person who is just signing in."""
    first, person = await harness.ask_link(), harness.browser()
    provider_url = await harness.to_provider(first, person)
    harness.clock.advance(400)
    second = await harness.ask_link()
    assert [first.auth_session_id, second.auth_session_id] == await links(harness)
    back = await harness.idp.agree(provider_url, "alice", browser=person)
    assert 303 == (await person.follow(back)).status
    assert "completed" == (await harness.session(second)).status


async def test_a_waiting_list_that_is_empty_leaves_nothing_behind(harness: Harness):
    await harness.connected()
    assert 0 == await harness.store.count("waiting")
    asked = await harness.ask_link("files")
    assert 1 == await harness.store.count("waiting")
    assert await harness.broker.cancel(asked.auth_session_id)
    assert 0 == await harness.store.count("waiting")
    assert isinstance(await harness.ask("files"), AuthorizationRequired)


async def test_a_link_that_was_not_followed_is_superseded(harness: Harness):
    first = await harness.ask_link()
    harness.clock.advance(400)
    second = await harness.ask_link()
    assert [second.auth_session_id] == await links(harness)
    assert "expired" == (await harness.session(first)).status
    assert "Open the newest one that you got" in (await harness.browser().open(first.authorization_url)).text
    assert 200 == (await harness.browser().open(second.authorization_url)).status


@pytest.mark.case("44")
async def test_of_two_links_that_were_open_together_the_second_takes_nothing_away(harness: Harness):
    """Both were opened when there was no grant. The page says what the provider will be asked for."""
    one, other = turn(instance="one"), turn(instance="other")
    read, write = await harness.ask_link(scopes=["read"], of=one), await harness.ask_link(scopes=["write"], of=other)
    alice = harness.browser()
    page = await alice.open(write.authorization_url)
    assert ["write"] == [name for name in ("read", "write") if name in page.text]
    await harness.connect(read, browser=alice)
    assert ("read",) == (await stored_grant(harness)).scopes
    page = await alice.open(write.authorization_url)
    assert ["read", "write"] == [name for name in ("read", "write") if name in page.text]
    await harness.connect(write, browser=alice)
    assert ["openid", "read", "write"] == scopes_last_asked_for(harness)
    assert ("read", "write") == (await stored_grant(harness)).scopes
    for of, scope in ((one, "read"), (other, "write")):
        assert isinstance(await harness.ask(scopes=[scope], of=of), Ready)


@pytest.mark.case("44")
@pytest.mark.parametrize("first_agreed", [0, 1])
@pytest.mark.parametrize("link", ["connect", "direct"])
async def test_of_two_links_that_were_both_followed_before_either_was_agreed_to_no_scope_is_lost(
    identity_provider, test_clock, link, first_agreed
):
    """Two agents of one user. The first link is followed before the second one exists."""
    app = user_app(identity_provider)
    async with running(identity_provider, [direct(app) if link == "direct" else app], clock=test_clock) as harness:
        ways = list[tuple[Any, str]]()
        for scope in ("read", "write"):
            asked, person = await harness.ask_link(scopes=[scope], of=turn(instance=scope)), harness.browser()
            url = asked.authorization_url if link == "direct" else await harness.to_provider(asked, person)
            ways.append((person, url))
        for person, url in ways if first_agreed == 0 else reversed(ways):
            await person.follow(await identity_provider.agree(url, "alice", browser=person))
        assert ("read", "write") == (await stored_grant(harness)).scopes
        for scope in ("read", "write"):
            assert isinstance(await harness.ask(scopes=[scope], of=turn(instance=scope)), Ready)
        assert {"auth.granted"} == {event["type"] for event in await harness.events(count=2)}


@pytest.mark.case("44")
@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("first_agreed", [0, 1, None], ids=["first", "second", "at once"])
async def test_of_two_links_that_are_pressed_in_the_same_moment_no_scope_is_lost(
    identity_provider, test_clock, tmp_path, brokers, first_agreed
):
    """The first press has read what others ask for, and is not stored yet while the second one is made."""
    identity_provider.par = "required"
    pushed = replace(endpoints_of(identity_provider), pushed_authorization_url=identity_provider.url("/par"))
    apps = [user_app(identity_provider, endpoints=pushed)]
    async with AsyncExitStack() as stack:
        here = list[Harness]()
        for _ in range(brokers):
            broker = running(identity_provider, apps, clock=test_clock, store=file_store(tmp_path, test_clock))
            here.append(await stack.enter_async_context(broker))
        links = [await here[0].ask_link(scopes=[scope], of=turn(instance=scope)) for scope in ("read", "write")]
        people = [here[0].browser(), here[-1].browser()]
        hold = identity_provider.script.par.hang()
        pressing = asyncio.create_task(here[0].to_provider(links[0], people[0]))
        await hold.arrived()
        second = await here[-1].to_provider(links[1], people[1])
        hold.release()
        agreed = [
            await identity_provider.agree(url, "alice", browser=person)
            for url, person in zip([await pressing, second], people, strict=True)
        ]
        if first_agreed is None:
            await asyncio.gather(*(person.follow(url) for person, url in zip(people, agreed, strict=True)))
        else:
            for at in (first_agreed, 1 - first_agreed):
                await people[at].follow(agreed[at])
        assert ("read", "write") == (await stored_grant(here[0])).scopes
        for harness, scope in ((here[-1], "read"), (here[0], "write")):
            assert isinstance(await harness.ask(scopes=[scope], of=turn(instance=scope)), Ready)


async def test_asking_again_for_a_link_that_is_being_followed_for_more_opens_no_other(harness: Harness):
    one, other = turn(instance="one"), turn(instance="other")
    await harness.to_provider(await harness.ask_link(scopes=["read"], of=one), harness.browser())
    write = await harness.ask_link(scopes=["write"], of=other)
    await harness.to_provider(write, harness.browser())
    assert write.auth_session_id == (await harness.ask_link(scopes=["write"], of=other)).auth_session_id


async def test_of_twenty_browsers_that_press_one_link_at_once_each_gets_to_the_provider(
    identity_provider, test_clock, tmp_path
):
    store = file_store(tmp_path, test_clock)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, store=store) as harness:
        asked = await harness.ask_link()
        people = [harness.browser() for _ in range(20)]
        for person in people:
            await person.open(asked.authorization_url)
        assert {200} == {page.status for page in await asyncio.gather(*(person.submit() for person in people))}


@pytest.mark.case("44")
async def test_a_narrower_consent_that_is_slower_takes_nothing_from_the_wider_one(harness: Harness):
    """Its code is being redeemed while the other link's grant is stored."""
    first, second = turn(instance="first"), turn(instance="second")
    read = await harness.ask_link(scopes=["read"], of=first)
    slow, fast = harness.browser(), harness.browser()
    way_back = await harness.way_back(read, slow)
    write = await harness.ask_link(scopes=["write"], of=second)
    hold = harness.idp.script.token.hang()
    returning = asyncio.create_task(slow.open(way_back))
    await hold.arrived()
    page = await harness.connect(write, browser=fast)
    assert 200 == page.status, page.text
    wide = await stored_grant(harness)
    hold.release()
    assert 303 == (await returning).status
    kept = await stored_grant(harness)
    assert (("read", "write"), wide.token) == (kept.scopes, kept.token)
    assert 2 == len(kept.retired.secrets if kept.retired else kept.replaced[0].secrets), "the unused tokens are revoked"
    assert sorted(granted_event_ids(read, write)) == sorted(event["eventId"] for event in await harness.events(count=2))
    for of, scope in ((first, "read"), (second, "write")):
        assert isinstance(await harness.ask(scopes=[scope], of=of), Ready)


@pytest.mark.parametrize("why", ["revoked", "another account"])
async def test_scopes_of_a_grant_that_is_no_longer_wanted_are_not_asked_for(harness: Harness, why: str):
    other = turn(instance="other")
    if why == "revoked":
        write = await harness.ask_link(scopes=["write"], of=other)
    else:
        write = await harness.ask("mail", ["write"], other, switch_account=True)
    await harness.connected(scopes=["read"])
    if why == "revoked":
        assert await harness.broker.revoke("mail", subject=ALICE)
    await harness.connect(write)
    assert ["openid", "write"] == scopes_last_asked_for(harness)
    assert ("write",) == (await stored_grant(harness)).scopes
