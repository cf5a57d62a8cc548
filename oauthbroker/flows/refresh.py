"""Renewing a grant's token as one transaction, once for everybody who waits for it.

In-process single flight -> flight lease -> re-read -> room on disk -> sealed intent -> provider -> commit -> answer.
A caller that leaves cancels nothing. Nobody goes ahead without the lease: whoever cannot have it reads again and
says so. What is written is fenced by the intent: a revoke or a new login that came meanwhile has removed it and wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from oauthbroker.apps import Endpoints, Limits, OAuthApp
from oauthbroker.audit import AuditWriter, RenewalFailed, TokenRenewed
from oauthbroker.binding import check_same_owner
from oauthbroker.circuit import Circuits
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Revoker
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.protocol.asker import Asker
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.protocol.refresh import RenewalRefused, refresh_request, refresh_response
from oauthbroker.protocol.token import TokenResponse
from oauthbroker.protocol.transport import TransportFailed
from oauthbroker.records import Grant, Renewal, Token
from oauthbroker.repository import Conflict, Held, Repository, Room
from oauthbroker.scope import granted_scopes
from oauthbroker.secret import Secret

PROVIDER_CALLS = 4  # discovery, two refresh tokens, keys: how long a flight may last, and so how long to wait for one
UNCLEAR = 2  # refusals in no words we know that count as the one word
KEEP_TRYING = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, *[30.0] * 20)  # seconds between tries to store a renewed token
Tell = Callable[..., None]


class Fetcher(Protocol):
    """Gets a new token for a client that asks for itself; the grant as it is then."""

    async def __call__(
        self, app: OAuthApp, subject: str, held: Held[Grant] | None, rejected: Secret | None
    ) -> Grant | None: ...


@dataclass(frozen=True, slots=True)
class Renewed:
    """What a renewal came to: the grant as it is now and, where it has no new token, why."""

    grant: Grant | None
    trouble: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class _Fresh:
    """What one good answer changes in a grant."""

    token: Token
    scopes: tuple[str, ...]
    at: datetime

    def on(self, grant: Grant) -> Grant:
        renewal = Renewal(asked=grant.renewal.asked, forced=grant.renewal.forced)
        return replace(grant, token=self.token, scopes=self.scopes, renewal=renewal, updated_at=self.at)


@dataclass(eq=False, slots=True)
class _Flight:
    """One renewal under way in this process, for everybody here who waits for it."""

    app: OAuthApp
    subject: str
    seen: Held[Grant] | None
    rejected: Secret | None
    landed: asyncio.Future[Renewed]

    def land(self, renewed: Renewed) -> None:
        if not self.landed.done():
            self.landed.set_result(renewed)

    def moved_on(self, held: Held[Grant] | None) -> bool:
        """Whether somebody else has renewed, ended or replaced what the caller saw."""
        before = self.seen.record if self.seen is not None else None
        if held is None or before is None:
            return (held is None) is not (before is None)
        now = held.record
        if self.rejected is not None:
            return now.token is None or now.token.access_token != self.rejected
        return (now.token, now.revoked, now.renewal.ended) != (before.token, before.revoked, before.renewal.ended)


@dataclass(slots=True)
class Refresh:
    """Renews by refresh token, or by `fetch` where the client asks for itself. `drop` tells a provider of tokens that
    came too late; `tell` writes the log."""

    repository: Repository
    asker: Asker
    discovery: Discovery
    owners: OwnerReader
    fetch: Fetcher
    drop: Revoker
    circuits: Circuits
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    limits: Limits
    tell: Tell
    _flights: dict[tuple[str, str], _Flight] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def renew(
        self, app: OAuthApp, subject: str, seen: Held[Grant] | None, *, rejected: Secret | None = None
    ) -> Renewed:
        """One renewal of the grant that the caller `seen`, or what somebody else made of it meanwhile.

        `rejected` is a token that the provider's API refused: it is renewed although it seems to live. Never raises:
        trouble is part of the answer.
        """
        flight = self._flights.get((app.name, subject))
        if flight is None:
            flight = _Flight(app, subject, seen, rejected, asyncio.get_running_loop().create_future())
            self._flights[app.name, subject] = flight
            task = asyncio.create_task(self._fly(flight))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(flight.landed)

    async def close(self) -> None:
        """Waits for what is under way; what could not be stored so far gets one more try."""
        self._closing.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fly(self, flight: _Flight) -> None:
        before = flight.seen.record if flight.seen is not None else None
        renewed = Renewed(before, BrokerError(Code.STORE_UNAVAILABLE))
        try:
            renewed = await self._transaction(flight)
        except BrokerError as error:
            renewed = Renewed(before, error.with_traceback(None))
        except Conflict:
            renewed = Renewed(before, BrokerError(Code.STORE_LOCKED))
        finally:
            del self._flights[flight.app.name, flight.subject]
            flight.land(renewed)

    async def _transaction(self, flight: _Flight) -> Renewed:
        wait, entered = PROVIDER_CALLS * self.limits.provider_seconds, False
        try:
            async with self.repository.flight(flight.app.name, flight.subject, wait=wait):
                entered = True
                return await self._in_flight(flight)
        except BrokerError as error:
            if entered or error.code is not Code.STORE_LOCKED:
                raise
        held = await self.repository.grant(flight.app.name, flight.subject)
        if flight.moved_on(held):
            return Renewed(held.record if held is not None else None)
        raise BrokerError(Code.REFRESH_IN_PROGRESS, retry_after_seconds=1)

    async def _in_flight(self, flight: _Flight) -> Renewed:
        app = flight.app
        held = await self.repository.grant(app.name, flight.subject)
        grant = held.record if held is not None else None
        if flight.moved_on(held):
            return Renewed(grant)
        if app.flow == "clientCredentials":
            return await self._fetch(flight, held)
        if held is None or grant is None:
            return Renewed(None)
        if not grant.refresh_tokens or grant.registration != app.registration:
            return Renewed(grant)
        self._check_pause(grant)
        self.circuits.check(app.name)
        endpoints = await self._endpoints(app)
        async with self.repository.room_for(grant) as room:
            begun = await self._begin(flight, held)
            if begun is None:
                latest = await self.repository.grant(app.name, flight.subject)
                return Renewed(latest.record if latest is not None else None)
            return await self._redeem(flight, begun, endpoints, room)

    async def _fetch(self, flight: _Flight, held: Held[Grant] | None) -> Renewed:
        app = flight.app
        self.circuits.check(app.name)
        try:
            grant = await self.fetch(app, flight.subject, held, flight.rejected)
        except BrokerError as error:
            self._count(app, error)
            raise
        self.circuits.worked(app.name)
        if grant is not None:
            self._note(TokenRenewed(app.name, grant.id, flight.rejected is not None))
            self.metrics.add(Metric.RENEWALS, app.name)
        return Renewed(grant)

    def _check_pause(self, grant: Grant) -> None:
        """A token that may be spent is tried again, but not at once."""
        intent = grant.renewal.intent
        left = (intent.retry_at - self.clock.now()).total_seconds() if intent is not None else 0.0
        if 0 < left <= timedelta(hours=1).total_seconds():  # longer: the clock was set back since
            raise BrokerError(Code.PROVIDER_UNREACHABLE, note="pausing", retry_after_seconds=max(1, round(left)))

    async def _endpoints(self, app: OAuthApp) -> Endpoints:
        try:
            return await self.discovery.endpoints(app)
        except BrokerError as error:
            self._count(app, error)
            raise

    async def _begin(self, flight: _Flight, looked: Held[Grant]) -> Held[Grant] | None:
        """Seals the intent. None when somebody changed the tokens since we looked: there is nothing to renew."""
        async with self.repository.pair(flight.app.name, flight.subject):
            held = await self.repository.grant(flight.app.name, flight.subject)
            if held is None or held.record.token != looked.record.token or not held.record.refresh_tokens:
                return None
            now = self.clock.now()
            renewal = held.record.renewal.begun(random_text(self.clock, 128), now)
            if flight.rejected is not None:
                renewal = renewal.forced_at(now)
            return await self.repository.save_grant(replace(held.record, renewal=renewal), expect=held.generation)

    async def _redeem(self, flight: _Flight, begun: Held[Grant], endpoints: Endpoints, room: Room) -> Renewed:
        app, sent_at = flight.app, self.clock.now()
        try:
            tokens, sent = await self._ask(app, endpoints, begun.record)
            fresh = await self._judge(app, begun.record, tokens, sent, sent_at)
        except RenewalRefused as error:
            refused = error
        else:
            self.circuits.worked(app.name)
            return await self._commit(flight, begun.record, fresh, tokens, room)
        return await self._refused(app, begun.record, refused)

    async def _ask(self, app: OAuthApp, endpoints: Endpoints, grant: Grant) -> tuple[TokenResponse, Secret]:
        """The answer, and the refresh token that it was given for: the newest that the provider takes."""
        refused = RenewalRefused(Code.REAUTH_REQUIRED, spent=False)
        for secret in grant.refresh_tokens:
            try:
                return await self._ask_with(app, endpoints, secret), secret
            except RenewalRefused as error:
                refused = error
            if refused.code is not Code.REAUTH_REQUIRED:
                break
        raise refused

    async def _ask_with(self, app: OAuthApp, endpoints: Endpoints, secret: Secret) -> TokenResponse:
        try:
            answer = await self.asker.ask(
                app, lambda known: refresh_request(known, endpoints, secret, clock=self.clock)
            )
        except TransportFailed as failed:
            refused = RenewalRefused(Code.PROVIDER_UNREACHABLE, spent=failed.sent, note=failed.note)
        except BrokerError as error:
            refused = RenewalRefused(error.code, spent=False, note=error.note)
        else:
            return refresh_response(app, answer)
        raise refused

    async def _judge(
        self, app: OAuthApp, grant: Grant, tokens: TokenResponse, sent: Secret, sent_at: datetime
    ) -> _Fresh:
        """(1) still the same owner (2) no scope beyond the app's (3) a token that is not the one which has ended."""
        old = grant.token
        try:
            facts = await self.owners.read_again(app, tokens, sent_at)
            check_same_owner(app, grant.subject, grant.account, grant.authorized_by, facts)  # (1)
            scopes, _ = granted_scopes(app, grant.scopes, tokens.scopes)  # (2)
            if old is not None and tokens.access_token == old.access_token and not old.lives(0, sent_at):  # (3)
                raise BrokerError(Code.TOKEN_RESPONSE_INVALID, note="the token that has ended came back")
        except BrokerError as error:
            refused = RenewalRefused(error.code, spent=True, note=error.note, tokens=tokens.secrets)
        else:
            lifetime = tokens.lifetime_seconds
            if lifetime is None and old is not None:  # not said again: as before
                lifetime = old.lifetime_seconds
            expires = None if lifetime is None else sent_at + timedelta(seconds=lifetime)
            token = Token(tokens.access_token, tokens.token_type, tokens.refresh_token or sent, expires, lifetime)
            return _Fresh(token, scopes, self.clock.now())
        raise refused

    async def _commit(
        self, flight: _Flight, begun: Grant, fresh: _Fresh, tokens: TokenResponse, room: Room | None
    ) -> Renewed:
        """Stores what the provider gave. While the disk refuses, the token is served from memory, the lease is kept
        so that nobody sends the old one, and storing it is tried again."""
        for pause in (*KEEP_TRYING, 0.0):
            try:
                return await self._store(flight, begun, fresh, tokens, room)
            except (BrokerError, Conflict) as error:
                code = error.code if isinstance(error, BrokerError) else Code.STORE_LOCKED
            room = None
            self.tell("a renewed token is not stored yet", app=begun.app, grant=begun.id[:15], code=code.value)
            self.metrics.add(Metric.RENEWALS_UNSTORED, begun.app)
            flight.land(Renewed(fresh.on(begun), BrokerError(code)))
            if self._closing.is_set() or not pause:
                break
            await self.clock.sleep(pause)
        self.tell("a renewed token was never stored: the next start asks with the old one", app=begun.app)
        return Renewed(fresh.on(begun), BrokerError(Code.STORE_UNAVAILABLE))

    async def _store(
        self, flight: _Flight, begun: Grant, fresh: _Fresh, tokens: TokenResponse, room: Room | None
    ) -> Renewed:
        async with self.repository.pair(begun.app, begun.subject):
            held = await self.repository.grant(begun.app, begun.subject)
            if held is not None and _is_ours(held.record, begun):
                held = await self.repository.save_grant(fresh.on(held.record), expect=held.generation, room=room)
                self._note(TokenRenewed(begun.app, begun.id, flight.rejected is not None))
                self.metrics.add(Metric.RENEWALS, begun.app)
                return Renewed(held.record)
        if held is None or held.record.revoked:  # a new login may share its grant with these tokens: then they are left
            await self.drop(flight.app, tokens.secrets)
        return Renewed(held.record if held is not None else None)

    async def _refused(self, app: OAuthApp, begun: Grant, refused: RenewalRefused) -> Renewed:
        """What a refusal means for the grant, written down; a revoke or a login that came meanwhile wins."""
        self._count(app, refused)
        renewal, trouble = _after(begun.renewal, refused, self.clock.now())
        self._note(RenewalFailed(begun.app, begun.id, trouble.code.value))
        self.metrics.add(Metric.RENEWAL_FAILURES, trouble.code.value)
        if renewal.ended or refused.tokens or refused.code is Code.TOKEN_RESPONSE_INVALID:
            self.tell(
                "a renewal was refused",
                app=begun.app, grant=begun.id[:15], code=trouble.code.value, note=refused.note, ended=renewal.ended,
            )  # fmt: skip
        grant = await self._write_down(begun, renewal)
        unwanted = refused.tokens if renewal.ended else refused.tokens[-1:]  # its refresh token may be all we have
        if unwanted and app.revocation.reach == "token":
            await self.drop(app, unwanted)
        return Renewed(grant, trouble)

    async def _write_down(self, begun: Grant, renewal: Renewal) -> Grant | None:
        with suppress(BrokerError, Conflict):  # an intent that stays says no more than that the token may be spent
            async with self.repository.pair(begun.app, begun.subject):
                held = await self.repository.grant(begun.app, begun.subject)
                if held is None or not _is_ours(held.record, begun):
                    return held.record if held is not None else None
                held = await self.repository.save_grant(
                    replace(held.record, renewal=renewal, updated_at=self.clock.now()), expect=held.generation
                )
                return held.record
        return replace(begun, renewal=renewal)

    def _count(self, app: OAuthApp, error: BrokerError) -> None:
        if self.circuits.failed(app.name, error):
            self.tell("renewals pause", app=app.name, code=error.code.value, note=error.note)

    def _note(self, entry: TokenRenewed | RenewalFailed) -> None:
        """After the fact: a log that cannot be written must not cost a token that is stored. The token is not handed
        out without an entry of its own."""
        try:
            self.audit.write(entry, self.clock.now())
        except BrokerError as error:
            self.tell("the audit log lacks an entry", app=entry.app, code=error.code.value)


def _is_ours(grant: Grant, begun: Grant) -> bool:
    intent, mine = grant.renewal.intent, begun.renewal.intent
    return not grant.revoked and intent is not None and mine is not None and intent.attempt == mine.attempt


def _after(renewal: Renewal, refused: RenewalRefused, now: datetime) -> tuple[Renewal, BrokerError]:
    """(what the grant remembers, what the caller is told)."""
    intent = renewal.intent
    lost = intent is not None and intent.lost > 0
    trouble = BrokerError(refused.code, note=refused.note, retry_after_seconds=refused.retry_after_seconds)
    refusals = renewal.refused + 1
    match refused.code:
        case Code.SUBJECT_MISMATCH:
            return renewal.over("quarantined"), trouble
        case Code.EXCHANGE_FAILED if refusals < UNCLEAR:
            again = BrokerError(Code.PROVIDER_UNREACHABLE, note=refused.note, retry_after_seconds=1)
            return replace(renewal.unsent(), refused=refusals), again
        case Code.REAUTH_REQUIRED | Code.EXCHANGE_FAILED if lost:
            return renewal.over("uncertain"), BrokerError(Code.REFRESH_UNCERTAIN, note=refused.note)
        case Code.REAUTH_REQUIRED | Code.EXCHANGE_FAILED:
            return renewal.over("dead"), BrokerError(Code.REAUTH_REQUIRED, note=refused.note)
    if not refused.spent:
        return renewal.unsent(), trouble
    if refused.tokens:
        spare = refused.tokens[0] if len(refused.tokens) > 1 else renewal.spare
        return replace(renewal, intent=None, spare=spare), trouble
    return renewal.lost(now), trouble
