"""The last page's button to the user's connections: only in a browser that has just proven to be that user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from oauthbroker.audit import ConnectionsOpened
from oauthbroker.authorization.proven_user import proves_user
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.static_credential import Placement, StaticCredential
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit import planted_records
from tests.kit.callback_pages import arrival_name, assert_error_page
from tests.kit.running_broker import ALICE, BASE, BOB, Harness, global_app, running, turn, user_app
from tests.story.binding_kit import ALICE as ACME_ALICE
from tests.story.binding_kit import broker_login, corp_turn, login_app, settings_for
from tests.story.signed_in import CONNECTIONS, connections_browser
from tests.unit.records.kit import session as a_session
from tests.unit.web.kit import Document

BUTTON = "See or end your connections"


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock) as harness:
        yield harness


def offers(page: Page) -> bool:
    return BUTTON in [each.text.strip() for each in Document(page.source).all("button")]


async def connected(harness: Harness, **more: Any) -> Browser:
    person = harness.browser()
    page = await harness.connect(await harness.ask_link(**more), browser=person)
    assert "is connected" in page.text
    return person


# --- who is proven, as a table

KEY = StaticCredential(fields=(), placement=Placement(kind="headers", texts={}))
COMPARED = IdentityRule("idToken", "idp:user:{sub}")


@pytest.mark.parametrize(
    "changes, subject, proven",
    [
        pytest.param({}, ALICE, True, id="the account is the subject"),
        *[
            pytest.param(
                {"owner": Owner(binding=cast("Any", binding), user_identity=COMPARED)},
                ALICE,
                proven,
                id=f"{binding}, compared",
            )
            for binding, proven in [
                ("localOperator", True),
                ("runtimeConfirm", True),
                ("channelCode", False),
                ("brokerLogin", True),
            ]
        ],
        *[
            pytest.param({"owner": Owner(binding=cast("Any", binding))}, ACME_ALICE, proven, id=f"{binding} alone")
            for binding, proven in [
                ("localOperator", False),
                ("runtimeConfirm", False),
                ("channelCode", False),
                ("brokerLogin", True),
            ]
        ],
        pytest.param({"subject_mode": "global"}, ALICE, False, id="a team"),
        pytest.param({"credential": KEY}, ALICE, False, id="a key that names the account"),
        pytest.param({"credential": KEY, "owner": Owner(binding="brokerLogin")}, ALICE, True, id="a key after a login"),
    ],
)
def test_a_browser_is_its_users_own_after_a_login_or_with_the_account_itself(
    identity_provider: IdentityProvider, changes: dict[str, Any], subject: str, proven: bool
) -> None:
    app = replace(user_app(identity_provider), **changes)
    session = a_session(subject=subject, app=app.name, config_digest=app.config_digest)
    assert proven == proves_user(app, session)
    assert not proves_user(app, replace(session, config_digest="another")), "the app has changed since"


# --- the button


async def test_the_button_opens_this_users_connections_and_no_others(harness: Harness) -> None:
    await harness.connected("team", of=turn())
    await planted_records.grant(harness, "files", BOB)
    person = await connected(harness, scopes=["read"])
    assert offers(person.page)
    page = await person.submit()
    assert (303, CONNECTIONS) == (page.status, page.location), page.text
    page = await person.follow()
    assert ["Mail"] == [each.text.strip() for each in Document(page.source).all("h2")]
    assert BOB not in page.source
    opened = [entry for entry in harness.audit.entries if isinstance(entry, ConnectionsOpened)]
    assert 1 == len(opened)
    assert (await person.open(f"{BASE}/connections/{(await grant_of(harness)).id}/disconnect")).status == 200


async def grant_of(harness: Harness) -> Any:
    grant = await harness.grant()
    assert grant is not None
    return grant


async def test_the_button_works_once_and_again_for_who_is_already_in(harness: Harness) -> None:
    person = await connected(harness)
    done, form = person.page.url, person.page.form("csrf")
    await person.submit(form=form)
    await person.follow()
    await person.open(done)
    assert CONNECTIONS == (await person.submit(form=form)).location, "pressed twice, or gone back"
    assert 1 == sum(isinstance(entry, ConnectionsOpened) for entry in harness.audit.entries)
    await person.open(CONNECTIONS)
    await person.submit(form=next(each for each in person.page.document.forms if each.action.endswith("/leave")))
    await person.open(done)
    assert_error_page(await person.submit(), Code.STATE_USED)
    assert 401 == (await person.open(CONNECTIONS)).status


@pytest.mark.parametrize("taken", ["the session's cookie", "the arrival's cookie", "five minutes"])
async def test_another_browser_or_a_late_one_gets_nothing(harness: Harness, taken: str) -> None:
    """A form that another browser sends in this one's name has no field that fits, as every form's test shows."""
    asked, person = await harness.ask_link(), harness.browser()
    await harness.connect(asked, browser=person)
    form = person.page.form("csrf")
    if taken == "five minutes":
        harness.clock.advance(301)
    else:
        person.cookies.drop(
            f"oab-{locator_of(asked.auth_session_id)}" if "session" in taken else arrival_name("/connected/mail")
        )
    page = await person.submit(form=form)
    assert page.status in {400, 404}, page.text
    assert 401 == (await person.open(CONNECTIONS)).status
    assert not any(isinstance(entry, ConnectionsOpened) for entry in harness.audit.entries)


async def test_after_a_disconnection_meanwhile_the_button_is_gone(harness: Harness) -> None:
    person = await connected(harness)
    form = person.page.form("csrf")
    await harness.broker.grants.revoke("mail", ALICE)
    assert_error_page(await person.submit(form=form), Code.STATE_UNKNOWN)


async def test_a_browser_whose_request_another_one_completed_is_not_proven(harness: Harness) -> None:
    """A stranger presses the button of a link and goes no further; then the user connects by a link of their own."""
    first = await harness.ask_link()
    stranger = harness.browser()
    await harness.to_provider(first, stranger)
    await connected(harness, of=turn(agent="researcher"))
    page = await stranger.open(f"{BASE}/next/{first.auth_session_id}")
    page = await stranger.follow() if page.status == 303 else page
    assert not offers(page)
    assert ALICE not in page.text


async def test_a_session_of_another_user_in_this_browser_is_replaced(harness: Harness) -> None:
    person = await connections_browser(harness, {"user": BOB})
    await harness.connect(await harness.ask_link(), browser=person)
    await person.submit()
    assert "Mail" in (await person.follow()).text


async def test_a_teams_connection_leads_to_no_page(harness: Harness) -> None:
    person = await connected(harness, app="team", of=turn())
    assert not offers(person.page)
    assert "ask for a link" in person.page.text


async def test_a_direct_link_proves_no_browser(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    app = user_app(identity_provider)
    app = replace(app, redirect=replace(app.redirect, link="direct"))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        assert not offers((await connected(harness)).page)


async def test_after_the_brokers_own_login_the_button_is_there(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    with IdentityProvider(clock=test_clock) as corp:
        more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
        async with running(identity_provider, [login_app(identity_provider)], clock=test_clock, **more) as harness:
            person = await connected(harness, of=corp_turn())
            await person.submit()
            assert "Mail" in (await person.follow()).text
