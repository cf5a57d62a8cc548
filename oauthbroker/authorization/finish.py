"""The end of every flow: whose tokens are these, may they be kept, and then one commit of grant and event.

Order of the commit: grant with its event -> every other session that the grant satisfies -> the session
itself terminal. What stops after the first write is finished by `recover`, which looks at sessions that are claimed
and open: so this one ends last, and no acknowledged grant, no event and nobody who waits is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from oauthbroker.apps import OAuthApp
from oauthbroker.audit import AuditWriter, Connected, ConnectFailed, TokensDropped
from oauthbroker.binding import OwnerVerdict, check_pin, judge_owner
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.keeper import Tell
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.protocol.judging import crashed
from oauthbroker.protocol.token import TokenResponse
from oauthbroker.records import AgentEvent, AuthSession, EventType, Grant, Retired, Token
from oauthbroker.records.device import FLOW as DEVICE_FLOW
from oauthbroker.records.provider_data import kept_facts
from oauthbroker.repository import Conflict, Held, Repository
from oauthbroker.scope import granted_scopes
from oauthbroker.secret import Secret

SYNCS = 3  # tries to make durable what a failed write has put there
READS = 3  # of a grant that is about to be replaced


class Revoker(Protocol):
    """Tells a provider that tokens have had their day; True when it took note of all of them."""

    async def __call__(self, app: OAuthApp, tokens: tuple[Secret, ...]) -> bool: ...


@dataclass(frozen=True, slots=True)
class Verified:
    """Tokens that passed every check, with what to store beside them. Only `verify` makes one."""

    tokens: TokenResponse
    owner: OwnerVerdict
    scopes: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Verifies and commits for every flow that ends in a grant; ends sessions that do not. `learn` hears of each grant
    before it is stored, so that no revocation overlooks it. `tell` writes the log."""

    repository: Repository
    owners: OwnerReader
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    learn: Callable[[Grant], None]
    wake: Callable[[], None]
    tell: Tell

    async def claim(
        self, held: Held[AuthSession], seconds: float, *, confirmed: bool = False
    ) -> Held[AuthSession] | None:
        """The right to finish a session, once: one winner in all processes, None for everybody else. Nobody else
        looks at it for `seconds`."""
        until = self.clock.now() + timedelta(seconds=seconds)
        claimed = held.record.claimed(random_text(self.clock, 128), until, confirmed=confirmed)
        try:
            return await self.repository.save_session(claimed, expect=held.generation)
        except Conflict:
            return None

    async def verify(self, app: OAuthApp, session: AuthSession, tokens: TokenResponse, sent_at: datetime) -> Verified:
        """(1) who agreed (2) is it the session's subject, or one of its authorizers (3) is every scope the app's.

        Raises idTokenInvalid, subjectMismatch, subjectForbidden, subjectUnverifiable, scopeExceeded, and what a
        provider call raises.
        """
        try:
            facts = await self.owners.read(app, tokens, session.attempt.nonce, sent_at)  # (1)
            confirmed = session.claim is not None and session.claim.confirmed
            owner = judge_owner(app, session.subject, facts, confirmed=confirmed)  # (2)
            scopes, missing = granted_scopes(app, session.scopes, tokens.scopes)  # (3)
        except BrokerError:
            raise
        except Exception as error:  # noqa: BLE001 - a crash would leave the session claimed
            refused = crashed(error)
        else:
            return Verified(tokens, owner, scopes, missing)
        raise refused

    async def commit(
        self, app: OAuthApp, held: Held[AuthSession], verified: Verified, sent_at: datetime
    ) -> Held[Grant]:
        """Stores the grant with its event, ends the session and every other one that waits for no more than this.

        Raises `subjectMismatch` when another account is pinned, `exchangeUncertain` when the claim ran out and
        somebody ended the session meanwhile; then nothing is stored.
        """
        session = held.record
        async with self.repository.pair(session.app, session.subject):
            now_there = await self.repository.session(session.locator)
            if now_there is None or now_there.generation != held.generation:
                raise BrokerError(Code.EXCHANGE_UNCERTAIN, note="the session was ended meanwhile")
            stored = await self._keep(app, session, verified, sent_at)
            with suppress(BrokerError):  # the grant is durable: from here on `recover` can finish
                await self._complete_all(stored.record, held)
        self.metrics.add(Metric.CONNECTIONS_COMPLETED, app.name)
        grant = stored.record
        if verified.missing and grant.unlisted:
            self.tell("a provider does not list scopes", app=app.name, grant=grant.id[:15], scopes=list(grant.unlisted))
        self.wake()
        return stored

    async def _keep(self, app: OAuthApp, session: AuthSession, verified: Verified, sent_at: datetime) -> Held[Grant]:
        """Store the grant, under the pair's lease. The code is spent: where another version turns out to be newer than
        the one that was read, it is read again."""
        entry: Connected | None = None
        for _ in range(READS):
            before = await self.repository.grant(session.app, session.subject)
            old = before.record if before is not None else None
            if old is not None and old.registration == app.registration:
                check_pin(old.account, verified.owner.account, switch_account=session.switch_account)
            grant = self._next_grant(app, session, verified, old, sent_at)
            if entry is None:
                entry = Connected(app.name, grant.id, session.id)
                self.audit.write(entry, self.clock.now())  # no entry, no grant
                self.learn(grant)
            with suppress(Conflict):
                return await self._store(grant, before.generation if before else 0)
        raise Conflict

    async def fail(self, held: Held[AuthSession], code: Code, *, event: EventType | None = "auth.failed") -> bool:
        """Ends a session without a grant, in one write with its own event. False when it changed meanwhile: it stays
        as it is then."""
        session, now = held.record, self.clock.now()
        notice = self._event(session, event, {"code": code.value}) if event is not None else None
        async with self.repository.pair(session.app, session.subject):
            try:
                await self.repository.save_session(session.failed(now, code, notice), expect=held.generation)
            except (Conflict, ValueError):
                return False
            await self._forget_waiting(session.app, session.subject, {session.locator})
        self.audit.write(ConnectFailed(session.app, session.id, code.value), now)
        self.metrics.add(Metric.CONNECTIONS_FAILED, code.value)
        self.wake()
        return True

    async def give_up(
        self, app: OAuthApp, held: Held[AuthSession], code: Code, tokens: tuple[Secret, ...], revoke: Revoker
    ) -> None:
        """Ends a session without a grant, and lets go of the tokens that came back for it, whatever fails."""
        try:
            await self.fail(held, code)
        finally:
            if tokens:
                await self.drop(app, held.record, code, tokens, revoke)

    async def lapse(self, held: Held[AuthSession], *, event: EventType | None = None) -> bool:
        """Ends an unclaimed session: it expired, was superseded or cancelled. Under no lock of the caller's.

        False when it changed meanwhile: then it stays as it is, to be looked at again."""
        session = held.record
        async with self.repository.pair(session.app, session.subject):
            if not await self.lapse_locked(held, event=event):
                return False
            await self._forget_waiting(session.app, session.subject, {session.locator})
        self.wake()
        return True

    async def lapse_locked(self, held: Held[AuthSession], *, event: EventType | None = None) -> bool:
        """The same for a caller that holds the pair's lease and mends the waiting list itself."""
        session = held.record
        notice = self._event(session, event, {}) if event is not None else None
        try:
            await self.repository.save_session(session.lapsed(self.clock.now(), notice), expect=held.generation)
        except (Conflict, ValueError):
            return False
        return True

    async def recover(self, held: Held[AuthSession]) -> bool:
        """Ends a claimed session whose claimer is gone: completed if the grant carries its id, else failed once the
        claim has run out.

        `commit` writes the grant and the session under one lease of the pair. So whoever holds that lease and finds
        the one without the other knows that nobody is about to finish it, and need not wait.
        False while the claim is still somebody's. Raises `Conflict` when somebody else ends it at this moment.
        """
        session = held.record
        async with self.repository.pair(session.app, session.subject):
            grant = await self.repository.grant(session.app, session.subject)
            granted = grant is not None and _carries(grant.record, session)
            if granted and grant is not None:
                await self._complete_all(grant.record, held)
        over = session.claim is None or not session.claim.holds(self.clock.now())
        if granted:
            self.wake()
        elif over:
            await self.fail(held, Code.EXCHANGE_UNCERTAIN)
        return granted or over

    async def drop(
        self, app: OAuthApp, session: AuthSession, code: Code, tokens: tuple[Secret, ...], revoke: Revoker
    ) -> None:
        """Tokens that we will not keep: revoked where that reaches no further than themselves."""
        revoked = False
        if app.revocation.reach == "token" and tokens:
            revoked = await revoke(app, tokens)
        self.audit.write(TokensDropped(app.name, session.id, code.value, revoked), self.clock.now())

    def _next_grant(
        self, app: OAuthApp, session: AuthSession, verified: Verified, old: Grant | None, sent_at: datetime
    ) -> Grant:
        now, tokens = self.clock.now(), verified.tokens
        unsent = old.outbox if old is not None else ()
        old = old if old is not None and old.registration == app.registration else None
        refresh = tokens.refresh_token or _kept_refresh(old, verified)
        lifetime = tokens.lifetime_seconds
        expires = None if lifetime is None else sent_at + timedelta(seconds=lifetime)
        grant = Grant(
            app=app.name,
            provider=app.provider,
            subject=session.subject,
            flow="authorization_code" if session.device is None else DEVICE_FLOW,
            scopes=verified.scopes,
            token=Token(tokens.access_token, tokens.token_type, refresh, expires, lifetime),
            created_at=old.created_at if old is not None and not old.revoked else now,
            updated_at=now,
            account=verified.owner.account,
            authorized_by=verified.owner.authorized_by,
            auth_session_id=session.id,
            registration=app.registration,
            resume=session.resume,
            retired=_still_to_tell(app, old, (tokens.access_token, *([refresh] if refresh else []))),
            declined=_declined(old, session, verified),
            provider_data=kept_facts(app, tokens.facts),
        )
        missing = {"scopesMissing": list(verified.missing)} if verified.missing else {}
        event = self._granted(session, grant, missing)
        return replace(grant, outbox=(*unsent, event))

    async def _store(self, grant: Grant, expect: int) -> Held[Grant]:
        """A write that failed may have happened all the same: then the grant is there, and is not given up."""
        try:
            return await self.repository.save_grant(grant, expect=expect)
        except BrokerError as error:
            failed = error
        there = await self.repository.grant(grant.app, grant.subject)
        if there is None or there.record.auth_session_id != grant.auth_session_id:
            raise failed
        for _ in range(SYNCS):
            with suppress(BrokerError):  # where none works it is served all the same, for as long as the machine runs
                await self.repository.sync("grants")
                break
        return there

    async def _complete_all(self, grant: Grant, held: Held[AuthSession]) -> None:
        """The session that brought the grant comes last: until then `recover` knows that something is left to do."""
        if not grant.revoked:
            await self._complete_others(grant, held.record)
        done = held.record.completed(self.clock.now())
        await self.repository.save_session(done, expect=held.generation)

    async def _complete_others(self, grant: Grant, first: AuthSession) -> None:
        """Every other session of the pair that this grant satisfies; its event lives in its own record."""
        gone = {first.locator}
        for other in await self.repository.waiting(grant.app, grant.subject):
            if other.record.locator != first.locator and await self._complete_other(grant, other):
                gone.add(other.record.locator)
        await self._forget_waiting(grant.app, grant.subject, gone)

    async def _complete_other(self, grant: Grant, held: Held[AuthSession] | None) -> bool:
        """A browser may press the button at this very moment: read again and complete what is there then."""
        for _ in range(8):
            if held is None or not held.record.open or held.record.claim is not None:
                return False
            session = held.record
            if session.switch_account or not set(session.scopes) <= set(grant.scopes):
                return False
            done = session.completed(self.clock.now(), self._granted(session, grant, {}))
            try:
                await self.repository.save_session(done, expect=held.generation)
            except Conflict:
                held = await self.repository.session(session.locator)
                continue
            return True
        return False

    async def _forget_waiting(self, app: str, subject: str, gone: set[str]) -> None:
        left = [held.record.locator for held in await self.repository.waiting(app, subject)]
        await self.repository.save_waiting(app, subject, [locator for locator in left if locator not in gone])

    def _granted(self, session: AuthSession, grant: Grant, more: dict[str, Any]) -> AgentEvent:
        facts = {"scopesGranted": list(grant.scopes), "grantId": grant.id, **more}
        return self._event(session, "auth.granted", facts)

    def _event(self, session: AuthSession, kind: EventType, facts: dict[str, Any]) -> AgentEvent:
        """What every event says of its session, and the facts of its kind. Never a secret."""
        payload = {
            "oauthAppRef": {"kind": "OAuthApp", "name": session.app},
            "provider": session.provider,
            "subject": session.subject,
            "authSessionId": session.id,
            **facts,
        }
        return AgentEvent.about(session.id, kind, session.resume, payload, self.clock.now())


def _carries(grant: Grant, session: AuthSession) -> bool:
    """Whether this session's commit reached the grant, even if a later one came on top."""
    granted = f"evt-{session.id}-auth.granted"
    return grant.auth_session_id == session.id or any(event.id == granted for event in grant.outbox)


def _still_to_tell(app: OAuthApp, old: Grant | None, kept: tuple[Secret, ...]) -> Retired | None:
    """What was ended before this login and the provider has not heard of yet. Where a revocation reaches further than
    its token it is forgotten: it might end what the person has agreed to just now."""
    ended = old.ended if old is not None and app.revocation.reach == "token" else None
    return ended.without(kept) if ended is not None else None


def _declined(old: Grant | None, session: AuthSession, verified: Verified) -> dict[str, int]:
    """What this consent did not grant, and how often in a row; what it was not asked for stays as it was."""
    before: Mapping[str, int] = {}
    if old is not None and not old.revoked and old.account == verified.owner.account:
        before = old.declined
    answered = {*session.scopes, *verified.scopes}
    kept = {scope: times for scope, times in before.items() if scope not in answered}
    return kept | {scope: before.get(scope, 0) + 1 for scope in verified.missing}


def _kept_refresh(old: Grant | None, verified: Verified) -> Secret | None:
    """Connecting the same account again never loses a refresh token that the provider did not send again."""
    if old is None or old.account is None or old.account != verified.owner.account:
        return None
    return next(iter(old.refresh_tokens), None)  # none of a revoked grant, none that is known to be dead
