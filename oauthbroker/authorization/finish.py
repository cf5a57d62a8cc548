"""Finish every flow: verify the owner and scopes of tokens, then commit grant and event.

Order of the commit: the grant with its event; every other session that the grant satisfies; then the session itself.
After a crash between these writes `recover` finishes the commit. It looks for sessions that are claimed and open, so
the session is written last. No acknowledged grant, event or waiting session is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from oauthbroker.audit import Connected, ConnectFailed, GrantRevoked, TokensDropped
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.new_grant import Verified, carries, next_grant, unstored_grant
from oauthbroker.authorization.waiting_sessions import WaitingSessions
from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Notifier, to_its_end
from oauthbroker.model.apps import App
from oauthbroker.model.located_app import located
from oauthbroker.model.owner_check import check_owner, check_pin
from oauthbroker.model.scope_ceiling import granted_scopes
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.protocol.fact_requests import FactReader
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.network.crash_guard import crashed
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import AgentEvent, AuthSession, EventType, Grant, Retired
from oauthbroker.records.connection_event import session_event
from oauthbroker.records.open_facts import Learnt
from oauthbroker.records.unrevoked_tokens import forgotten, shares
from oauthbroker.refresh.clients import Clients
from oauthbroker.refresh.writeback import tell_unusual
from oauthbroker.repository.repository import PAIR_WAIT_SECONDS, Conflict, Repository, Versioned
from oauthbroker.repository.session_limits import OpenSessions
from oauthbroker.revocation.revoke import Revoke

SYNCS = 3  # attempts to sync a write that reported a failure
READS = 3  # reads of a grant that is about to be replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Verifies and commits for every flow that ends in a grant, and ends sessions without one."""

    repository: Repository
    waiting: WaitingSessions
    owners: OwnerReader
    facts: FactReader
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    open_sessions: OpenSessions
    clients: Clients
    revoke: Revoke
    outbox: Notifier
    log: Log

    async def claim(
        self, versioned: Versioned[AuthSession], seconds: float, *, confirmed: bool = False
    ) -> Versioned[AuthSession] | None:
        """Claim the right to finish a session: one caller wins across all processes, the others get None. No other
        caller may recover the session for `seconds` and the wait of its commit for the pair."""
        until = self.clock.now() + timedelta(seconds=seconds + PAIR_WAIT_SECONDS)
        claimed = versioned.record.claimed(random_text(self.clock, 128), until, confirmed=confirmed)
        try:
            return await self.repository.save_session(claimed, expect=versioned.generation)
        except Conflict:
            return None

    async def verify(
        self,
        app: App,
        session: AuthSession,
        tokens: TokenResponse,
        sent_at: datetime,
        came: Mapping[str, str] | None = None,
    ) -> Verified:
        """Check that (1) the account that consented is known, (2) it is the session's subject or an authorizer, (3)
        every scope is the app's. Then (4) learn the facts of the connection that no callback brings; `came` are those
        of the callback.

        Raises idTokenInvalid, subjectMismatch, subjectForbidden, subjectUnverifiable, scopeExceeded, and the errors of
        provider calls.
        """
        try:
            there = located(app, came or {})
            facts = await self.owners.read(there, tokens, session.attempt.nonce, sent_at)  # (1)
            confirmed = session.claim is not None and session.claim.confirmed
            owner = check_owner(app, session.subject, facts, confirmed=confirmed, account=session.account)  # (2)
            scopes, missing = granted_scopes(app, session.scopes, tokens.scopes)  # (3)
            learnt = Learnt()
            if app.facts.asked:
                learnt = await self.facts.learn(there, tokens.access_token, facts.user_info)  # (4)
        except BrokerError:
            raise
        except Exception as error:  # noqa: BLE001 - a crash would leave the session claimed
            refused = crashed(error)
        else:
            learnt = replace(learnt, facts={**learnt.facts, **(came or {})}) if came else learnt
            return Verified(
                tokens=tokens, owner=owner, scopes=scopes, missing=missing, learnt=learnt, unusual=facts.unusual
            )
        raise refused

    async def commit(self, app: App, versioned: Versioned[AuthSession], verified: Verified, sent_at: datetime) -> None:
        """Store the grant with its event, and end the session and every other one that the grant satisfies.

        Raises `subjectMismatch` when another account is pinned, and `exchangeUncertain` when the claim expired and
        another caller ended the session. Then nothing is stored.
        """
        session = versioned.record
        async with self.repository.pair(session.key):
            now_there = await self.repository.session(session.locator)
            if now_there is None or now_there.generation != versioned.generation:
                raise BrokerError(Code.EXCHANGE_UNCERTAIN, note="the session was ended meanwhile")
            stored = await self._keep(app, session, verified, sent_at)
            with suppress(BrokerError):  # the grant is durable: `recover` can finish the rest
                await self.waiting.complete_all(stored, versioned)
        self.open_sessions.ended(session.locator)
        self._announce(app, stored.record, verified)

    async def commit_second(self, app: App, session: AuthSession, verified: Verified, sent_at: datetime) -> None:
        """Store the grant of the second token of a consent, with its event. The session of the first one goes on."""
        async with self.repository.pair(session.key):
            stored = await self._keep(app, session, verified, sent_at)
            with suppress(BrokerError):  # the grant is durable: the next call of each session finds it
                await self.waiting.complete_others(stored.record, session)
        self._announce(app, stored.record, verified)

    def _announce(self, app: App, grant: Grant, verified: Verified) -> None:
        self.metrics.add(Metric.CONNECTIONS_COMPLETED, app.name)
        self.clients.consented(grant, self.clock.now())
        if verified.missing and grant.unlisted:
            self.log.warning(
                "a provider does not list scopes", app=app.name, grant=grant.id[:15], scopes=list(grant.unlisted)
            )
        if grant.unusual:
            tell_unusual(grant, self.audit, self.clock, self.log)
        self.outbox.notify()

    async def _keep(self, app: App, session: AuthSession, verified: Verified, sent_at: datetime) -> Versioned[Grant]:
        """Store the grant, under the pair's lease. The code is already spent, so on a conflict the stored grant is read
        again."""
        entry: Connected | None = None
        for _ in range(READS):
            before = await self.repository.grant(session.key)
            old = before.record if before is not None else None
            if old is not None and old.registration == app.registration:
                check_pin(old.pinned, verified.owner.account, switch_account=session.switch_account)
            grant = next_grant(app, session, verified, old, sent_at, self.clock.now())
            if entry is None:
                entry = Connected(app=app.name, grant=grant.id, session=session.id)
                self.audit.write(entry, self.clock.now())  # no entry, no grant
            if forgotten(old, grant, app):
                self.audit.write(GrantRevoked(app=app.name, grant=grant.id, provider="none"), self.clock.now())
            with suppress(Conflict):
                return await self._store(grant, before.generation if before else 0)
        raise Conflict

    async def fail(
        self, versioned: Versioned[AuthSession], code: Code, *, event: EventType | None = "auth.failed", fact: str = ""
    ) -> bool:
        """End a session without a grant, in one write with its event. False if the record changed meanwhile; then
        nothing is written. `fact` is the one that is missing, for the event."""
        session, now = versioned.record, self.clock.now()
        more = {"fact": fact} if fact else {}
        notice = session_event(session, event, now, code=code.value, **more) if event is not None else None
        async with self.repository.pair(session.key):
            return await to_its_end(asyncio.ensure_future(self._fail(versioned, code, notice)))

    async def _fail(self, versioned: Versioned[AuthSession], code: Code, notice: AgentEvent | None) -> bool:
        """Fail a session under the pair's lease. On cancellation it still runs to its end: the audit entry is written,
        and the event does not wait for the next sweep."""
        session, now = versioned.record, self.clock.now()
        try:
            await self.repository.save_session(session.failed(now, code, notice), expect=versioned.generation)
        except (Conflict, ValueError):
            return False
        self.open_sessions.ended(session.locator)
        self.metrics.add(Metric.CONNECTIONS_FAILED, code.value)
        self.outbox.notify()
        self.audit.write(ConnectFailed(app=session.app, session=session.id, code=code.value), now)
        await self.repository.forget_waiting(session.app, session.subject, {session.locator})  # readers skip it
        return True

    async def give_up(
        self, app: App, versioned: Versioned[AuthSession], code: Code, issued: IssuedTokens, *, fact: str = ""
    ) -> None:
        """End a session without a grant, and drop the tokens received for it even if that fails."""
        try:
            await self.fail(versioned, code, fact=fact)
        finally:
            if issued:
                await self.drop(app, versioned.record, code, issued)

    async def lapse(self, versioned: Versioned[AuthSession], *, event: EventType | None = None) -> bool:
        """End an unclaimed session that expired, was superseded or cancelled. The caller holds no lock.

        False if the record changed meanwhile; then nothing is written.
        """
        session = versioned.record
        async with self.repository.pair(session.key):
            if not await self.lapse_locked(versioned, event=event):
                return False
            await self.repository.forget_waiting(session.app, session.subject, {session.locator})
        self.outbox.notify()
        return True

    async def lapse_locked(self, versioned: Versioned[AuthSession], *, event: EventType | None = None) -> bool:
        """Do the same for a caller that holds the pair's lease and updates the waiting list itself."""
        session = versioned.record
        notice = session_event(session, event, self.clock.now()) if event is not None else None
        try:
            await self.repository.save_session(session.lapsed(self.clock.now(), notice), expect=versioned.generation)
        except (Conflict, ValueError):
            return False
        self.open_sessions.ended(session.locator)
        return True

    async def recover(self, versioned: Versioned[AuthSession]) -> bool:
        """End a claimed session whose worker is gone: completed if the grant carries its id, else failed after the
        claim has expired. One whose credential was typed is released instead, because nothing of it is used up.

        `commit` writes the grant and the session under one lease of the pair. So a grant found under that lease beside
        an open session means that the worker has stopped, and the session can be completed at once.
        False while the claim is valid. Raises `Conflict` when another caller ends the session at the same time.
        """
        session = versioned.record
        granted = await self._completed(versioned)
        over = session.claim is None or not session.claim.holds(self.clock.now())
        if over and not granted:
            if session.is_abandoned(self.clock.now()):
                await self.repository.save_session(session.released(), expect=versioned.generation)
            else:
                await self.fail(versioned, Code.EXCHANGE_UNCERTAIN)
        return granted or over

    async def release(self, versioned: Versioned[AuthSession]) -> None:
        """Give back the claim of a session whose credential was typed and not stored, so that it can be typed again.
        Where it was stored all the same, the session is completed. What fails here is left to `recover`."""
        with suppress(BrokerError):
            if not await self._completed(versioned):
                await self.repository.save_session(versioned.record.released(), expect=versioned.generation)

    async def _completed(self, versioned: Versioned[AuthSession]) -> bool:
        """Complete the session if the grant carries its id."""
        session = versioned.record
        async with self.repository.pair(session.key):
            grant = await self.repository.grant(session.key)
            if grant is None or not carries(grant.record, session):
                return False
            await self.waiting.complete_all(grant, versioned)
        self.open_sessions.ended(session.locator)
        self.outbox.notify()
        return True

    async def drop(self, app: App, session: AuthSession, code: Code, issued: IssuedTokens) -> None:
        """Drop tokens that are not stored. They are revoked only if that ends no other token; those that the provider
        could not be told of now wait in the record of the subject's grant, if there is one."""
        revoked, gone = False, unstored_grant(app, session, code, self.clock.now())
        if issued and (gone is not None or app.revocation.reach == "token"):
            with suppress(BrokerError):
                there = await self.repository.grant(session.key)
                if there is None or not shares(there.record, issued.secrets):
                    revoked = await self.revoke.tokens(app, issued, gone)
                    if not revoked and there is not None:
                        await self._owe(app, session, issued)
        entry = TokensDropped(app=app.name, session=session.id, code=code.value, revoked=revoked)
        self.audit.write(entry, self.clock.now())

    async def _owe(self, app: App, session: AuthSession, issued: IssuedTokens) -> None:
        """Add tokens to those that the subject's record has still to be rid of."""
        now = self.clock.now()
        late = Retired(now, issued.refresh, issued.access, registration=app.registration, params=app.params)
        async with self.repository.pair(session.key):
            there = await self.repository.grant(session.key)
            if there is not None:
                await self.repository.save_grant(there.record.owing(late), expect=there.generation)

    async def _store(self, grant: Grant, expect: int) -> Versioned[Grant]:
        """Store the grant. A write that reports a failure may have reached the store; then the grant is kept."""
        try:
            return await self.repository.save_grant(grant, expect=expect)
        except BrokerError as error:
            failed = error
        there = await self.repository.grant(grant.key)
        if there is None or there.record.auth_session_id != grant.auth_session_id:
            raise failed
        for _ in range(SYNCS):
            with suppress(BrokerError):  # if no sync works the grant is still served, until the machine stops
                await self.repository.sync("grants")
                break
        return there
