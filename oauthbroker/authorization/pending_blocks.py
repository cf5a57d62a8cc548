"""Build `auth.pending` blocks (specification 12.5.8): open requests for consent, in words that a model may repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from oauthbroker.authorization.connect import Connect
from oauthbroker.core.clock import Clock, printed
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Locale, place_of
from oauthbroker.model.apps import App
from oauthbroker.model.connect_links import connect_link, locator_of
from oauthbroker.model.settings import Settings
from oauthbroker.model.subject import allowed_accounts, resolve_subject
from oauthbroker.model.token_results import invitation
from oauthbroker.model.turn import TurnLike, given_turn, locale_of, whole_turn
from oauthbroker.observability.logging import Log
from oauthbroker.records import AuthSession
from oauthbroker.repository.repository import Repository

Links = Literal["inline", "apart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Lists the requests that wait for users, as blocks of a turn, and withdraws them."""

    apps: Mapping[str, App]
    repository: Repository
    connect: Connect
    settings: Settings
    clock: Clock
    log: Log

    async def block_or_none(self, turn: TurnLike, links: Links = "inline") -> dict[str, Any] | None:
        """Return `block`, or log why it failed and return None: the turn goes on without it."""
        try:
            return await self.block(turn, links)
        except Exception as fault:  # noqa: BLE001  (its text may hold anything)
            named = {"code": fault.code.value} if isinstance(fault, BrokerError) else {"error": type(fault).__name__}
            self.log.warning("an auth.pending block could not be made", **named, place=place_of(fault))
            return None

    async def block(self, turn: TurnLike, links: Links = "inline") -> dict[str, Any] | None:
        """Return the block for one turn, or None without open requests. Raises store codes.

        It lists only sessions of this turn's resume target and subjects. A link is always the connect page's: no state,
        no provider URL. With links `apart` the block has neither links nor device codes: `links` returns them for
        private delivery. A session for scopes that the user declined is left out, because the user has answered.
        """
        apart, locale = links != "inline", locale_of(given_turn(turn), self.settings.locale)
        items = [
            _facts(session)
            | {"oauthAppRef": app.ref, "provider": session.provider}
            | {"message": self._message(app, session, locale, apart=apart)}
            | ({} if apart else _link(session, self.settings))
            for app, session in await self._waiting(turn)
            if not await self._is_declined(session)
        ]
        return {"type": "auth.pending", "items": items} if items else None

    def _message(self, app: App, session: AuthSession, locale: Locale, *, apart: bool) -> str:
        is_key = app.credential is not None
        return invitation(session.reason, app.display_name, session.account, locale, apart=apart, is_key=is_key)

    async def links(self, turn: TurnLike) -> list[dict[str, Any]]:
        """Return the links of the same sessions with their subjects, for private delivery, never for a transcript.
        Raises store codes."""
        return [
            {**_facts(session), "subject": session.subject, **_link(session, self.settings)}
            for _, session in await self._waiting(turn)
        ]

    async def _waiting(self, turn: TurnLike) -> list[tuple[App, AuthSession]]:
        """Return the turn's open sessions; none for an invalid turn, whose token calls raise the error."""
        found: list[tuple[App, AuthSession]] = []
        try:
            turn = whole_turn(turn)
        except BrokerError:
            return found
        for app in list(self.apps.values()):  # a copy: the apps may be reloaded meanwhile
            try:
                subject, accounts = resolve_subject(app, turn), allowed_accounts(app, turn)
            except BrokerError:
                continue
            found += [
                (app, versioned.record)
                for versioned in await self.repository.waiting(app.name, subject)
                if versioned.record.resume.address == turn.resume_target.address
                and versioned.record.account in accounts
                and not versioned.record.taken
                and not versioned.record.is_past(self.clock.now())
            ]
        return found

    async def _is_declined(self, session: AuthSession) -> bool:
        if session.reason == "scopesDeclined":
            return True
        versioned = await self.repository.grant(session.key)
        if versioned is None or versioned.record.revoked or session.switch_account:
            return False
        return not set(session.scopes).difference(versioned.record.scopes).isdisjoint(versioned.record.declined)

    async def cancel(self, auth_session_id: str) -> bool:
        """Withdraw a request. False when it has ended or is claimed. Raises `requestInvalid`."""
        return await self.connect.cancel(locator_of(auth_session_id))


def _facts(session: AuthSession) -> dict[str, Any]:
    return {
        "authSessionId": session.id,
        "subjectMode": session.subject_mode,
        "expiresAt": printed(session.expires_at),
        **({"account": session.account} if session.account else {}),
    }


def _link(session: AuthSession, settings: Settings) -> dict[str, Any]:
    link = {"authorizationUrl": connect_link(settings.public_base_url, session.ticket)}
    return link | ({"deviceCode": session.device.prompt.to_json()} if session.device is not None else {})
