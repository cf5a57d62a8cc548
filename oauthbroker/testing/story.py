"""The whole connect flow of one user: the link, the connect page, the provider, the callback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urljoin

from oauthbroker.testing.browser import Browser, Page

_MOST_REDIRECTS = 5


class Provider(Protocol):
    """The part of a provider that `connect_through` uses; `IdentityProvider` has it."""

    @property
    def base_url(self) -> str: ...

    async def agree(
        self,
        url: str,
        account: str = ...,
        *,
        browser: Browser | None = ...,
        deny: bool = ...,
        scopes: Sequence[str] | None = ...,
    ) -> str: ...


async def connect_through(
    browser: Browser,
    provider: Provider,
    authorization_url: str,
    account: str = "alice",
    *,
    deny: bool = False,
    scopes: Sequence[str] | None = None,
) -> Page:
    """Run the whole flow: connect page, its button, the provider's pages, the callback. Returns the last page.

    `authorization_url` is the one from the tool's result. A page that refuses (status 400 and above) ends the flow
    early and is returned. `deny` and `scopes` are as in `IdentityProvider.agree`.
    """
    to_provider = authorization_url
    if not authorization_url.startswith(provider.base_url + "/"):  # else `link: direct`, which has no connect page
        page = await leave(browser, authorization_url)
        if page.status >= 400:
            return page
        to_provider = _authorization_urls(page)
    callback = await provider.agree(to_provider, account, browser=browser, deny=deny, scopes=scopes)
    page = await browser.follow(callback)
    for _ in range(_MOST_REDIRECTS):
        if page.location is None:
            return page
        page = await browser.follow()
    raise AssertionError(f"more than {_MOST_REDIRECTS} redirects after the callback")


async def leave(browser: Browser, connect_url: str) -> Page:
    """Open a connect page and press its button. The returned page leads to the provider (or refuses)."""
    page = await browser.open(connect_url)
    return page if page.status >= 400 else await browser.submit()


def _authorization_urls(page: Page) -> str:
    """Return the provider's URL on the page after the button: its refresh or redirect target, else its first link."""
    links = page.document.links
    target = page.next_url or (urljoin(page.url, links[0]) if links else None)
    if target is None:
        raise LookupError(f"the page after the button leads nowhere: {page.text[:200]}")
    return target
