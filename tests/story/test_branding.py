"""A team's name, logo and support address are on every page, and nothing else may come with them."""

from __future__ import annotations

from dataclasses import replace

from oauthbroker.model.settings import Branding, Logo
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.web.middleware.security_headers import content_security_policy
from tests.kit.images import PNG
from tests.kit.running_broker import ALICE, BASE, public, running, user_app
from tests.unit.web import kit

BRANDING = Branding("A<c>me", "https://help.acme.example/", Logo("image/png", PNG))
WITH_IMAGES = content_security_policy(images=True)


async def test_every_page_bears_them_and_a_browser_may_load_the_logo(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    settings = replace(public(BASE), branding=BRANDING)
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, settings=settings
    ) as harness:
        asked = await harness.ask_link()
        link, _ = await harness.broker.connections.link({"user": ALICE})
        person = harness.browser()
        logos = set()
        for url, status in {
            asked.authorization_url: 200,
            link: 200,
            f"{BASE}/connections": 401,
            f"{BASE}/admin/login": 200,
            f"{BASE}/connect": 200,
            f"{BASE}/connect/nothing": 400,
            f"{BASE}/nowhere": 404,
        }.items():
            page = await person.open(url)
            assert (status, WITH_IMAGES) == (page.status, page.header("content-security-policy")), url
            document = kit.Document(page.source)
            assert "A<c>me" in document.text, url
            (support,) = [each for each in document.all("a") if each.attributes.get("href") == BRANDING.support_url]
            assert "noreferrer noopener" == support.attributes["rel"]
            logos.add(document.one("img").attributes["src"])
        (logo,) = logos
        image = await person.open(f"{BASE}{logo}")
        assert (200, "image/png", "nosniff") == (
            image.status,
            image.header("content-type"),
            image.header("x-content-type-options"),
        )
        assert content_security_policy() == image.header("content-security-policy"), (
            "an image opened by itself loads nothing"
        )
        assert 404 == (await person.open(f"{BASE}/brand/0123456789abcdef")).status


async def test_without_them_no_page_may_load_an_image(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """Also in a process whose other broker has some."""
    apps = [user_app(identity_provider)]
    async with (
        running(identity_provider, apps, clock=test_clock, settings=replace(public(BASE), branding=BRANDING)) as first,
        running(identity_provider, apps, clock=test_clock) as second,
    ):
        assert "A&lt;c&gt;me" in (await first.browser().open(f"{BASE}/connect")).source
        page = await second.browser().open(f"{BASE}/connect")
        assert content_security_policy() == page.header("content-security-policy")
        assert "img-src" not in content_security_policy()
        assert ("<img" in page.source, "acme" in page.source) == (False, False)
