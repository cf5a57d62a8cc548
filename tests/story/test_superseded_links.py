"""Asking again: which earlier link is superseded, and what a link that is still open asks for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.authorization.finish import Finish
from oauthbroker.model.apps import OAuthApp
from oauthbroker.model.results import AuthorizationRequired, Ready
from tests.kit.broker_process import granted_event_ids
from tests.kit.running_broker import ALICE, House, running, scopes_last_asked_for, stored_grant, turn, user_app


def direct(app: OAuthApp) -> OAuthApp:
    return replace(app, redirect=replace(app.redirect, link="direct"))


async def links(house: House) -> list[str]:
    block = await house.broker.pending(turn())
    return [] if block is None else [item["authSessionId"] for item in block["items"]]


@pytest.mark.parametrize("link", ["connect", "direct"])
async def test_asking_again_leaves_a_session_in_mid_exchange_alone(identity_provider, test_clock, link):
    app = user_app(identity_provider)
    async with running(identity_provider, [direct(app) if link == "direct" else app], clock=test_clock) as house:
        asked = await house.ask_link()
        person, hold = house.browser(), identity_provider.script.token.hang()
        if link == "direct":
            way_back = await identity_provider.agree(asked.authorization_url, "alice", browser=person)
        else:
            way_back = await house.way_back(asked, person)
        returning = asyncio.create_task(person.open(way_back))
        await hold.arrived()
        again = await house.ask_link()
        assert again.auth_session_id != asked.auth_session_id
        assert [again.auth_session_id] == await links(house), "a link that somebody is redeeming leads nowhere"
        hold.release()
        assert 303 == (await returning).status
        assert "completed" == (await house.session(asked)).status
        assert isinstance(await house.ask(), Ready)
        assert 0 == identity_provider.count("revoke")
        assert sorted(granted_event_ids(asked, again)) == sorted(
            event["eventId"] for event in await house.events(count=2)
        )
        assert [] == await links(house)


async def test_a_button_pressed_while_its_link_is_superseded_wins(house: House, monkeypatch: pytest.MonkeyPatch):
    """The browser comes between the reading of the waiting list and the end of the old session."""
    first = await house.ask_link()
    house.clock.advance(400)  # no longer fresh enough to be given out again
    lapse, person, urls = Finish.lapse_locked, house.browser(), list[str]()

    async def after_the_button(self: Finish, held: Any, **more: Any) -> bool:
        if not urls:
            urls.append(await house.to_provider(first, person))
        return await lapse(self, held, **more)

    monkeypatch.setattr(Finish, "lapse_locked", after_the_button)
    second = await house.ask_link()
    assert 1 == len(urls)
    assert second.auth_session_id != first.auth_session_id
    assert [first.auth_session_id, second.auth_session_id] == await links(house)
    back = await house.idp.agree(urls[0], "alice", browser=person)
    assert 303 == (await person.follow(back)).status
    assert "completed" == (await house.session(first)).status == (await house.session(second)).status


async def test_a_link_that_somebody_followed_is_not_superseded(house: House):
    """Asking again must not cut off the person who is just signing in."""
    first, person = await house.ask_link(), house.browser()
    provider_url = await house.to_provider(first, person)
    house.clock.advance(400)
    second = await house.ask_link()
    assert [first.auth_session_id, second.auth_session_id] == await links(house)
    back = await house.idp.agree(provider_url, "alice", browser=person)
    assert 303 == (await person.follow(back)).status
    assert "completed" == (await house.session(second)).status


async def test_a_waiting_list_that_is_empty_leaves_nothing_behind(house: House):
    await house.connected()
    assert 0 == await house.store.count("waiting")
    asked = await house.ask_link("files")
    assert 1 == await house.store.count("waiting")
    assert await house.broker.cancel(asked.auth_session_id)
    assert 0 == await house.store.count("waiting")
    assert isinstance(await house.ask("files"), AuthorizationRequired)


async def test_a_link_that_nobody_followed_is_superseded(house: House):
    first = await house.ask_link()
    house.clock.advance(400)
    second = await house.ask_link()
    assert [second.auth_session_id] == await links(house)
    assert "expired" == (await house.session(first)).status


@pytest.mark.case("44")
async def test_of_two_links_that_were_open_together_the_second_takes_nothing_away(house: House):
    """Both were opened when there was no grant. The page says what the provider will be asked for."""
    one, other = turn(instance="one"), turn(instance="other")
    read, write = await house.ask_link(scopes=["read"], of=one), await house.ask_link(scopes=["write"], of=other)
    alice = house.browser()
    page = await alice.open(write.authorization_url)
    assert ["write"] == [name for name in ("read", "write") if name in page.text]
    await house.connect(read, browser=alice)
    assert ("read",) == (await stored_grant(house)).scopes
    page = await alice.open(write.authorization_url)
    assert ["read", "write"] == [name for name in ("read", "write") if name in page.text]
    await house.connect(write, browser=alice)
    assert ["openid", "read", "write"] == scopes_last_asked_for(house)
    assert ("read", "write") == (await stored_grant(house)).scopes
    for of, scope in ((one, "read"), (other, "write")):
        assert isinstance(await house.ask(scopes=[scope], of=of), Ready)


@pytest.mark.parametrize("why", ["revoked", "another account"])
async def test_scopes_of_a_grant_that_is_no_longer_wanted_are_not_asked_for(house: House, why: str):
    other = turn(instance="other")
    if why == "revoked":
        write = await house.ask_link(scopes=["write"], of=other)
    else:
        write = await house.ask("mail", ["write"], other, switch_account=True)
    await house.connected(scopes=["read"])
    if why == "revoked":
        assert await house.broker.revoke("mail", subject=ALICE)
    await house.connect(write)
    assert ["openid", "write"] == scopes_last_asked_for(house)
    assert ("write",) == (await stored_grant(house)).scopes
