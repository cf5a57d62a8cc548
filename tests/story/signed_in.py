"""Browsers of people who have signed in to `/admin` or opened `/connections`."""

from __future__ import annotations

from collections.abc import Mapping

from oauthbroker.testing import Browser
from oauthbroker.testing.browser import Page
from oauthbroker.testing.canary import Canaries
from tests.kit.running_broker import ALICE, BASE, Harness

ADMIN = f"{BASE}/admin"
ADMIN_LOGIN = f"{ADMIN}/login"
PROXY_HEADERS = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded", "x-real-ip", "via")
CONNECTIONS = f"{BASE}/connections"


async def try_key(harness: Harness, key: str, browser: Browser | None = None) -> Browser:
    person = browser or harness.browser()
    await person.open(ADMIN_LOGIN)
    await person.submit({"key": key})
    return person


async def operator_browser(harness: Harness) -> Browser:
    """A signed-in operator."""
    _, key = await harness.broker.api_keys.create("ops", {"operator"})
    person = await try_key(harness, key.reveal())
    assert (303, ADMIN) == (person.page.status, person.page.location), person.page.text
    assert 200 == (await person.follow()).status
    return person


async def connections_browser(harness: Harness, subjects: Mapping[str, str], browser: Browser | None = None) -> Browser:
    """A person who has opened the link that the runtime made."""
    person = browser or harness.browser()
    url, _ = await harness.broker.connections.link(subjects)
    Canaries.active().add(url.rpartition("/")[2], "ticket")
    await person.open(url)
    page = await person.submit()
    assert (303, CONNECTIONS) == (page.status, page.location), page.text
    assert 200 == (await person.follow()).status
    return person


async def disconnect_browser(harness: Harness) -> Browser:
    """A person who is asked whether their connection of `mail` shall end."""
    await harness.connected()
    grant = await harness.grant()
    assert grant is not None
    person = await connections_browser(harness, {"user": ALICE})
    await person.open(f"{CONNECTIONS}/{grant.id}/disconnect")
    return person


async def submit_form(person: Browser, path: str) -> Page:
    """The one form that goes there."""
    return await person.submit(form=next(form for form in person.page.document.forms if form.action.endswith(path)))
