"""What a person's browser may do: look at a request, take it to the provider, decline it, and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.callback import Callback
from oauthbroker.flows.connect import Connect, Departure
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.results import DevicePrompt
from oauthbroker.tracing import Span, span

__all__ = ["Consent", "Departure", "Ending", "Invitation"]


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a person is told before agreeing."""

    app: OAuthApp
    agent_name: str
    subject: str
    scopes: tuple[str, ...]
    expires_at: datetime
    authorization_endpoint: str
    device: DevicePrompt | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an authorization ended: connected, or not and why."""

    app: OAuthApp
    code: Code | None = None


class Consent:
    """The door for `web`. Every method takes what a browser sent and raises errors that are fit to be shown."""

    def __init__(
        self,
        apps: Mapping[str, OAuthApp],
        connect: Connect,
        callback: Callback,
        discovery: Discovery,
        clock: Clock,
    ) -> None:
        self._apps = apps
        self._connect = connect
        self._callback = callback
        self._discovery = discovery
        self._clock = clock

    @property
    def apps(self) -> Mapping[str, OAuthApp]:
        return self._apps

    async def invitation(self, ticket: str) -> Invitation:
        """Who asks for what; changes nothing. Raises `stateUnknown` for whatever is not an open request."""
        session = await self._connect.shown(ticket)
        app = self._app(session.app)
        prompt = session.device.prompt if session.device is not None else None
        if prompt is not None:
            place = prompt.verification_uri
        else:
            place = (await self._discovery.endpoints(app)).authorization_url
        scopes = await self._connect.scopes_now(app, session)
        return Invitation(app, session.resume.agent_name, session.subject, scopes, session.expires_at, place, prompt)

    async def ending(self, ticket: str) -> Ending | None:
        """How it ended, for the page of a device code, whose person agrees elsewhere; None while it is open, and for
        other pages.

        Raises `stateUnknown`.
        """
        session = await self._connect.shown(ticket)
        if session.device is None:
            return None
        app = self._app(session.app)
        over = session.claim is None and session.expires_at <= self._clock.now()
        if session.open and not over and session.config_digest == app.digest():
            return None
        if session.status == "completed":
            return Ending(app)
        return Ending(app, session.failure or Code.STATE_EXPIRED)

    async def depart(self, ticket: str) -> Departure:
        """Sends this browser off to the provider. Raises `stateUnknown`."""
        session = (await self._connect.look(ticket)).record
        return await self._connect.start(self._app(session.app), ticket)

    async def decline(self, ticket: str) -> OAuthApp:
        """The person said no. Raises `stateUnknown`."""
        session = await self._connect.decline(ticket)
        return self._app(session.app)

    async def arrive(self, app: OAuthApp, query: bytes, cookie_of: Callable[[str], str | None]) -> str:
        """The provider sent the browser back to `app`'s path; the locator of the session that was completed.

        Raises the codes of cases 1 to 45 (tests/CASES.md).
        """
        with span(Span.CALLBACK, app=app.name):
            return (await self._callback.receive(app, query, cookie_of)).locator

    def seconds_left(self, until: datetime) -> int:
        """For a cookie's Max-Age."""
        return max(0, int((until - self._clock.now()).total_seconds()))

    def now(self) -> datetime:
        return self._clock.now()

    def _app(self, name: str) -> OAuthApp:
        app = self._apps.get(name)
        if app is None:
            raise BrokerError(Code.STATE_UNKNOWN, note="the app is not configured any more")
        return app
