"""Parked codes: who says whose browser it was, and only then the code is redeemed.

Whatever is said is said once: a handle is used up by the first word about it, right or wrong. The public authSessionId
opens nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oauthbroker.apps import OAuthApp, Vouching
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.exchange import Exchange
from oauthbroker.flows.finish import Finish
from oauthbroker.protocol.callback import LOCATOR_LENGTH, cookie_fits, unparked
from oauthbroker.records import AuthSession
from oauthbroker.records.parked import as_code
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.results import SessionOutcome

HANDLE = re.compile(r"[A-Za-z0-9_-]{65}")
Address = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Parking:
    """Lets parked codes go: to the exchange, or nowhere. `ended` hears of every session that is over."""

    repository: Repository
    finish: Finish
    exchange: Exchange
    apps: Callable[[str], OAuthApp | None]
    ended: Callable[[str], None]
    clock: Clock

    async def look(self, locator: str, cookie: str | None) -> AuthSession:
        """The session whose code this very browser brought back, parked or over by now, or in which somebody has logged
        in with it. Raises `stateUnknown`."""
        held = await self.repository.session(locator)
        if held is None or not cookie_fits(held.record, cookie):
            raise BrokerError(Code.STATE_UNKNOWN)
        session = held.record
        has_next = session.parked is not None or (session.login is not None and session.login.way_on is not None)
        if session.open and session.claim is None and (not has_next or self._is_late(session)):
            raise BrokerError(Code.STATE_UNKNOWN)
        return session

    async def confirm(self, handle: str, subject: str) -> SessionOutcome:
        """The runtime says who is logged in, in the browser that brought it this handle.

        Another subject than the session's, byte for byte: the session has failed, its code is redeemed by nobody, and
        `ownerBindingFailed` is raised. Raises `stateUnknown` for a handle that is unknown, used or late.
        """
        return await self.exchange.see_through(self._confirm(handle, subject))

    async def relay(self, pairs: Sequence[tuple[OAuthApp, str]], address: Address, said: str) -> SessionOutcome:
        """Somebody said a code in the conversation `address`, in a turn that acts for these subjects of these apps.

        Raises `stateUnknown` for a code that is none of theirs there; too many of those end what waits.
        """
        return await self.exchange.see_through(self._relay(pairs, address, said))

    async def _confirm(self, handle: str, subject: str) -> SessionOutcome:
        held = await self._named(handle, "runtimeConfirm")
        app = await self._app_of(held)
        if held.record.subject != subject:
            await self._refuse(held)
            raise BrokerError(Code.OWNER_BINDING_FAILED)
        return await self._redeem(app, held, "runtimeConfirm")

    async def _named(self, proof: str, kind: Vouching) -> Held[AuthSession]:
        """The session that this proof is of. One whose time is over ends here."""
        held = await self.repository.session(proof[:LOCATOR_LENGTH]) if HANDLE.fullmatch(proof) else None
        parked = held.record.parked if held is not None else None
        if held is None or parked is None or parked.kind != kind or not parked.proof.matches(proof):
            raise BrokerError(Code.STATE_UNKNOWN)
        if self._is_late(held.record):
            await self._refuse(held)
            raise BrokerError(Code.STATE_UNKNOWN, note="late")
        return held

    async def _relay(self, pairs: Sequence[tuple[OAuthApp, str]], address: Address, said: str) -> SessionOutcome:
        code = as_code(said)
        for app, subject in pairs if code is not None else ():
            for waiting in await self.repository.waiting(app.name, subject):
                held = await self._tried(waiting, address)
                if held is None or held.record.parked is None:
                    continue
                if held.record.parked.proof.matches(code or ""):
                    return await self._redeem(await self._app_of(held), held, "channelCode")
                if held.record.parked.worn_out:
                    await self._refuse(held)
        raise BrokerError(Code.STATE_UNKNOWN)

    async def _tried(self, held: Held[AuthSession] | None, address: Address) -> Held[AuthSession] | None:
        """Counts one more try before it is looked at, so that many at once are no more tries than one after another;
        None for a session that waits for no code of this conversation's."""
        for _ in range(8):  # MAX_TRIES, a claim and an end are all that others can write meanwhile
            parked = held.record.parked if held is not None else None
            if held is None or parked is None or parked.kind != "channelCode" or parked.worn_out:
                return None
            if held.record.resume.address != address or self._is_late(held.record):
                return None
            try:
                return await self.repository.save_session(held.record.tried(), expect=held.generation)
            except Conflict:
                held = await self.repository.session(held.record.locator)
        raise BrokerError(Code.STORE_LOCKED)

    async def _redeem(self, app: OAuthApp, held: Held[AuthSession], how: Vouching) -> SessionOutcome:
        """How it ended. Raises `stateUnknown` for all but the first."""
        valid, session_id = unparked(held.record, self.clock.now()), held.record.id
        try:
            await self.exchange.redeem(app, held, valid, how)
        except BrokerError as error:
            refused = error
        else:
            return SessionOutcome("completed", auth_session_id=session_id)
        if refused.code is Code.STATE_USED:
            raise BrokerError(Code.STATE_UNKNOWN)
        return SessionOutcome("failed", refused.code, session_id)

    async def _app_of(self, held: Held[AuthSession]) -> OAuthApp:
        """The app as it was when the link was made; one that has changed since ends the session."""
        app = self.apps(held.record.app)
        if app is None or app.digest() != held.record.config_digest:
            self.ended(held.record.locator)
            await self.finish.lapse(held)
            raise BrokerError(Code.STATE_UNKNOWN, note="the app's configuration changed meanwhile")
        return app

    async def _refuse(self, held: Held[AuthSession]) -> None:
        """The end, without a grant. Raises `stateUnknown` where somebody else was first."""
        if not await self.finish.fail(held, Code.OWNER_BINDING_FAILED):
            raise BrokerError(Code.STATE_UNKNOWN)
        self.ended(held.record.locator)

    def _is_late(self, session: AuthSession) -> bool:
        return session.is_past(self.clock.now())
