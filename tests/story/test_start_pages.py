"""`/` and `/docs`: where they lead on each listener and below a path, and that they tell strangers nothing of this broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urljoin

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web.api.openapi import document
from tests.kit.running_broker import ALICE, BASE, Harness, public, running, user_app
from tests.unit.web.kit import Document


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider, "a-secret-app", title="A Secret Title")]
    async with running(identity_provider, apps, clock=test_clock, settings=public(BASE)) as harness:
        yield harness


async def test_the_first_page_leads_to_what_there_is(harness: Harness) -> None:
    person = harness.browser()
    page = await person.open(f"{BASE}/")
    assert 200 == page.status
    places = [urljoin(page.url, link) for link in page.document.links]
    assert [f"{BASE}/connections", f"{BASE}/admin", f"{BASE}/docs"] == places
    assert [401, 303, 200] == [(await person.open(place)).status for place in places]
    korean = await harness.browser().open(f"{BASE}/", headers={"accept-language": "ko"})
    assert 'lang="ko"' in korean.source


@pytest.mark.parametrize("prefix", ["", "/broker"])
@pytest.mark.parametrize(
    "which, links", [("pages", ["connections", "admin"]), ("api", ["docs"]), ("app", ["connections", "admin", "docs"])]
)
def test_each_listener_leads_only_to_its_own_below_any_path(
    harness: Harness, prefix: str, which: str, links: list[str]
) -> None:
    served = getattr(harness.broker.asgi, which)
    app = Starlette(routes=[Mount(prefix, app=served)]) if prefix else served
    with TestClient(app, base_url=BASE, follow_redirects=False) as client:
        page = Document(client.get(f"{prefix}/").text)
        found = [str(each.attributes["href"]) for each in page.all("a")]
        assert links == found
        for link in found:
            assert 404 != client.get(urljoin(f"{prefix}/", link)).status_code
        assert (404 if which == "pages" else 200) == client.get(f"{prefix}/docs").status_code


async def test_the_reference_has_every_call_and_every_link_of_it_leads_somewhere(harness: Harness) -> None:
    person = harness.browser()
    page = await person.open(f"{BASE}/docs")
    read = Document(page.source)
    calls = [f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods]
    assert calls == [each.text.strip() for each in read.all("h2") if each.text.strip() != "Schemas"]
    ids = {str(each.attributes["id"]) for each in read.elements if "id" in each.attributes}
    inside = {link.removeprefix("#") for link in page.document.links if link.startswith("#")}
    assert inside <= ids
    assert set(document()["components"]["schemas"]) <= ids
    (outside,) = {link for link in page.document.links if not link.startswith("#")}
    assert 200 == (await person.open(urljoin(page.url, outside))).status
    assert "unsafe" not in page.header("content-security-policy")
    assert "<script" not in page.source.lower()


async def test_a_stranger_learns_nothing_of_this_broker(harness: Harness) -> None:
    """The same pages come from a broker with no app, under another name."""
    await harness.connected("a-secret-app")
    for path in ("/", "/docs"):
        page = await harness.browser().open(BASE + path)
        assert not [each for each in ("a-secret-app", "A Secret Title", ALICE, "127.0.0.1") if each in page.source]
        assert "no-store" == page.header("cache-control")
        assert page.header("set-cookie") is None or not page.header("set-cookie")
