"""What a person's browser may do: look at a request, take it to the provider, decline it, and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from oauthbroker.apps import LOGIN_NAME, BrokerLogin, Bundle, OAuthApp, Vouching
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code, Locale
from oauthbroker.flows.callback import Callback
from oauthbroker.flows.connect import Connect, Departure
from oauthbroker.flows.login import LoggedIn, Logins
from oauthbroker.flows.parking import Parking
from oauthbroker.protocol.callback import LOCATOR_LENGTH, parse_callback
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.records import AuthSession, Parked
from oauthbroker.results import DevicePrompt
from oauthbroker.secret import Secret
from oauthbroker.titles import agent_title, subject_title
from oauthbroker.tracing import Span, span

__all__ = ["AlreadyConnected", "Arrival", "Consent", "Departure", "Ending", "Invitation", "LoggedIn", "Step"]


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a person is told before agreeing. `login_endpoint`: where the broker's own login is, if that comes first.
    Titles are what the runtime calls agent and subject, where it says so. `locale`: the turn's, here and below."""

    app: OAuthApp
    agent_name: str
    subject: str
    scopes: tuple[str, ...]
    expires_at: datetime
    authorization_endpoint: str
    device: DevicePrompt | None = None
    login_endpoint: str = ""
    locale: Locale | None = None
    agent_title: str | None = None
    subject_title: str | None = None


class AlreadyConnected(BrokerError):
    """`stateUsed`, for a browser that is owed more: what it wanted to connect is connected. `app_name` for its page."""

    def __init__(self, app_name: str) -> None:
        super().__init__(Code.STATE_USED, note="already connected")
        self.app_name = app_name


@dataclass(frozen=True, slots=True)
class Ending:
    """How an authorization ended: connected, or not and why. `scopes` and `account` are those of the grant that it
    brought, as far as this browser may know them."""

    app: OAuthApp
    code: Code | None = None
    locale: Locale | None = None
    scopes: tuple[str, ...] | None = None
    account: str = ""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A browser came back with a code. `parked`: it is not redeemed before somebody has vouched for the browser."""

    locator: str
    parked: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What is left to do for a browser whose code is parked, or that has logged in: to go to `url`, or to be shown
    `code`. Neither: the code is being redeemed."""

    app: OAuthApp
    until: datetime
    kind: Vouching | None = None
    url: Secret | None = None
    code: Secret | None = None
    locale: Locale | None = None


def locator_of_link(ticket: str) -> str:
    """Return the locator of the session that a link's ticket names."""
    return ticket[:LOCATOR_LENGTH]


def locator_of_callback(query: bytes) -> str:
    """Return the locator of the session that a callback's state names. Raises `callbackMalformed`."""
    return parse_callback(query).locator


class Consent:
    """The door for `web`. Every method takes what a browser sent and raises errors that are fit to be shown."""

    def __init__(
        self,
        apps: Mapping[str, OAuthApp],
        connect: Connect,
        callback: Callback,
        logins: Logins,
        parking: Parking,
        discovery: Discovery,
        clock: Clock,
        bundle: Callable[[], Bundle],
    ) -> None:
        self._apps = apps
        self._connect = connect
        self._callback = callback
        self._logins = logins
        self._parking = parking
        self._discovery = discovery
        self._clock = clock
        self._bundle = bundle

    @property
    def apps(self) -> Mapping[str, OAuthApp]:
        return self._apps

    @property
    def login(self) -> BrokerLogin | None:
        """The broker's own login, where one is configured by now."""
        return self._bundle().login

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
        login = await self.login_endpoint() if app.owner.vouching == "brokerLogin" else ""
        return Invitation(
            app=app,
            agent_name=session.resume.agent_name,
            subject=session.subject,
            scopes=scopes,
            expires_at=session.expires_at,
            authorization_endpoint=place,
            device=prompt,
            login_endpoint=login,
            locale=session.resume.locale,
            agent_title=agent_title(session.resume),
            subject_title=subject_title(session.resume, app.subject_mode),
        )

    async def login_endpoint(self) -> str:
        """Where people log in for the broker itself; empty where they do not."""
        if self.login is None:
            return ""
        return (await self._discovery.endpoints(self.login.app)).authorization_url

    async def ending(self, ticket: str) -> Ending | None:
        """How it ended, for the page of a device code, whose person agrees elsewhere; None while it is open, and for
        other pages.

        Raises `stateUnknown`, also where the page's button would: pressed too often, or of another configuration.
        """
        session = await self._connect.shown(ticket)
        app = self._app(session.app)
        if session.device is None:
            if session.worn_out or session.config_digest != app.digest():
                raise BrokerError(Code.STATE_UNKNOWN, note="its button leads nowhere")
            return None
        over = session.claim is None and session.is_past(self._clock.now())
        if session.open and not over and session.config_digest == app.digest():
            return None
        return _ending(app, session)

    async def truth(self, locator: str, cookie: str | None) -> BrokerError | None:
        """Return what a browser with this session's cookie is told of a session that is over for it: that it is late,
        that the link was used, or that everything is connected. None while it is open, and for every other browser."""
        session = await self._connect.session_of(locator, cookie) if cookie is not None else None
        if session is None:
            return None
        if session.status == "completed":
            app = self._apps.get(session.app)
            return AlreadyConnected(app.display_name if app is not None else session.provider)
        is_late = session.claim is None and session.is_past(self._clock.now())
        if session.status == "expired" or (session.open and is_late):
            return BrokerError(Code.STATE_EXPIRED)
        return BrokerError(Code.STATE_USED) if session.status == "failed" or session.taken else None

    async def outcome(self, app_name: str, locator: str, cookie: str | None) -> Ending | None:
        """Return how the session of a browser that came from there ended; None for another app's and for an open one.
        A session whose grant is stored has ended well, also while its own record still says that it is open. The
        account is told to the browser that was at the provider: others may look at a page that only shows a code."""
        session, app = await self._connect.outcome_of(locator), self._apps.get(app_name)
        if session is None or app is None or session.app != app.name:
            return None
        ending = _ending(app, session)
        grant = await self._connect.grant_of(session) if session.open or ending.code is None else None
        if grant is None:
            return None if session.open else ending
        ending = replace(ending, code=None)
        account = grant.authorized_by or (grant.account[1] if grant.account is not None else "")
        is_own = cookie is not None and await self._connect.session_of(locator, cookie) is not None
        return replace(ending, scopes=grant.scopes, account=account if is_own else "")

    async def depart(self, ticket: str) -> Departure:
        """Sends this browser off to the provider, or to the broker's own login before that. Raises `stateUnknown`;
        `appMisconfigured` where there would be no way on after it has come back."""
        session = (await self._connect.look(ticket)).record
        app = self._app(session.app)
        if app.owner.vouching == "runtimeConfirm":
            self._runtime_page(app)
        if app.owner.vouching == "brokerLogin":
            return await self._connect.start(app, ticket, self._login_of(app))
        return await self._connect.start(app, ticket)

    async def decline(self, ticket: str) -> OAuthApp:
        """The person said no. Raises `stateUnknown`."""
        session = await self._connect.decline(ticket)
        return self._app(session.app)

    async def arrive(self, app: OAuthApp, query: bytes, cookie_of: Callable[[str], str | None]) -> Arrival:
        """The provider sent the browser back to `app`'s path; the session that was completed, or whose code waits.

        Raises the codes of cases 1 to 45 (tests/CASES.md).
        """
        with span(Span.CALLBACK, app=app.name):
            session = await self._callback.receive(app, query, cookie_of)
        return Arrival(session.locator, session.parked is not None)

    async def log_in(self, query: bytes, cookie_of: Callable[[str], str | None]) -> LoggedIn:
        """The broker's own login sent the browser back; it is the right person, and goes on by `next_step`.

        Raises `subjectMismatch` for anybody else, and what `Logins.receive` raises.
        """
        with span(Span.CALLBACK, app=LOGIN_NAME):
            return await self._logins.receive(query, cookie_of)

    async def next_step(self, locator: str, cookie: str | None) -> Step | Ending:
        """What a browser does that has brought a code back, or has logged in. Changes nothing. Raises `stateUnknown`,
        also for a browser that is another one."""
        session = await self._parking.look(locator, cookie)
        app = self._app(session.app)
        if not session.open:
            return _ending(app, session)
        if session.parked is None:
            way_on = session.login.way_on if session.login is not None else None
            kind: Vouching | None = "brokerLogin" if way_on is not None else None
            return Step(app, session.expires_at, kind, url=way_on, locale=session.resume.locale)
        return replace(self._step(app, session.parked), locale=session.resume.locale)

    def _step(self, app: OAuthApp, parked: Parked) -> Step:
        if parked.kind == "channelCode":
            return Step(app, parked.until, parked.kind, code=parked.proof)
        page = self._runtime_page(app)
        url = f"{page}{'&' if '?' in page else '?'}handle={parked.proof.reveal()}"
        return Step(app, parked.until, parked.kind, url=Secret(url))

    def _runtime_page(self, app: OAuthApp) -> str:
        """Where the configuration says that people are logged in. Nothing that comes in names a page."""
        page = app.owner.confirm_url or self._bundle().settings.confirm_url
        if not page:
            raise BrokerError(Code.APP_MISCONFIGURED, note="runtimeConfirm without a confirmUrl")
        return page

    def _login_of(self, app: OAuthApp) -> BrokerLogin:
        """It knows people, so it says nothing about a subject that is a team."""
        if self.login is None or app.subject_mode == "global":
            raise BrokerError(Code.APP_MISCONFIGURED, note="no login of the broker's own that could tell the subject")
        return self.login

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


def _ending(app: OAuthApp, session: AuthSession) -> Ending:
    code = None if session.status == "completed" else session.failure or Code.STATE_EXPIRED
    return Ending(app, code, session.resume.locale)
