"""Release pending codes, for `broker.confirm` and `broker.relay_code`: a code is redeemed only after the runtime has
confirmed the browser's user.

A handle is used up by the first confirmation, right or wrong. The public authSessionId opens nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from oauthbroker.authorization.code_exchange import Exchange
from oauthbroker.authorization.finish import Finish
from oauthbroker.authorization.mcp_clients import McpClients
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, check_argument
from oauthbroker.model.apps import App, OwnerConfirmation
from oauthbroker.model.subject import resolve_subject
from oauthbroker.model.token_request import AppRef, app_name
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.model.turn import TurnLike, whole_turn
from oauthbroker.protocol.callback_checks import LOCATED, LOCATOR_LENGTH, confirmed_callback, cookie_fits
from oauthbroker.records import AuthSession
from oauthbroker.records.pending_code import as_code
from oauthbroker.repository.repository import Conflict, Repository, Versioned

Address = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCodes:
    """Redeems pending codes, or refuses them, by facts that only a runtime knows: who is logged in, and who wrote which
    message where."""

    repository: Repository
    finish: Finish
    exchange: Exchange
    mcp_clients: McpClients
    apps: Mapping[str, App]
    clock: Clock

    @staticmethod
    def session_in(handle: str) -> str | None:
        """Return the id of the session that a well-formed handle names, whether or not the session exists. None for
        other text."""
        return f"as-{handle[:LOCATOR_LENGTH]}" if LOCATED.fullmatch(handle) else None

    async def session_of_browser(self, locator: str, cookie: str | None) -> AuthSession:
        """Return the session whose code this browser brought back, pending or ended, or in which its user has logged
        in. Raises `stateUnknown`."""
        versioned = await self.repository.session(locator)
        if versioned is None or not cookie_fits(versioned.record.attempt, cookie):
            raise BrokerError(Code.STATE_UNKNOWN)
        session = versioned.record
        has_next = session.pending_code is not None or (session.login is not None and session.login.way_on is not None)
        if session.open and session.claim is None and (not has_next or self._is_late(session)):
            raise BrokerError(Code.STATE_UNKNOWN)
        return session

    async def confirm(self, handle: str, subject: str) -> SessionOutcome:
        """Confirm that `subject` is logged in, in the browser that brought `handle` to the runtime's page.

        Return how the authorization ended, `completed` or `failed`. Another subject than the session's, compared byte
        for byte, fails the session: its code is never redeemed, and `ownerBindingFailed` is raised. Raises
        `stateUnknown` for a handle that is unknown, used or expired, and store codes.
        """
        if not isinstance(handle, str) or not isinstance(subject, str):
            raise BrokerError(Code.REQUEST_INVALID, note="handle and subject are texts")
        await self.mcp_clients.sync()
        return await self.exchange.see_through(self._confirm(handle, subject))

    async def relay(self, turn: TurnLike, code: str, apps: Collection[AppRef] | None) -> SessionOutcome:
        """Redeem the pending code whose channel code was written in `turn`. Only sessions of the turn's own subjects,
        conversation and `apps` (None: all apps) are searched.

        Raises `stateUnknown` for a code of no such session, `requestInvalid` for an invalid turn, and store codes. Too
        many wrong codes fail the waiting sessions.
        """
        turn = whole_turn(turn)
        check_argument(isinstance(code, str), "code", "the text that the user wrote")
        await self.mcp_clients.sync()
        named = None if apps is None else {app_name(app) for app in apps}
        pairs = []
        for app in list(self.apps.values()):
            if app.owner.confirmation == "channelCode" and (named is None or app.name in named):
                with suppress(BrokerError):
                    pairs.append((app, resolve_subject(app, turn)))
        return await self.exchange.see_through(self._relay(pairs, turn.resume_target.address, code))

    async def _confirm(self, handle: str, subject: str) -> SessionOutcome:
        versioned = await self._named(handle, "runtimeConfirm")
        app = await self._app_of(versioned)
        if versioned.record.subject != subject:
            await self._refuse(versioned)
            raise BrokerError(Code.OWNER_BINDING_FAILED)
        return await self._redeem(app, versioned, "runtimeConfirm")

    async def _named(self, proof: str, kind: OwnerConfirmation) -> Versioned[AuthSession]:
        """Return the session of this proof. An expired one fails here."""
        versioned = await self.repository.session(proof[:LOCATOR_LENGTH]) if LOCATED.fullmatch(proof) else None
        pending_code = versioned.record.pending_code if versioned is not None else None
        if (
            versioned is None
            or pending_code is None
            or pending_code.kind != kind
            or not pending_code.proof.matches(proof)
        ):
            raise BrokerError(Code.STATE_UNKNOWN)
        if self._is_late(versioned.record):
            await self._refuse(versioned)
            raise BrokerError(Code.STATE_UNKNOWN, note="late")
        return versioned

    async def _relay(self, pairs: Sequence[tuple[App, str]], address: Address, text: str) -> SessionOutcome:
        code = as_code(text)
        for app, subject in pairs if code is not None else ():
            for waiting in await self.repository.waiting(app.name, subject):
                versioned = await self._tried(waiting, address)
                if versioned is None or versioned.record.pending_code is None:
                    continue
                if versioned.record.pending_code.proof.matches(code or ""):
                    return await self._redeem(await self._app_of(versioned), versioned, "channelCode")
                if versioned.record.pending_code.worn_out:
                    await self._refuse(versioned)
        raise BrokerError(Code.STATE_UNKNOWN)

    async def _tried(self, versioned: Versioned[AuthSession] | None, address: Address) -> Versioned[AuthSession] | None:
        """Count a try before the code is compared, so that concurrent tries are limited like sequential ones. None for
        a session that waits for no code of this conversation."""
        for _ in range(8):  # other writers can save at most MAX_TRIES times, one claim and one end
            pending_code = versioned.record.pending_code if versioned is not None else None
            if versioned is None or pending_code is None or pending_code.kind != "channelCode" or pending_code.worn_out:
                return None
            if versioned.record.resume.address != address or self._is_late(versioned.record):
                return None
            try:
                return await self.repository.save_session(versioned.record.tried(), expect=versioned.generation)
            except Conflict:
                versioned = await self.repository.session(versioned.record.locator)
        raise BrokerError(Code.STORE_LOCKED)

    async def _redeem(self, app: App, versioned: Versioned[AuthSession], how: OwnerConfirmation) -> SessionOutcome:
        """Redeem the code and return the outcome. Raises `stateUnknown` for all calls but the first."""
        valid, session_id = confirmed_callback(versioned.record, self.clock.now()), versioned.record.id
        try:
            await self.exchange.redeem(app, versioned, valid, how)
        except BrokerError as error:
            refused = error
        else:
            return SessionOutcome("completed", auth_session_id=session_id)
        if refused.code is Code.STATE_USED:
            raise BrokerError(Code.STATE_UNKNOWN)
        return SessionOutcome("failed", refused.code, session_id)

    async def _app_of(self, versioned: Versioned[AuthSession]) -> App:
        """Return the app, unchanged since the link was made. A changed app ends the session."""
        app = self.apps.get(versioned.record.app)
        if app is None or app.config_digest != versioned.record.config_digest:
            await self.finish.lapse(versioned)
            raise BrokerError(Code.STATE_UNKNOWN, note="the app's configuration changed meanwhile")
        return app.at(versioned.record.params)

    async def _refuse(self, versioned: Versioned[AuthSession]) -> None:
        """Fail the session. Raises `stateUnknown` if another caller ended it first."""
        if not await self.finish.fail(versioned, Code.OWNER_BINDING_FAILED):
            raise BrokerError(Code.STATE_UNKNOWN)

    def _is_late(self, session: AuthSession) -> bool:
        return session.is_past(self.clock.now())
