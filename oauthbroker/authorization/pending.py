"""`auth.pending` blocks (specification 12.5.8): what still waits for a person, told so that a model may repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock, printed
from oauthbroker.errors import BrokerError, Locale, place_of
from oauthbroker.flows.connect import Connect
from oauthbroker.keeper import Tell
from oauthbroker.manager import connect_link
from oauthbroker.records import AuthSession
from oauthbroker.repository import Repository
from oauthbroker.results import invitation, invitation_apart
from oauthbroker.resume import locator_of
from oauthbroker.settings import Settings
from oauthbroker.subject import resolve_subject
from oauthbroker.turn import TurnLike, given_turn, locale_of, whole_turn

Links = Literal["inline", "apart"]


class Pending:
    """What waits for people: the blocks of a turn, and taking a request back."""

    def __init__(
        self,
        apps: Mapping[str, OAuthApp],
        repository: Repository,
        connect: Connect,
        settings: Settings,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._apps = apps
        self._repository = repository
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._tell = tell

    async def block_or_none(self, turn: TurnLike, links: Links = "inline") -> dict[str, Any] | None:
        """Return `block`, or None and a line in the log where it cannot be made: the turn goes on without it."""
        try:
            return await self.block(turn, links)
        except Exception as fault:  # noqa: BLE001  (its text may hold anything)
            named = {"code": fault.code.value} if isinstance(fault, BrokerError) else {"error": type(fault).__name__}
            self._tell("an auth.pending block could not be made", **named, place=place_of(fault))
            return None

    async def block(self, turn: TurnLike, links: Links = "inline") -> dict[str, Any] | None:
        """The block for one turn, or None when nothing waits.

        Only sessions of this turn's own resume target, and only for subjects that this very turn carries. The link is
        the connect page's in every case: no state, no provider URL. With links `apart` there is none, nor a device
        code: `links` has them, to be delivered where only the person reads them. A session for scopes that were asked
        for and not granted has no item: the person has answered, and would be asked for ever. Raises store codes.
        """
        item = _item if links == "inline" else _item_apart
        locale = locale_of(given_turn(turn), self._settings.locale)
        waiting = [each for each in await self._waiting(turn) if not await self._is_declined(*each)]
        items = [item(app, session, self._settings, locale) for app, session in waiting]
        return {"type": "auth.pending", "items": items} if items else None

    async def links(self, turn: TurnLike) -> list[dict[str, Any]]:
        """The links of the same sessions, and whom each is for: for private delivery, never for a transcript. Raises
        store codes."""
        return [_link(session, self._settings) for _, session in await self._waiting(turn)]

    async def _waiting(self, turn: TurnLike) -> list[tuple[OAuthApp, AuthSession]]:
        """Nothing for what is no turn: its token calls say so."""
        found: list[tuple[OAuthApp, AuthSession]] = []
        try:
            turn = whole_turn(turn)
        except BrokerError:
            return found
        for app in list(self._apps.values()):  # they may be reloaded meanwhile
            try:
                subject = resolve_subject(app, turn)
            except BrokerError:
                continue
            found += [
                (app, held.record)
                for held in await self._repository.waiting(app.name, subject)
                if held.record.resume.address == turn.resume_target.address
                and not held.record.taken
                and not held.record.is_past(self._clock.now())
            ]
        return found

    async def _is_declined(self, app: OAuthApp, session: AuthSession) -> bool:
        if session.reason == "scopesDeclined":
            return True
        held = await self._repository.grant(app.name, session.subject)
        if held is None or held.record.revoked or session.switch_account:
            return False
        return not set(session.scopes).difference(held.record.scopes).isdisjoint(held.record.declined)

    async def cancel(self, auth_session_id: str) -> bool:
        """Withdraws a request. False when it had ended or somebody is finishing it. Raises `requestInvalid`."""
        return await self._connect.cancel(locator_of(auth_session_id))


def _item(app: OAuthApp, session: AuthSession, settings: Settings, locale: Locale) -> dict[str, Any]:
    return {
        **_facts(app, session),
        "authorizationUrl": connect_link(settings.public_base_url, session),
        "message": invitation(session.reason, app.display_name, locale),
        **_device_code(session),
    }


def _item_apart(app: OAuthApp, session: AuthSession, _: Settings, locale: Locale) -> dict[str, Any]:
    return {**_facts(app, session), "message": invitation_apart(session.reason, app.display_name, locale)}


def _link(session: AuthSession, settings: Settings) -> dict[str, Any]:
    return {
        "authSessionId": session.id,
        "authorizationUrl": connect_link(settings.public_base_url, session),
        "subjectMode": session.subject_mode,
        "subject": session.subject,
        "expiresAt": printed(session.expires_at),
        **_device_code(session),
    }


def _facts(app: OAuthApp, session: AuthSession) -> dict[str, Any]:
    return {
        "authSessionId": session.id,
        "oauthAppRef": app.ref,
        "provider": session.provider,
        "subjectMode": session.subject_mode,
        "expiresAt": printed(session.expires_at),
    }


def _device_code(session: AuthSession) -> dict[str, Any]:
    return {"deviceCode": session.device.prompt.to_json()} if session.device is not None else {}
