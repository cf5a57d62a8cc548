"""A user at the provider, simulated over HTTP: signs in, decides, and comes back; or connects a device."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from oauthbroker.testing.browser import Browser, Page

_MOST_STEPS = 8


async def go_through(
    browser: Browser, url: str, *, home: str, account: str, deny: bool, scopes: Sequence[str] | None
) -> str:
    """Go from an authorization URL to the redirect back, and return its URL unvisited.

    `home` is the provider's origin; a redirect to any other origin is the result. Raises AssertionError if the provider
    shows an error page instead of a redirect.
    """
    page = await browser.open(url) if not browser.history else await browser.follow(url)
    for _ in range(_MOST_STEPS):
        if page.location is not None and not _at_home(page.location, home):
            return page.location
        page = await _step(browser, page, account=account, deny=deny, scopes=scopes)
    raise AssertionError(f"no way back after {_MOST_STEPS} pages; the last one said: {page.text[:200]}")


async def connect_device(
    browser: Browser, url: str, user_code: str, *, account: str, deny: bool, scopes: Sequence[str] | None
) -> str:
    """Go from a device's verification page to the last page, and return its text.

    Without a `user_code` the one that the page proposes is sent. Raises AssertionError if the provider refuses.
    """
    page = await browser.open(url)
    page = await browser.submit({"user_code": user_code} if user_code else None, form=page.form("user_code"))
    for _ in range(_MOST_STEPS):
        if page.status < 400 and not page.document.forms:
            return page.text
        page = await _step(browser, page, account=account, deny=deny, scopes=scopes)
    raise AssertionError(f"no end after {_MOST_STEPS} pages; the last one said: {page.text[:200]}")


def _at_home(url: str, home: str) -> bool:
    there, here = urlsplit(url), urlsplit(home)
    return (there.scheme, there.netloc) == (here.scheme, here.netloc)


async def _step(browser: Browser, page: Page, *, account: str, deny: bool, scopes: Sequence[str] | None) -> Page:
    if page.location is not None:
        return await browser.follow()
    if page.status >= 400:
        raise AssertionError(f"the provider refused with {page.status}: {page.text[:200]}")
    forms = {name for form in page.document.forms for name in form.names}
    if "login" in forms:
        return await browser.submit({"login": account})
    if "decision" not in forms:
        raise AssertionError(f"not a page of this provider: {page.text[:200]}")
    switch = next((link for link in page.document.links if link.startswith("/login")), None)
    if switch and f"({account})" not in page.text:  # another account is signed in in this browser
        return await browser.follow(switch)
    decision: dict[str, str | Sequence[str]] = {"decision": "deny" if deny else "allow"}
    if scopes is not None:
        decision["scope"] = scopes
    return await browser.submit(decision)
