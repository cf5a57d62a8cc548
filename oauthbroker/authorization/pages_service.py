"""Serve the broker's pages: show a request, send the browser to the provider, decline, and handle the way back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from oauthbroker.authorization.broker_login import LoggedIn, Logins
from oauthbroker.authorization.callback import Callback, CookieJar
from oauthbroker.authorization.choices import Choices
from oauthbroker.authorization.connect import Connect, Departure
from oauthbroker.authorization.credential_entry import CredentialEntry
from oauthbroker.authorization.mcp_clients import McpClients
from oauthbroker.authorization.page_results import AlreadyConnected, AuthorizationEnd, CallbackArrival, Invitation, Step
from oauthbroker.authorization.pending_codes import PendingCodes
from oauthbroker.authorization.proven_user import proves_user
from oauthbroker.authorization.second_grant import second_of
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, OwnerConfirmation
from oauthbroker.model.broker_login import LOGIN_NAME, BrokerLogin
from oauthbroker.model.connect_links import OtherConfigError
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.local_turn import Asker, asker_of
from oauthbroker.model.turn_titles import agent_title, subject_title
from oauthbroker.observability.tracing import Span, span
from oauthbroker.protocol.callback_checks import LOCATOR_LENGTH, parse_callback
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.records import AuthSession, PendingCode

NOTHING: Final[Mapping[str, str]] = {}


def locator_of_link(ticket: str) -> str:
    """Return the locator of the session that a link's ticket names."""
    return ticket[:LOCATOR_LENGTH]


def locator_of_callback(query: bytes, code_param: str = "code") -> str:
    """Return the locator of the session that a callback's state names. Raises `callbackMalformed`."""
    return parse_callback(query, code_param).locator


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesService:
    """The interface for `web`. Each method takes a browser's input and raises errors that may be shown to the user."""

    apps: Mapping[str, App]
    connect: Connect
    choices: Choices
    callback: Callback
    logins: Logins
    pending_codes: PendingCodes
    credential_entry: CredentialEntry
    mcp_clients: McpClients
    discovery: Discovery
    clock: Clock
    config: CurrentConfig

    @property
    def login(self) -> BrokerLogin | None:
        """Return the broker's own login, if one is configured."""
        return self.config.bundle.login

    async def invitation(self, ticket: str, cookie: str | None = None) -> Invitation:
        """Return who asks for which scopes. Changes nothing. `cookie` ties this browser to the session: with a broker
        login the fields of a credential are for the browser that has logged in alone. Raises `stateUnknown` unless the
        request is open."""
        session = await self.connect.shown(ticket)
        app = (await self._app(session.app)).at(session.params)
        prompt = session.device.prompt if session.device is not None else None
        if prompt is not None:
            place = prompt.verification_uri
        elif not app.is_at_a_connection:
            place = ""
        else:
            place = (await self.discovery.endpoints(app)).authorization_url
        scopes = await self.connect.scopes_now(app, session)
        login = await self.login_endpoint() if app.owner.confirmation == "brokerLogin" else ""
        fields = app.credential.fields if app.credential is not None else ()
        if fields and self.credential_entry.knows_who(app, session, cookie):
            login = ""
        elif login:
            fields = ()
        also = second_of(app, session)
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
            account=session.account,
            label=session.label,
            params=session.params,
            to_type=app.connect_params if session.typed else (),
            fields=fields,
            scopes_for_user=also[0].scopes if also is not None else (),
        )

    async def login_endpoint(self) -> str:
        """Return the authorization endpoint of the broker's own login; empty without one."""
        if self.login is None:
            return ""
        return (await self.discovery.endpoints(self.login.app)).authorization_url

    async def ending(self, ticket: str) -> AuthorizationEnd | None:
        """Return how the authorization ended, for the page of a device code, whose user consents elsewhere. None while
        it is open, and for other pages.

        Raises `stateUnknown`, also for a session that was started too often or whose app was reconfigured.
        """
        session = await self.connect.shown(ticket)
        app = await self._app(session.app)
        if session.device is None:
            if session.config_digest != app.config_digest:
                raise OtherConfigError
            if session.worn_out:
                raise BrokerError(Code.STATE_UNKNOWN, note="its button leads nowhere")
            return None
        over = session.claim is None and session.is_past(self.clock.now())
        if session.open and not over and session.config_digest == app.config_digest:
            return None
        return _ending(app, session)

    async def truth(self, locator: str, cookie: str | None) -> BrokerError | None:
        """Return the error to show to a browser with this session's cookie: expired, link used, or already connected.
        None while the session is open, and for every other browser."""
        session = await self.connect.session_of(locator, cookie) if cookie is not None else None
        if session is None:
            return None
        if session.status == "completed":
            app = self.apps.get(session.app)
            name = app.display_name if app is not None else session.provider
            return AlreadyConnected(name, _asker(app, session) if app is not None else "agent")
        is_late = session.claim is None and session.is_past(self.clock.now())
        if session.status == "expired" or (session.open and is_late):
            return BrokerError(Code.STATE_EXPIRED)
        return BrokerError(Code.STATE_USED) if session.status == "failed" or session.taken else None

    async def outcome(self, app_name: str, locator: str, cookie: str | None) -> AuthorizationEnd | None:
        """Return how a browser's session ended. None for another app's session and for an open one.
        A session whose grant is stored counts as completed, even before its own record says so. Only the browser that
        was at the provider sees the account: others may view a page that just shows a code.
        """
        session, app = await self.connect.outcome_of(locator), self.apps.get(app_name)
        if session is None or app is None or session.app != app.name:
            return None
        ending = _ending(app, session)
        grant = await self.connect.grant_of(session) if session.open or ending.code is None else None
        if grant is None:
            return None if session.open else ending
        is_partly = not grant.declined.keys().isdisjoint(session.scopes)
        ending = replace(ending, code=None, scopes=grant.scopes, is_partly=is_partly, locator=locator)
        if cookie is None or await self.connect.session_of(locator, cookie) is None:
            return ending
        is_team = app.subject_mode == "global" and grant.account_name
        return replace(
            ending,
            account=grant.subject if is_team else grant.identity or "",
            account_name=grant.account_name,
            chosen=grant.chosen,
            candidates=grant.open_facts.candidates if grant.open_facts is not None else (),
            user=session.subject if proves_user(app.at(session.params), session) else "",
        )

    async def choose(self, locator: str, cookie: str | None, number: int) -> App:
        """Keep the choice of the browser that was at the provider, and return the app. Raises `stateUnknown` for other
        browsers, and `requestInvalid` for a number without a candidate."""
        session = await self.connect.session_of(locator, cookie) if cookie is not None else None
        if session is None or session.status != "completed":
            raise BrokerError(Code.STATE_UNKNOWN)
        await self.choices.choose(session, number)
        return await self._app(session.app)

    async def depart(self, ticket: str, params: Mapping[str, str] = NOTHING, label: str = "") -> Departure:
        """Send this browser to the provider, or to the broker's own login first, with what its user typed. Raises
        `stateUnknown`; `appMisconfigured` if the browser could not go on after coming back."""
        session = (await self.connect.session_of_ticket(ticket)).record
        app = (await self._app(session.app)).at(params if session.typed else session.params)
        if app.owner.confirmation == "runtimeConfirm":
            _runtime_page(app)
        if app.owner.confirmation == "brokerLogin":
            return await self.connect.start(app, ticket, self._login_of(app), label=label)
        return await self.connect.start(app, ticket, label=label)

    async def enter(
        self, ticket: str, params: Mapping[str, str], label: str, said: Mapping[str, str], cookie: str | None
    ) -> Departure:
        """Store the credential that this browser's user has typed. Return where the browser goes then. Raises as
        `CredentialEntry.store`."""
        session = (await self.connect.session_of_ticket(ticket)).record
        app = (await self._app(session.app)).at(params if session.typed else session.params)
        session, made = await self.credential_entry.store(app, ticket, said, label, cookie)
        return Departure(Secret(f"/connected/{app.name}"), made, session)

    async def decline(self, ticket: str) -> App:
        """Record that the user declined. Return the app. Raises `stateUnknown`."""
        session = await self.connect.decline(ticket)
        return await self._app(session.app)

    async def arrive(
        self, app: App, query: bytes, cookie_of: CookieJar, place: Mapping[str, str] = NOTHING
    ) -> CallbackArrival:
        """Handle the provider's redirect to `app`'s path, with the parameters that stand in that. Return the session
        that was completed, or whose code is pending.

        Raises the codes of cases 1 to 45 (tests/CASES.md).
        """
        await self.mcp_clients.sync()
        app = self.apps.get(app.name, app)
        try:
            with span(Span.CALLBACK, app=app.name):
                session = await self.callback.receive(app, query, cookie_of, place)
        except BrokerError as error:
            if error.code is Code.APP_MISCONFIGURED:  # perhaps the server has forgotten the client
                await self.mcp_clients.recheck(app.name, until=self.now())
            raise
        return CallbackArrival(session.locator, session.pending_code is not None)

    async def log_in(self, query: bytes, cookie_of: CookieJar) -> LoggedIn:
        """Handle the redirect of the broker's own login. Return the session of the expected user, whose browser goes on
        with `next_step`.

        Raises `subjectMismatch` for another user, and the errors of `Logins.receive`.
        """
        await self.mcp_clients.sync()
        with span(Span.CALLBACK, app=LOGIN_NAME):
            return await self.logins.receive(query, cookie_of)

    async def next_step(self, locator: str, cookie: str | None) -> Step | AuthorizationEnd:
        """Return the next step of a browser that has brought back a code or has logged in. Changes nothing. Raises
        `stateUnknown`, also for another browser."""
        session = await self.pending_codes.session_of_browser(locator, cookie)
        app = await self._app(session.app)
        if not session.open:
            return _ending(app, session)
        if session.pending_code is None:
            way_on = session.login.way_on if session.login is not None else None
            kind: OwnerConfirmation | None = "brokerLogin" if way_on is not None else None
            return Step(app=app, until=session.expires_at, kind=kind, url=way_on, locale=session.resume.locale)
        return replace(self._step(app, session.pending_code), locale=session.resume.locale)

    def client_document(self, app_name: str) -> dict[str, Any] | None:
        """Return the document of an app's client at MCP servers. None for an app without one."""
        app = self.apps.get(app_name)
        return None if app is None else self.mcp_clients.document(app)

    def _step(self, app: App, pending_code: PendingCode) -> Step:
        if pending_code.kind == "channelCode":
            return Step(app=app, until=pending_code.until, kind=pending_code.kind, code=pending_code.proof)
        page = _runtime_page(app)
        url = f"{page}{'&' if '?' in page else '?'}handle={pending_code.proof.reveal()}"
        return Step(app=app, until=pending_code.until, kind=pending_code.kind, url=Secret(url))

    def _login_of(self, app: App) -> BrokerLogin:
        """Return the broker's own login. It identifies persons, so it cannot confirm a team's subject."""
        if self.login is None or app.subject_mode == "global":
            raise BrokerError(Code.APP_MISCONFIGURED, note="no login of the broker's own that could tell the subject")
        return self.login

    def seconds_left(self, until: datetime) -> int:
        """Return the seconds for a cookie's Max-Age."""
        return max(0, int((until - self.clock.now()).total_seconds()))

    def now(self) -> datetime:
        return self.clock.now()

    async def _app(self, name: str) -> App:
        await self.mcp_clients.sync()
        app = self.apps.get(name)
        if app is None:
            raise OtherConfigError
        return app


def _ending(app: App, session: AuthSession) -> AuthorizationEnd:
    code = None if session.status == "completed" else session.failure or Code.STATE_EXPIRED
    return AuthorizationEnd(app=app, code=code, locale=session.resume.locale, asker=_asker(app, session))


def _asker(app: App, session: AuthSession) -> Asker:
    return asker_of(app, session.resume.agent_name, session.subject)


def _runtime_page(app: App) -> str:
    """Return the runtime's page that confirms users, from the configuration only. No request can name a page."""
    if not app.owner.confirm_url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="runtimeConfirm without a confirmUrl")
    return app.owner.confirm_url
