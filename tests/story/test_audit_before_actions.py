"""The audit entry of a page's button comes before its effect: with a log that refuses it, nothing has happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urljoin

import pytest

from oauthbroker.audit import AuditEntry, ConnectionsOpened, ConnectStarted, OperatorEntered, PageAction
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.testing.html import Form
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import (
    ALICE,
    BASE,
    TEAM,
    Harness,
    endpoints_of,
    global_app,
    public,
    running,
    turn,
    user_app,
)
from tests.story.binding_kit import CORP_ALICE, broker_login, confirming_app
from tests.story.signed_in import ADMIN, ADMIN_LOGIN, connections_browser, disconnect_browser, operator_browser

DAY_SECONDS = 24 * 3600


@pytest.fixture
def corp(test_clock: TestClock) -> Iterator[IdentityProvider]:
    with IdentityProvider(clock=test_clock) as provider:
        yield provider


@pytest.fixture
async def harness(
    identity_provider: IdentityProvider, corp: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Harness]:
    """A broker without background work, whose provider takes pushed requests of the app `files`. A login comes before
    the app `guarded`."""
    identity_provider.par = "offered"
    team = global_app(identity_provider)
    pushing = replace(endpoints_of(identity_provider), pushed_authorization_url=identity_provider.url("/par"))
    apps = [
        user_app(identity_provider),
        user_app(identity_provider, "files", endpoints=pushing),
        replace(team, owner=replace(team.owner, authorizers="anyone")),
        confirming_app(identity_provider, "brokerLogin", "guarded"),
    ]
    settings, login = public(BASE, admin_loopback=True), broker_login(corp)
    async with running(
        identity_provider, apps, clock=test_clock, settings=settings, login=login, background=False
    ) as harness:
        yield harness


Button = tuple[Browser, str, dict[str, str] | None]  # a browser, the end of its form's path, and the fields to fill in


async def sign_in_with_a_key(harness: Harness) -> Button:
    _, key = await harness.broker.api_keys.create("ops", {"operator"})
    person = harness.browser()
    await person.open(ADMIN_LOGIN)
    return person, "/login", {"key": key.reveal()}


async def sign_in_from_here(harness: Harness) -> Button:
    person = harness.browser()
    await person.open(ADMIN_LOGIN)
    return person, "/enter", None


async def open_the_link(harness: Harness) -> Button:
    person = harness.browser()
    url, _ = await harness.broker.connections.link({"user": ALICE})
    await person.open(url)
    return person, "", None


def start(app: str) -> Callable[[Harness], Awaitable[Button]]:
    async def prepared(harness: Harness) -> Button:
        person = harness.browser()
        user = CORP_ALICE if app == "guarded" else ALICE
        await person.open((await harness.ask_link(app, of=turn(user))).authorization_url)
        return person, "", None

    return prepared


async def revoke(harness: Harness) -> Button:
    await harness.connected()
    grant = await harness.grant()
    assert grant is not None
    person = await operator_browser(harness)
    await person.open(f"{ADMIN}/grants/{grant.id}/revoke")
    return person, "/revoke", None


async def cancel(harness: Harness) -> Button:
    await harness.ask_link()
    person = await operator_browser(harness)
    await person.open(f"{ADMIN}/waiting")
    return person, "/cancel", None


async def disconnect(harness: Harness) -> Button:
    return await disconnect_browser(harness), "/disconnect", None


async def switch(harness: Harness) -> Button:
    await harness.connected("team")
    return await connections_browser(harness, {"global": TEAM}), "/switch", None


async def agree_again(harness: Harness) -> Button:
    await harness.connected()
    harness.idp.revoke_all("client-mail")
    harness.clock.advance(DAY_SECONDS)
    await harness.broker.cancel((await harness.ask_link()).auth_session_id)
    return await connections_browser(harness, {"user": ALICE}), "/again", None


ACTIONS: dict[str, tuple[Callable[[Harness], Awaitable[Button]], type[AuditEntry], str | None]] = {
    "an operator signs in with a key": (sign_in_with_a_key, OperatorEntered, None),
    "an operator signs in from this machine": (sign_in_from_here, OperatorEntered, None),
    "a link to the connections is used": (open_the_link, ConnectionsOpened, None),
    "an authorization is started": (start("mail"), ConnectStarted, None),
    "an authorization is started with a pushed request": (start("files"), ConnectStarted, None),
    "an authorization is started with a login": (start("guarded"), ConnectStarted, None),
    "an operator revokes a grant": (revoke, PageAction, "revoke"),
    "an operator cancels a request": (cancel, PageAction, "cancel"),
    "a user disconnects": (disconnect, PageAction, "disconnect"),
    "a user switches the account": (switch, PageAction, "switchAccount"),
    "a user agrees again": (agree_again, PageAction, "agreeAgain"),
}


async def everything(harness: Harness) -> tuple[list[Any], int]:
    """Return all records with their generations, and how many requests the provider has seen."""
    entries = [entry for kind in sorted(KINDS) async for entry in harness.store.scan(kind)]
    return [(entry.key, entry.generation) for entry in entries], len(harness.idp.requests)


async def press(person: Browser, opened: Page, form: Form, fields: dict[str, str] | None) -> Page:
    """Press a button of a page that is still open, also after another answer."""
    filled = [(name, (fields or {}).get(name, value)) for name, value in form.fields]
    pairs = filled if fields else filled + form.buttons[:1]
    return await person.post(urljoin(opened.url, form.action), pairs, initiator=opened)


def refuses_only(harness: Harness, kind: type[AuditEntry]) -> Callable[[AuditEntry, datetime], None]:
    """Return the `write` of a log that takes all entries but those of one type."""
    write = harness.audit.write

    def refusing(entry: AuditEntry, at: datetime) -> None:
        if isinstance(entry, kind):
            raise BrokerError(Code.STORE_UNAVAILABLE)
        write(entry, at)

    return refusing


@pytest.mark.parametrize(("prepared", "kind", "action"), ACTIONS.values(), ids=ACTIONS.keys())
async def test_a_refused_entry_leaves_the_action_undone(
    harness: Harness,
    prepared: Callable[[Harness], Awaitable[Button]],
    kind: type[AuditEntry],
    action: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person, path, fields = await prepared(harness)
    opened = person.page
    form = next(form for form in opened.document.forms if path in form.action)
    before, written = await everything(harness), list(harness.audit.entries)
    with monkeypatch.context() as patch:
        patch.setattr(harness.audit, "write", refuses_only(harness, kind))
        assert_error_page(await press(person, opened, form, fields), Code.STORE_UNAVAILABLE)
    assert before == await everything(harness)
    assert written == harness.audit.entries
    page = await press(person, opened, form, fields)
    assert page.status < 400, page.text
    assert before != await everything(harness), "the same button works once the log does"
    added = [entry for entry in harness.audit.entries[len(written) :] if isinstance(entry, kind)]
    assert [action] == [getattr(entry, "action", None) for entry in added]
