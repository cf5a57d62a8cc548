"""Offer another attempt to the browser whose authorization failed: with another account, or with another code.

The same wish of the same agent is opened again. Only the browser that made the attempt may retry, a few times at most,
and never for a request that was withdrawn, declined or outdated.
"""

from __future__ import annotations

from collections.abc import Mapping

from oauthbroker.authorization.connect import Connect
from oauthbroker.authorization.session_opening import Opening, Wish
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.model.apps import App
from oauthbroker.records import AuthSession
from oauthbroker.records.auth_session import OTHER_ACCOUNT

MOST_TRIES = 3  # each costs the provider an exchange, and lets a stranger with a link log in once more


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a browser may try again, and the code it failed with. `expected` is the account it needs, empty unless the
    user has proved to be the subject. `at_login`: the wrong account came to the broker's own login, and the same link
    is still valid."""

    app: App
    code: Code
    expected: str = ""
    locale: Locale | None = None
    at_login: bool = False

    @property
    def is_of_code(self) -> bool:
        """Return whether a channel code was not sent in time, rather than a wrong account chosen."""
        return self.code not in OTHER_ACCOUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryService:
    """The interface for `web`. `cookie` is the session's cookie as the browser sends it."""

    apps: Mapping[str, App]
    connect: Connect
    opening: Opening
    clock: Clock

    async def offer(self, locator: str, cookie: str | None) -> Offer | None:
        """Return what this browser may try again. None for every other browser, and if a retry cannot help."""
        session = await self.connect.session_of(locator, cookie) if cookie is not None else None
        app = self.apps.get(session.app) if session is not None else None
        code = self._why(app, session) if session is not None and app is not None else None
        if session is None or app is None or code is None:
            return None
        knows_who = app.owner.confirmation == "brokerLogin" and not session.open and code is Code.SUBJECT_MISMATCH
        at_login = session.open and code in OTHER_ACCOUNT
        return Offer(
            app=app,
            code=code,
            expected=session.subject if knows_who else "",
            locale=session.resume.locale,
            at_login=at_login,
        )

    async def retry_session(self, locator: str, cookie: str | None) -> str:
        """Return the ticket of the link for the retry. Raises `stateUnknown` if none is offered, `rateLimited`, and the
        errors of opening a session."""
        offer = await self.offer(locator, cookie)
        session = await self.connect.session_of(locator, cookie or "")
        if offer is None or session is None:
            raise BrokerError(Code.STATE_UNKNOWN)
        if not (session.open and session.ticket is not None and session.pending_code is None):
            wish = Wish(
                key=session.key,
                scopes=session.scopes,
                resume=session.resume,
                reason=session.reason,
                switch_account=session.switch_account,
                params=session.params,
                tries=session.tries + 1,
                claims=session.claims,
            )
            opened = await self.opening.open_session(offer.app, wish, lambda _: True)
            session = opened or session
        if session.ticket is None:
            raise BrokerError(Code.STATE_UNKNOWN)
        return session.ticket.reveal()

    def _why(self, app: App, session: AuthSession) -> Code | None:
        """Return the code the session failed with, if a retry may help."""
        if session.tries >= MOST_TRIES or session.device is not None or session.config_digest != app.config_digest:
            return None
        if session.open:
            return self._why_not_yet(session)
        if session.failure in OTHER_ACCOUNT:
            return session.failure
        is_over = app.owner.confirmation == "channelCode" and session.had_pending_code and session.status == "failed"
        return Code.OWNER_BINDING_FAILED if is_over else None

    def _why_not_yet(self, session: AuthSession) -> Code | None:
        """Return the code of an open session that a retry may help: another account logged in, or the code expired and
        was not swept yet."""
        if session.pending_code is not None and session.pending_code.kind == "channelCode":
            return Code.OWNER_BINDING_FAILED if session.is_past(self.clock.now()) else None
        was_wrong = session.login is not None and session.login.wrong and not session.worn_out and not session.taken
        return Code.SUBJECT_MISMATCH if was_wrong and not session.is_past(self.clock.now()) else None
