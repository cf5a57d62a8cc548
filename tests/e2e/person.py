"""A person with a real Chromium: presses what the pages offer, and notices what a person would not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    Response,
    async_playwright,
)

from oauthbroker.testing import Canaries
from tests.kit import installed

_ARGUMENTS = [
    "--no-sandbox",  # as root Chromium refuses to run without it
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no page gets a font or an image from elsewhere
    # Chromium guards loopback against other sites, but no real host: the broker has to guard itself.
    "--disable-features=LocalNetworkAccessChecks",
]
_PATIENCE = 20_000.0  # milliseconds
_REFUSED = "Failed to load resource: the server responded with a status of 4"  # says so of the page itself, too
_SECRET_FIELDS = ("state", "nonce", "code")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The distribution's browser, headless."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=installed.chromium(), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


class Person:
    """One browser profile with one tab. `home` is the broker's origin: only its pages are held to account.

    `troubles` collects what went wrong on them: console messages, script errors, and requests for anything but
    the page itself. `visited` are the answers they gave; `asked` is every address the browser went to, with what
    it said in Referer; `overheard` is the whole console, of every page.
    """

    def __init__(self, context: BrowserContext, page: Page, home: str, canaries: Canaries) -> None:
        self.context = context
        self.page = page
        self.home = home
        self.canaries = canaries
        self.shared_circuits: list[str] = []
        self.overheard: list[str] = []
        self.visited: list[Response] = []
        self.referers: dict[str, str] = {}
        page.set_default_timeout(_PATIENCE)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.shared_circuits.append(f"script error: {error.name}"))
        page.on("request", self._on_request)
        page.on("response", self._on_response)

    @classmethod
    async def with_profile(cls, browser: Browser, home: str, canaries: Canaries, **profile: Any) -> Person:
        """A fresh profile: no cookie, no login. `profile` goes to Playwright's `new_context`."""
        context = await browser.new_context(**{"locale": "en-GB", **profile})
        return cls(context, await context.new_page(), home, canaries)

    @property
    def _consent_page(self) -> Locator:
        return self.page.get_by_role("heading", name="Authorize")

    @property
    def is_home(self) -> bool:
        return self.page.url.startswith(self.home + "/")

    @property
    def asked(self) -> list[str]:
        """Every address the browser asked for, in order, each once."""
        return list(self.referers)

    @property
    def last(self) -> Response:
        """The latest answer of the broker."""
        return self.visited[-1]

    async def open(self, url: str) -> None:
        """A link as it is clicked in a chat."""
        await self.page.goto(url)

    async def text(self) -> str:
        """What there is to read."""
        return await self.page.inner_text("body")

    async def press(self, name: str) -> None:
        """A button or link whose words contain `name`."""
        offered = self.page.get_by_role("button", name=name).or_(self.page.get_by_role("link", name=name))
        await offered.first.click()

    async def leave(self, link: str) -> None:
        """From the link in the chat to the provider's first page."""
        await self.open(link)
        await self.press("Continue to")
        await self.page.get_by_role("heading", name="Sign-in").or_(self._consent_page).wait_for()

    async def agree(self, link: str, login: str) -> None:
        """From the link in the chat to the broker's last page."""
        await self.leave(link)
        await self.sign_in(login)
        await self.consent()

    async def sign_in(self, login: str) -> None:
        """oidc-provider's own page. It takes any password: whether it checks one is not what we test."""
        await self.page.get_by_placeholder("Enter any login").fill(login)
        await self.page.get_by_placeholder("and password").fill("any password")
        await self.press("Sign-in")
        await self._consent_page.wait_for()

    async def type_code(self, address: str, user_code: str) -> None:
        """oidc-provider's own pages for a device: the code is typed, compared and confirmed."""
        await self.open(address)
        await self.page.get_by_placeholder("Enter code").fill(user_code)
        await self.press("Continue")
        await self.confirm_code(user_code)

    async def confirm_code(self, user_code: str) -> None:
        """The provider shows the code that it was given: it is the one that we were shown."""
        await self.page.get_by_text(user_code, exact=True).wait_for()
        await self.press("Continue")
        await self.page.get_by_role("heading", name="Sign-in").or_(self._consent_page).wait_for()

    async def agree_elsewhere(self, login: str) -> None:
        """Signs in and agrees on a page that leads nowhere: the provider says that it is done."""
        await self.sign_in(login)
        await self.press("Continue")
        await self.page.get_by_role("heading", name="Sign-in Success").wait_for()

    async def consent(self) -> None:
        """oidc-provider's own page, and the way back to the broker."""
        await self.press("Continue")
        await self.arrive()

    async def refuse(self) -> None:
        """The provider's cancel link, and the way back to the broker."""
        await self.press("Cancel")
        await self.arrive()

    async def arrive(self) -> None:
        """Waits for one of the broker's pages."""
        await self.page.wait_for_url(self.home + "/**")

    async def note_cookies(self) -> None:
        """What our own cookies hold may be found nowhere else."""
        for cookie in await self.context.cookies(self.home):
            self.canaries.add(cookie["value"], "cookie")

    def _on_request(self, request: Request) -> None:
        """Secrets on their way through the browser become canaries: they may lie in no log and no file."""
        address = urlsplit(request.url)
        self.referers[request.url] = request.headers.get("referer", "")
        for name in _SECRET_FIELDS:
            for value in parse_qs(address.query).get(name, []):
                self.canaries.add(value, name)
        if request.url.startswith(self.home) and address.path.startswith("/connect/"):
            self.canaries.add(address.path.rpartition("/")[2], "ticket")
        if self._is_ours(request.frame.url) and not request.is_navigation_request():
            self.shared_circuits.append(f"a page of ours asked for something: {request.resource_type}")

    def _on_response(self, response: Response) -> None:
        if self._is_ours(response.url):
            self.visited.append(response)

    def _on_console(self, message: ConsoleMessage) -> None:
        self.overheard.append(message.text)
        ours = self._is_ours(message.location.get("url", "")) or self.is_home
        if ours and not message.text.startswith(_REFUSED):
            self.shared_circuits.append(f"console {message.type}: {message.text}")

    def _is_ours(self, url: str) -> bool:
        return url.startswith(self.home + "/")
