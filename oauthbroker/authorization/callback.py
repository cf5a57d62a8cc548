"""Handle the provider's callback: validate it, then redeem the code, or keep it pending until the browser's user is
confirmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, NoReturn

from oauthbroker.authorization.code_exchange import Exchange
from oauthbroker.authorization.finish import Finish
from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, OwnerConfirmation
from oauthbroker.model.connect_links import OtherConfigError
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.callback_checks import (
    CallbackParams,
    ValidCallback,
    cookie_fits,
    parse_callback,
    validate_callback,
)
from oauthbroker.protocol.callback_facts import callback_facts, check_signature
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.records import AuthSession, PendingCode
from oauthbroker.records.pending_code import PENDING_CODE_SECONDS, code_of
from oauthbroker.repository.repository import Conflict, Repository, Versioned

# A browser that did not start the session gets the same answer for all of these as for a state that never existed. A
# guessed state reveals neither that a session exists, nor its app, nor its progress.
SILENT = frozenset({Code.STATE_USED, Code.STATE_EXPIRED, Code.APP_MISMATCH})

CookieJar = Callable[[str], str | None]
NOWHERE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """Handles the callbacks of all apps. `cookie_of` maps a session's locator to this browser's cookie."""

    repository: Repository
    discovery: Discovery
    finish: Finish
    exchange: Exchange
    config: CurrentConfig
    clock: Clock
    log: Log

    async def receive(
        self, app: App, query: bytes, cookie_of: CookieJar, place: Mapping[str, str] = NOWHERE
    ) -> AuthSession:
        """Handle one callback on `app`'s own path (RFC 6749 section 4.1.2).
        Return the session: its grant is stored, or its code is pending. `place` are the connection's parameters that
        stand in the path.

        Raises a `BrokerError` that may be shown to the user. Unknown, used, expired and foreign states look the same
        (`stateUnknown`) to a browser that did not start the session.
        """
        params = parse_callback(query, app.habits.code_param)
        check_signature(app, params)
        versioned = await self.repository.session(params.locator)
        if versioned is not None:
            app = app.at(versioned.record.params)
        cookie = cookie_of(params.locator)
        try:
            valid = await self._validate(params, versioned, app, cookie, place)
        except BrokerError as error:
            refused = error
        else:
            assert versioned is not None  # noqa: S101  (validate_callback refuses None)
            confirmation = app.owner.confirmation
            if confirmation is None or confirmation == "brokerLogin":
                return await self.exchange.see_through(self.exchange.redeem(app, versioned, valid, confirmation))
            return await self.exchange.see_through(self._keep_code(app, versioned, valid, confirmation))
        if versioned is not None:
            await self._end_refused(versioned, refused, params)
        if refused.code in SILENT and (versioned is None or not cookie_fits(versioned.record.attempt, cookie)):
            raise BrokerError(Code.STATE_UNKNOWN, note=refused.code.value)
        raise refused

    async def refuse_unknown(self, name: str, query: bytes) -> NoReturn:
        """Refuse a callback of an app that this process does not have, and say so where the app's request is open: a
        host that has the app by now takes the same callback."""
        locator, versioned = "", None
        with suppress(BrokerError):  # no callback of ours
            locator = parse_callback(query).locator
        if locator and name not in self.config.apps:
            versioned = await self.repository.session(locator)
        if versioned is not None and versioned.record.open and versioned.record.app == name:
            raise OtherConfigError
        raise BrokerError(Code.NOT_FOUND)

    async def _keep_code(
        self, app: App, versioned: Versioned[AuthSession], valid: ValidCallback, kind: OwnerConfirmation
    ) -> AuthSession:
        """Keep the code pending, without a request to the provider. One callback wins, as for a claim; the others raise
        `stateUsed`. A fact that is missing fails the session, with its name."""
        facts, refused = dict[str, str](), None
        try:
            facts = callback_facts(app, valid)
        except BrokerError as error:
            refused = error
        if refused is not None:
            await self.finish.fail(versioned, refused.code, fact=refused.words.get("fact", ""))
            raise refused
        if kind == "channelCode":  # 40 bits, which a user can read out
            proof = code_of(self.clock.random_bytes(5))
        else:  # a handle: the session's locator and 256 bits
            proof = versioned.record.locator + random_text(self.clock, 256)
        until = self.clock.now() + timedelta(seconds=PENDING_CODE_SECONDS)
        pending_code = PendingCode(kind=kind, code=valid.code, proof=Secret(proof), until=until, facts=facts)
        try:
            return (
                await self.repository.save_session(
                    versioned.record.with_pending_code(pending_code), expect=versioned.generation
                )
            ).record
        except Conflict:
            lost = BrokerError(Code.STATE_USED)
        raise lost

    async def _validate(
        self,
        params: CallbackParams,
        versioned: Versioned[AuthSession] | None,
        app: App,
        cookie: str | None,
        place: Mapping[str, str],
    ) -> ValidCallback:
        """Validate the response. The provider's metadata is fetched only for a known state with a code; an error
        response is checked without it."""
        known = versioned is not None and versioned.record.attempt.state.matches(params.state.reveal())
        promised = await self.discovery.issuer_promised(app) if known and params.code is not None else False
        valid = validate_callback(
            params,
            versioned.record if versioned is not None else None,
            app,
            cookie,
            issuer=app.endpoints.issuer,
            issuer_promised=promised,
            now=self.clock.now(),
        )
        if versioned is not None and any(versioned.record.params.get(name) != place[name] for name in place):
            raise BrokerError(Code.APP_MISMATCH, note="the answer came to the path of another connection")
        if versioned is not None and versioned.record.config_digest != app.config_digest:
            raise BrokerError(Code.STATE_EXPIRED, note="the app's configuration changed meanwhile")
        if versioned is not None and app.owner.confirmation == "brokerLogin" and not self._knows_who(versioned.record):
            raise BrokerError(Code.OWNER_BINDING_FAILED, note="the subject has not logged in")
        return valid

    def _knows_who(self, session: AuthSession) -> bool:
        """Return whether the session's subject has logged in, in the browser of this attempt."""
        login = self.config.bundle.login
        if login is None or session.login is None:
            return False
        return session.login.counts(login.digest(), self.clock.now())

    async def _end_refused(
        self, versioned: Versioned[AuthSession], refused: BrokerError, params: CallbackParams
    ) -> None:
        """Fail or expire the session of a refused callback. A callback with another session's state changes nothing."""
        session, code = versioned.record, refused.code
        if not session.open or session.taken or not session.attempt.state.matches(params.state.reveal()):
            return
        if code is Code.PROVIDER_DENIED:
            await self.finish.fail(versioned, code, event="auth.denied")
        elif refused is params.refused:
            self.log.warning("an authorization was refused", app=session.app, code=code.value, note=refused.note)
            await self.finish.fail(versioned, code)
        elif code in {Code.OWNER_BINDING_FAILED, Code.ISSUER_MISMATCH}:
            await self.finish.fail(versioned, code)
        elif code is Code.STATE_EXPIRED:
            await self.finish.lapse(versioned)
