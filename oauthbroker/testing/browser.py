"""A user's browser without scripts, over HTTP: cookies, forms, Origin and Sec-Fetch headers.

It follows no redirect by itself. Use two of them for the two people of an attack. `story.connect_through` runs a whole
connect flow.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urljoin, urlsplit

import httpx2

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.testing.canary import Canaries, off_the_record
from oauthbroker.testing.cookies import Cookie, CookieJar, same_site
from oauthbroker.testing.html import Document, Form, parse

Fields = Mapping[str, str | Sequence[str]] | Sequence[tuple[str, str]]
AsgiApp = Callable[..., Any]

_STOPOVER = ("/login/callback", "/admin/sign-in")
_ANOTHER_TRY = re.compile(r"/next/as-[^/]+/again$")
_LONG = 16  # shorter cookies and path parts are names, not secrets
_ONE_REQUEST = httpx2.Limits(max_keepalive_connections=0)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One answer in the browser."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    method: str = "GET"

    def header(self, name: str) -> str:
        """Return the first header of that name (any case), or an empty text."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def location(self) -> str | None:
        """Return the target of a redirect as an absolute URL; None for other answers."""
        target = self.header("location")
        return urljoin(self.url, target) if target and 300 <= self.status < 400 else None

    @property
    def source(self) -> str:
        """Return the body as text."""
        return self.body.decode("utf-8", "replace")

    @cached_property
    def document(self) -> Document:
        """Return the parsed HTML."""
        return parse(self.source)

    @property
    def text(self) -> str:
        """Return the visible text."""
        return self.document.text

    @property
    def next_url(self) -> str | None:
        """Return the target of the redirect, else of the meta refresh; None without either."""
        if self.location:
            return self.location
        return urljoin(self.url, self.document.refresh) if self.document.refresh else None

    def form(self, *names: str) -> Form:
        """Return the first form that has all these field names. Raises LookupError."""
        for form in self.document.forms:
            if set(names) <= form.names:
                return form
        raise LookupError(f"no form with {names or 'any field'} on the page (status {self.status}): {self.text[:200]}")


class Browser:
    """One browser profile. It keeps no connection open, so it need not be closed.

    `apps` maps origins ("https://broker.test") to ASGI applications; every other URL goes over the network. `history`
    holds every page in order. Tickets of `/connect/...` and received cookies become canaries, and every answer is swept
    (`_note` says where each may appear). `trust` is a PEM file of one more authority.
    """

    def __init__(
        self,
        apps: Mapping[str, AsgiApp] | None = None,
        *,
        language: str = "en",
        timeout: float = 30.0,
        canaries: Canaries | None = None,
        trust: Path | None = None,
    ) -> None:
        self.cookies = CookieJar()
        self.history: list[Page] = []
        self.language = language
        self.canaries = canaries if canaries is not None else Canaries.active()
        self._apps: dict[str, httpx2.ASGITransport] = {}
        self._came_back: set[str] = set()
        self._timeout = timeout
        self._trust = trust
        for origin, app in (apps or {}).items():
            self.serve(origin, app)

    def serve(self, origin: str, app: AsgiApp) -> None:
        """Let an ASGI application answer for an origin: `browser.serve("https://broker.test", broker.asgi.app)`."""
        self._apps[origin] = httpx2.ASGITransport(app=_on_the_record(app))

    @property
    def page(self) -> Page:
        """Return the page that is open. Raises LookupError if there is none."""
        if not self.history:
            raise LookupError("no page is open")
        return self.history[-1]

    async def open(self, url: str, *, headers: Mapping[str, str] | None = None, method: str = "GET") -> Page:
        """Go to a URL as if it had been typed, or clicked in a chat: no initiator, no Referer."""
        return await self._go(method, url, initiator=None, extra=headers)

    async def follow(self, url: str | None = None, *, headers: Mapping[str, str] | None = None) -> Page:
        """Follow the open page's redirect or meta refresh (or a link on it), one step."""
        target = url if url is not None else self.page.next_url
        if target is None:
            raise LookupError(f"the page leads nowhere (status {self.page.status}): {self.page.text[:200]}")
        return await self._go("GET", urljoin(self.page.url, target), initiator=self.page, extra=headers)

    async def submit(
        self, fields: Fields | None = None, *, form: Form | None = None, headers: Mapping[str, str] | None = None
    ) -> Page:
        """Send a form of the open page (the first that knows the names in `fields`).

        Hidden fields go along; a mapping replaces fields by name, a list of pairs is sent exactly as it is.
        A form without `fields` is sent as by its first button.
        """
        if isinstance(fields, Mapping) or fields is None:
            form = form or self.page.form(*(fields or {}))
            pairs = _filled(form, fields)
        else:
            form, pairs = form or self.page.form(), list(fields)
        target = urljoin(self.page.url, form.action) if form.action else self.page.url
        if form.method == "get":
            return await self._go(
                "GET", f"{target.partition('?')[0]}?{urlencode(pairs)}", initiator=self.page, extra=headers
            )
        return await self.post(target, pairs, initiator=self.page, headers=headers)

    async def post(
        self,
        url: str,
        pairs: Sequence[tuple[str, str]],
        *,
        initiator: Page | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """Send a form by POST to any URL; `initiator` is the page it comes from (None: a page of nowhere,
        cross-site)."""
        return await self._go("POST", url, initiator=initiator, extra=headers, body=urlencode(pairs).encode())

    async def _go(
        self,
        method: str,
        url: str,
        *,
        initiator: Page | None,
        extra: Mapping[str, str] | None,
        body: bytes | None = None,
    ) -> Page:
        address = urlsplit(url)
        self._meet(address)
        site = _site_of(initiator, address, is_post=body is not None)
        headers = self._headers(initiator, site, is_post=body is not None)
        navigates = method in {"GET", "HEAD"}
        sent = self.cookies.header(address, cross_site=site == "cross-site", navigation=navigates)
        if sent:
            headers["cookie"] = sent
        headers.update({name.lower(): value for name, value in (extra or {}).items()})
        page = await self._send(method, url, headers, body)
        given = [value for name, value in page.headers if name.lower() == "set-cookie"]
        taken = [self.cookies.take(value, address) for value in given]
        self.history.append(page)
        self._note(page, address, [cookie for cookie in taken if cookie is not None])
        return page

    def _headers(self, initiator: Page | None, site: str, *, is_post: bool) -> dict[str, str]:
        headers = {
            "accept": "text/html,application/xhtml+xml,*/*;q=0.8",
            "accept-language": self.language,
            "user-agent": "Mozilla/5.0 (compatible; oauthbroker.testing.Browser)",
            "sec-fetch-site": site,
            "sec-fetch-mode": "navigate",
            "sec-fetch-dest": "document",
            "sec-fetch-user": "?1",
        }
        if is_post:
            headers["content-type"] = "application/x-www-form-urlencoded"
            hides = initiator is None or initiator.header("referrer-policy").strip().lower() == "no-referrer"
            headers["origin"] = "null" if initiator is None or hides else _origin(urlsplit(initiator.url))
        return headers

    async def _send(self, method: str, url: str, headers: dict[str, str], body: bytes | None) -> Page:
        limits = dict.fromkeys(("connect", "read", "write", "pool"), self._timeout)
        request = httpx2.Request(method, url, headers=headers, content=body, extensions={"timeout": limits})
        app = self._apps.get(_origin(urlsplit(url)))
        transport = app or httpx2.AsyncHTTPTransport(trust_env=False, verify=_tls(self._trust), limits=_ONE_REQUEST)
        with off_the_record():
            async with transport:
                answer = await transport.handle_async_request(request)
                try:
                    content = await answer.aread()
                finally:
                    await answer.aclose()
        pairs = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers.raw)
        return Page(url=url, status=answer.status_code, headers=pairs, body=content, method=method)

    def _meet(self, address: SplitResult) -> None:
        """Register secrets of a URL. A long last part right after `/connect/` is a ticket and begins a flow; a callback
        ends it. The callback of the broker's own login, or the button for another try, begins the next one."""
        parts = address.path.split("/")
        if parts[-2:-1] == ["connect"] and len(parts[-1]) >= _LONG:
            self.canaries.add(parts[-1], "ticket")
            self._came_back.discard(_origin(address))
        elif address.path.endswith(_STOPOVER) or _ANOTHER_TRY.search(address.path):
            self._came_back.discard(_origin(address))
        elif {"code", "state", "error"} & {name for name, _ in parse_qsl(address.query)}:
            self._came_back.add(_origin(address))

    def _note(self, page: Page, address: SplitResult, cookies: list[Cookie]) -> None:
        """Sweep an answer. On the way to the provider, pages carry ticket, state and nonce; after the callback none
        may remain. A cookie's value may appear in Set-Cookie only."""
        for cookie in cookies:
            if len(cookie.value) >= _LONG:
                self.canaries.add(cookie.value, "cookie")
        allowed = () if _origin(address) in self._came_back else ("ticket", "state", "nonce")
        where = f"answer {len(self.history)} of a browser ({page.method}, {page.status})"
        headers = "\n".join(f"{name}: {value}" for name, value in page.headers)
        self.canaries.look(headers, f"headers of {where}", allow=(*allowed, "cookie"), origin=_origin(address))
        self.canaries.look(page.body, where, allow=allowed, origin=_origin(address))


def _filled(form: Form, fields: Fields | None) -> list[tuple[str, str]]:
    if not isinstance(fields, Mapping):
        return form.fields + ([form.buttons[0]] if form.buttons and form.buttons[0][0] else [])
    kept = [(name, value) for name, value in form.fields if name not in fields]
    for name, value in fields.items():
        kept += [(name, one) for one in ([value] if isinstance(value, str) else value)]
    return kept


def _origin(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def _site_of(initiator: Page | None, address: SplitResult, *, is_post: bool) -> str:
    """Return `Sec-Fetch-Site` of a request."""
    if initiator is None:
        return "cross-site" if is_post else "none"
    source = urlsplit(initiator.url)
    if not same_site(source, address):
        return "cross-site"
    return "same-origin" if _origin(source) == _origin(address) else "same-site"


def _on_the_record(app: AsgiApp) -> AsgiApp:
    """Sweep the application's own requests, also those that a browser's request starts."""

    async def run(scope: Any, receive: Any, send: Any) -> None:
        with off_the_record(off=False):
            await app(scope, receive, send)

    return run


@cache
def _tls(trust: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()  # reading the trust store takes longer than a request
    if trust is not None:
        context.load_verify_locations(cafile=trust)
    return context
