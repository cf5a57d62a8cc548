"""Serve the pages and the API of an embedded broker beside its host program, in the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oauthbroker.broker import Broker
from oauthbroker.config.checks.broker import is_local
from oauthbroker.core.errors import ConfigCauseError
from oauthbroker.core.refused import Refused
from oauthbroker.model.provider_networks import is_loopback
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.serving.listeners import Listeners, open_listeners
from oauthbroker.serving.server import broker_served
from oauthbroker.web.gate.public_path import public_path
from oauthbroker.web.gate.request_limits import API, is_ours, own_hosts
from oauthbroker.web.middleware.exchange import only_value

LAST_PAGE_SECONDS: Final = 3.0  # for a browser to load the page that it was just redirected to
MOST_COMING: Final = 1000  # redirects that are remembered: strangers cause some
_REDIRECTS: Final = range(300, 400)
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (to tell them from an address)


@asynccontextmanager
async def served_beside(broker: Broker, log: Log, host: str | None, port: int | None) -> AsyncIterator[str]:
    """Serve the broker on the listeners of its settings for the block, with `host` and `port` in place of those of
    `listen`. Yield the address of the pages. Raises `configInvalid`, whose note says what cannot be listened on."""
    with ExitStack() as stack:
        listeners = _open(stack, broker.bundle.settings, host, port)
        app = EmbeddedApp(broker, listeners)
        async with broker_served(broker, listeners, log, pages=app):
            yield app.address
            await app.settle()


def _open(stack: ExitStack, settings: Settings, host: str | None, port: int | None) -> Listeners:
    """Open the listeners for as long as the stack. A host away from loopback needs a public address, as in `serve`."""
    wanted_host = settings.listen_host if host is None else host
    wanted_port = settings.listen_port if port is None else port
    setting = "spec.listen" if host is None and port is None else "the host or the port of `serving`"
    if is_local(settings) and not is_loopback(wanted_host.strip("[]")):
        refused = (
            f"Cannot listen on {wanted_host}: publicBaseUrl is {settings.public_base_url}, which only browsers on this "
            "machine reach. Set spec.publicBaseUrl to the https address of the broker, or listen on 127.0.0.1."
        )
    else:
        try:
            wanted = replace(settings, listen_host=wanted_host, listen_port=wanted_port)
            return stack.enter_context(open_listeners(wanted, setting))
        except Refused as error:
            refused = str(error)
    raise ConfigCauseError(refused)


class EmbeddedApp:
    """The application of an embedded listener. It also answers for the listener's own address, which callers on this
    machine use, and knows whether a browser still loads a page."""

    def __init__(self, broker: Broker, listeners: Listeners) -> None:
        settings, web = broker.bundle.settings, broker.asgi
        self._app: ASGIApp = web.pages if settings.api_apart else web.app
        self.state = getattr(self._app, "state", None)  # with the warm calls of the API
        host, port = listeners.pages[0].getsockname()[:2]
        host = _WILDCARDS.get(host, host)
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        public = urlsplit(settings.public_base_url)
        self._own_hosts, self._public = own_hosts(host, port), public.netloc
        self._prefix = public_path(settings.public_base_url)
        self._loading, self._coming = 0, set[str]()
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if is_ours(only_value(scope["headers"], b"host"), self._own_hosts):
            named = (b"host", self._public.encode("ascii", "ignore"))
            scope["headers"] = [named if name == b"host" else (name, value) for name, value in scope["headers"]]
        if self._below(scope["path"]).startswith(API):
            return await self._app(scope, receive, send)
        return await self._load(scope, receive, send)

    async def settle(self) -> None:
        """Wait until no browser loads a page, or was sent to another of our pages: the one that says how a consent
        ended comes after its callback."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_PAGE_SECONDS):
                await self._quiet.wait()

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _REDIRECTS:
                self._note_redirect(dict(message["headers"]).get(b"location", b"").decode("latin-1"))
            await send(message)

        self._coming.discard(self._below(scope["path"]))
        self._loading += 1
        self._quiet.clear()
        try:
            await self._app(scope, receive, note)
        finally:
            self._loading -= 1
            if not self._loading and not self._coming:
                self._quiet.set()

    def _note_redirect(self, location: str) -> None:
        to = urlsplit(location)
        if to.netloc in {"", self._public} and len(self._coming) < MOST_COMING:
            self._coming.add(self._below(to.path))

    def _below(self, path: str) -> str:
        """Return a path without that of `publicBaseUrl`."""
        return path.removeprefix(self._prefix)
