"""`broker.confirm` and `broker.relay_code`: the runtime says whose browser came back, and the code is redeemed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from oauthbroker.apps import OAuthApp
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.parking import HANDLE, Parking
from oauthbroker.protocol.callback import LOCATOR_LENGTH
from oauthbroker.results import SessionOutcome
from oauthbroker.subject import resolve_subject
from oauthbroker.token_request import AppRef, app_name
from oauthbroker.turn import TurnLike, whole_turn


class Confirming:
    """What a runtime knows and we do not: who is logged in, and who said what in which conversation."""

    def __init__(self, apps: Mapping[str, OAuthApp], parking: Parking) -> None:
        self._apps = apps
        self._parking = parking

    @staticmethod
    def session_in(handle: str) -> str | None:
        """The id of the session that a handle names, whether there is one or not; None for what is no handle."""
        return f"as-{handle[:LOCATOR_LENGTH]}" if HANDLE.fullmatch(handle) else None

    async def confirm(self, handle: str, subject: str) -> SessionOutcome:
        """`handle` came with a browser to the runtime's page, where `subject` is logged in.

        How the connection ended, `completed` or `failed`. Raises `stateUnknown` for a handle that is unknown, used or
        late, `ownerBindingFailed` for another subject (the session has failed then), and store codes.
        """
        if not isinstance(handle, str) or not isinstance(subject, str):
            raise BrokerError(Code.REQUEST_INVALID, note="handle and subject are texts")
        return await self._parking.confirm(handle, subject)

    async def relay(self, turn: TurnLike, code: str, apps: Collection[AppRef] | None) -> SessionOutcome:
        """`code` was said in `turn`. It is looked for among what waits for one of the turn's own subjects, in the
        turn's own conversation, of `apps` only (None: of all).

        Raises `stateUnknown` for a code that is none of those, `requestInvalid` for what is no turn, and store codes.
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
