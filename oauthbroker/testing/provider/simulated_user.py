"""A user at the provider, simulated over HTTP: signs in, decides, and comes back; or connects a device."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from oauthbroker.testing.authority import Certificate
from oauthbroker.testing.browser import Browser, Page
from oauthbroker.testing.canary import Canaries
from oauthbroker.testing.provider.known_names import known
from oauthbroker.testing.provider.pages import NO_CHOICE
from oauthbroker.testing.provider.state import State

_MOST_STEPS = 8


class SimulatedUser:
    canaries: Canaries
    _state: State
    _tls: Certificate | None

    async def agree(
        self,
        url: str,
        account: str = "alice",
        *,
        browser: Browser | None = None,
        deny: bool = False,
        scopes: Sequence[str] | None = None,
        visit: bool = False,
    ) -> str:
        """Simulate a user from an authorization URL of this provider to the redirect back; returns the callback URL.

        The callback is visited only with `visit`, so a test can open it in another browser. `account` signs in, `deny`
        cancels, `scopes` are the ones left ticked (all by default); `openid`, which no page offers, is always granted.
        Raises AssertionError if the provider refuses the request with a page, ValueError for a scope that it does not
        offer.
        """
        browser, home = self._browser(browser), self._state.base_url
        callback = await go_through(browser, url, home=home, account=account, deny=deny, scopes=scopes)
        if visit:
            await browser.follow(callback)
        return callback

    async def device_agree(
        self,
        verification_uri: str,
        user_code: str = "",
        account: str = "alice",
        *,
        browser: Browser | None = None,
        deny: bool = False,
        scopes: Sequence[str] | None = None,
    ) -> str:
        """Simulate a user with a device's code: open the page, enter it, sign in, decide.

        `user_code` may stay empty for a `verification_uri_complete`. Returns the text of the last page. Raises
        AssertionError if the provider refuses.
        """
        browser = self._browser(browser)
        page = await browser.open(verification_uri)
        page = await browser.submit({"user_code": user_code} if user_code else None, form=page.form("user_code"))
        for _ in range(_MOST_STEPS):
            if page.status < 400 and not page.document.forms:
                return page.text
            page = await _step(browser, page, account=account, deny=deny, scopes=scopes)
        raise AssertionError(f"no end after {_MOST_STEPS} pages; the last one said: {page.text[:200]}")

    def _browser(self, given: Browser | None) -> Browser:
        return given or Browser(canaries=self.canaries, trust=self._tls.trust if self._tls else None)


async def go_through(
    browser: Browser, url: str, *, home: str, account: str, deny: bool = False, scopes: Sequence[str] | None = None
) -> str:
    """Do as `agree`, at the provider whose origin is `home`. It may run in another process."""
    page = await browser.open(url) if not browser.history else await browser.follow(url)
    for _ in range(_MOST_STEPS):
        if page.location is not None and not _at_home(page.location, home):
            return page.location
        page = await _step(browser, page, account=account, deny=deny, scopes=scopes)
    raise AssertionError(f"no way back after {_MOST_STEPS} pages; the last one said: {page.text[:200]}")


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
        offered = {value: value for form in page.document.forms for name, value in form.choices if name == "scope"}
        decision["scope"] = [known("scope on its consent page", each, offered) for each in scopes if each != NO_CHOICE]
    return await browser.submit(decision)
