"""Redeem parked codes for `broker.confirm` and `broker.relay_code`: the runtime confirms whose browser came back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from oauthbroker.authorization.parked_codes import HANDLE, ParkedCodes
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import OAuthApp
from oauthbroker.model.results import SessionOutcome
from oauthbroker.model.subject import resolve_subject
from oauthbroker.model.token_request import AppRef, app_name
from oauthbroker.model.turn import TurnLike, whole_turn
from oauthbroker.protocol.callback import LOCATOR_LENGTH


class Confirmation:
    """Accepts the facts that only a runtime knows: who is logged in, and who wrote which message where."""

    def __init__(self, apps: Mapping[str, OAuthApp], parking: ParkedCodes) -> None:
        self._apps = apps
        self._parking = parking

    @staticmethod
    def session_in(handle: str) -> str | None:
        """Return the id of the session that a well-formed handle names, whether or not the session exists. None for
        other text."""
        return f"as-{handle[:LOCATOR_LENGTH]}" if HANDLE.fullmatch(handle) else None

    async def confirm(self, handle: str, subject: str) -> SessionOutcome:
        """Confirm that `subject` is logged in, in the browser that brought `handle` to the runtime's page.

        Return how the authorization ended, `completed` or `failed`. Raises `stateUnknown` for a handle that is unknown,
        used or expired, `ownerBindingFailed` for another subject (the session has then failed), and store codes.
        """
        if not isinstance(handle, str) or not isinstance(subject, str):
            raise BrokerError(Code.REQUEST_INVALID, note="handle and subject are texts")
        return await self._parking.confirm(handle, subject)

    async def relay(self, turn: TurnLike, code: str, apps: Collection[AppRef] | None) -> SessionOutcome:
        """Redeem the parked code whose channel code was written in `turn`. Only sessions of the turn's own subjects,
        conversation and `apps` (None: all apps) are searched.

        Raises `stateUnknown` for a code of no such session, `requestInvalid` for an invalid turn, and store codes.
        """
        turn = whole_turn(turn)
        apps = None if apps is None else {app_name(app) for app in apps}
        pairs = []
        for app in list(self._apps.values()):
            if app.owner.vouching != "channelCode" or (apps is not None and app.name not in apps):
                continue
            try:
                pairs.append((app, resolve_subject(app, turn)))
            except BrokerError:
                continue
        return await self._parking.relay(pairs, turn.resume_target.address, code)
