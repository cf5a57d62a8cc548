"""`auth.pending` blocks (specification 12.5.8): what still waits for a person, told so that a model may repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oauthbroker.apps import OAuthApp
from oauthbroker.clock import Clock, to_iso
from oauthbroker.errors import BrokerError
from oauthbroker.flows.connect import Connect
from oauthbroker.manager import connect_link
from oauthbroker.records import AuthSession
from oauthbroker.repository import Repository
from oauthbroker.results import invitation
from oauthbroker.resume import locator_of
from oauthbroker.settings import Settings
from oauthbroker.subject import resolve_subject
from oauthbroker.turn import Turn


class Pending:
    """What waits for people: the blocks of a turn, and taking a request back."""

    def __init__(
        self,
        apps: Mapping[str, OAuthApp],
        repository: Repository,
        connect: Connect,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._apps = apps
        self._repository = repository
        self._connect = connect
        self._settings = settings
        self._clock = clock

    async def block(self, turn: Turn) -> dict[str, Any] | None:
        """The block for one turn, or None when nothing waits.

        Only sessions of this turn's own resume target, and only for subjects that this very turn carries. The link is
        the connect page's in every case: no state, no provider URL.
        """
        items: list[dict[str, Any]] = []
        for app in list(self._apps.values()):  # they may be reloaded meanwhile
            try:
                subject = resolve_subject(app, turn)
            except BrokerError:
                continue
            items += [
                _item(app, held.record, self._settings)
                for held in await self._repository.waiting(app.name, subject)
                if held.record.resume.address == turn.resume_target.address
                and not held.record.taken
                and held.record.expires_at > self._clock.now()
            ]
        return {"type": "auth.pending", "items": items} if items else None

    async def cancel(self, auth_session_id: str) -> bool:
        """Withdraws a request. False when it had ended or somebody is finishing it. Raises `requestInvalid`."""
        return await self._connect.cancel(locator_of(auth_session_id))


def _item(app: OAuthApp, session: AuthSession, settings: Settings) -> dict[str, Any]:
    return {
        "authSessionId": session.id,
        "oauthAppRef": app.ref,
        "provider": session.provider,
        "subjectMode": session.subject_mode,
        "authorizationUrl": connect_link(settings.public_base_url, session),
        "expiresAt": to_iso(session.expires_at),
        "message": invitation(session.reason, app.display_name, settings.locale),
        **({"deviceCode": session.device.prompt.to_json()} if session.device is not None else {}),
    }
