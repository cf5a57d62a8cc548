"""Renewing a grant's token as one transaction, once for everybody who waits for it.

In-process single flight -> flight lease -> re-read -> room on disk -> sealed intent -> provider -> commit -> answer.
A caller that leaves cancels nothing. Nobody goes ahead without the lease: whoever cannot have it reads again and
says so. What is written is fenced by the intent: a revoke or a new login that came meanwhile has removed it and wins.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

from oauthbroker.apps import Endpoints, Limits, OAuthApp
from oauthbroker.audit import AuditWriter, RenewalFailed, TokenRenewed
from oauthbroker.circuit import Circuits
from oauthbroker.clock import Clock, random_text
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.finish import Revoker
from oauthbroker.keeper import Keeper, Tell, Write
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.redeem import Redeemed, Redeemer
from oauthbroker.protocol.refresh import CLIENT_UNKNOWN, RenewalRefused
from oauthbroker.records import Grant, Renewal, grant_id
from oauthbroker.repository import Conflict, Held, Repository, Room
from oauthbroker.secret import Secret
from oauthbroker.single_flight import Flight, SingleFlight

PROVIDER_CALLS = 4  # discovery, two refresh tokens, keys: how long a flight may last, and so how long to wait for one


class Fetcher(Protocol):
    """Gets a new token for a client that asks for itself; the grant as it is then."""

    async def __call__(
        self, app: OAuthApp, subject: str, held: Held[Grant] | None, rejected: Secret | None, *, forced: bool
    ) -> Grant | None: ...


class Later(Protocol):
    """Ends tokens that came for a grant of this subject that was revoked meanwhile."""

    async def __call__(self, app: OAuthApp, subject: str, *, refresh: Secret | None, access: Secret | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Renewed:
    """What a renewal came to: the grant as it is now and, where it has no new token, why."""

    grant: Grant | None
    trouble: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """Whose token is to be renewed, and what its caller saw. `rejected` is a token that the provider's API refused."""

    app: OAuthApp
    subject: str
    seen: Held[Grant] | None
    rejected: Secret | None
    early: bool = False

    @property
    def forced(self) -> bool:
        """The token seems to live: such renewals are counted."""
        return self.rejected is not None or self.early

    @property
    def before(self) -> Grant | None:
        return self.seen.record if self.seen is not None else None

    def moved_on(self, held: Held[Grant] | None) -> bool:
        """Whether somebody else has renewed, ended or replaced what the caller saw."""
        before = self.before
        if held is None or before is None:
            return (held is None) is not (before is None)
        now = held.record
        if self.rejected is not None:
            return now.token is None or now.token.access_token != self.rejected
        return (now.token, now.revoked, now.renewal.ended) != (before.token, before.revoked, before.renewal.ended)


@dataclass(slots=True)
class Refresh:
    """Renews by refresh token, or by `fetch` where the client asks for itself. `drop` tells a provider of tokens that
    nobody wants, `late` of those that came for a grant that was revoked meanwhile; `tell` writes the log."""

    repository: Repository
    discovery: Discovery
    redeemer: Redeemer
    fetch: Fetcher
    drop: Revoker
    late: Later
    circuits: Circuits
    keeper: Keeper
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    limits: Limits
    tell: Tell
    _flights: SingleFlight[Renewed] = field(default_factory=SingleFlight)

    async def renew(
        self,
        app: OAuthApp,
        subject: str,
        seen: Held[Grant] | None,
        *,
        rejected: Secret | None = None,
        early: bool = False,
    ) -> Renewed:
        """One renewal of the grant that the caller `seen`, or what somebody else made of it meanwhile.

        `rejected` is renewed although it seems to live, and so is a token that somebody finds too old `early` in its
        life. Never raises: trouble is part of the answer.
        """
        job = _Job(app, subject, seen, rejected, early)
        return await self._flights.join(
            (app.name, subject),
            lambda flight: self._answer(job, flight),
            lambda: Renewed(None, BrokerError(Code.STORE_UNAVAILABLE)),
        )

    async def close(self) -> None:
        """Waits for what is under way; what could not be stored so far gets one more try."""
        self.keeper.close()
        await self._flights.close()

    async def _answer(self, job: _Job, flight: Flight[Renewed]) -> Renewed:
        try:
            return await self._transaction(job, flight)
        except BrokerError as error:
            trouble = error.with_traceback(None)
        except Conflict:
            trouble = BrokerError(Code.STORE_LOCKED)
        return Renewed(await self._as_it_is(job), trouble)

    async def _as_it_is(self, job: _Job) -> Grant | None:
        """The grant now: it may have been revoked while we waited for something that failed. None when nobody knows."""
        try:
            held = await self.repository.grant(job.app.name, job.subject)
        except BrokerError:
            return None
        return held.record if held is not None else None

    async def _transaction(self, job: _Job, flight: Flight[Renewed]) -> Renewed:
        wait, entered = PROVIDER_CALLS * self.limits.provider_seconds, False
        try:
            async with self.repository.flight(job.app.name, job.subject, wait=wait):
                entered = True
                return await self._in_flight(job, flight)
        except BrokerError as error:
            if entered or error.code is not Code.STORE_LOCKED:
                raise
        held = await self.repository.grant(job.app.name, job.subject)
        if job.moved_on(held):
            return Renewed(held.record if held is not None else None)
        raise BrokerError(Code.REFRESH_IN_PROGRESS, retry_after_seconds=1)

    async def _in_flight(self, job: _Job, flight: Flight[Renewed]) -> Renewed:
        app = job.app
        held = await self.repository.grant(app.name, job.subject)
        grant = held.record if held is not None else None
        if job.moved_on(held):
            return Renewed(grant)
        if app.flow == "clientCredentials":
            return await self._fetch(job, held)
        if held is None or grant is None or not grant.refresh_tokens or grant.registration != app.registration:
            return Renewed(grant)
        self._check_pause(grant)
        async with self.circuits.turn(app.name, grant.id, wait=self.limits.provider_seconds):
            endpoints = await self._endpoints(app)
            async with self.repository.room_for(grant) as room:
                begun = await self._begin(job, held)
                if begun is not None:
                    return await self._redeem(job, flight, begun.record, endpoints, room)
        latest = await self.repository.grant(app.name, job.subject)
        return Renewed(latest.record if latest is not None else None)

    async def _fetch(self, job: _Job, held: Held[Grant] | None) -> Renewed:
        app = job.app
        async with self.circuits.turn(app.name, wait=self.limits.provider_seconds):
            try:
                grant = await self.fetch(app, job.subject, held, job.rejected, forced=job.forced)
            except BrokerError as error:
                self._count(app.name, error)
                self._not_fetched(job, error)
                raise
        self.circuits.worked(app.name)
        if grant is not None:
            self._note(TokenRenewed(app.name, grant.id, job.forced))
            self.metrics.add(Metric.RENEWALS, app.name)
        return Renewed(grant)

    def _not_fetched(self, job: _Job, error: BrokerError) -> None:
        self._note(RenewalFailed(job.app.name, grant_id(job.app.name, job.subject), error.code.value))
        self.metrics.add(Metric.RENEWAL_FAILURES, error.code.value)
        if not error.retryable:
            self.tell("a token could not be fetched", app=job.app.name, code=error.code.value, note=error.note)

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
            self._count(app.name, error)
            raise

    async def _begin(self, job: _Job, looked: Held[Grant]) -> Held[Grant] | None:
        """Seals the intent. None when somebody changed the tokens since we looked: there is nothing to renew."""
        async with self.repository.pair(job.app.name, job.subject):
            held = await self.repository.grant(job.app.name, job.subject)
            if held is None or held.record.token != looked.record.token or not held.record.refresh_tokens:
                return None
            now = self.clock.now()
            renewal = held.record.renewal.begun(random_text(self.clock, 128), now)
            if job.forced:
                renewal = renewal.forced_at(now)
            return await self.repository.save_grant(replace(held.record, renewal=renewal), expect=held.generation)

    async def _redeem(
        self, job: _Job, flight: Flight[Renewed], begun: Grant, endpoints: Endpoints, room: Room
    ) -> Renewed:
        try:
            redeemed = await self.redeemer.redeem(job.app, endpoints, begun)
        except RenewalRefused as error:
            refused = error
        else:
            self._worked(begun, redeemed)
            return await self._commit(job, flight, begun, redeemed, room)
        return await self._refused(job, flight, begun, refused, room)

    def _worked(self, begun: Grant, redeemed: Redeemed) -> None:
        self.circuits.worked(begun.app, begun.id)
        if not redeemed.token.lives(0, self.clock.now()):  # or every call would ask for another one like it
            self.circuits.pause_one(begun.app, begun.id, BrokerError(Code.TOKEN_RESPONSE_INVALID))

    async def _commit(
        self, job: _Job, flight: Flight[Renewed], begun: Grant, redeemed: Redeemed, room: Room
    ) -> Renewed:
        """Stores what the provider gave."""

        async def write(room: Room | None) -> Grant | None:
            return await self._store(job, begun, redeemed, room)

        return await self._keep(flight, self._with(redeemed, begun), None, room, write)

    async def _keep(
        self, flight: Flight[Renewed], after: Grant, trouble: BrokerError | None, room: Room, write: Write
    ) -> Renewed:
        """Written, or served from memory until it is."""

        def meanwhile(code: Code) -> None:
            flight.land(Renewed(after, trouble or BrokerError(code)))

        grant, why_not = await self.keeper.keep(after, room, write, meanwhile)
        return Renewed(grant, trouble or (BrokerError(why_not) if why_not is not None else None))

    async def _store(self, job: _Job, begun: Grant, redeemed: Redeemed, room: Room | None) -> Grant | None:
        async with self.repository.pair(begun.app, begun.subject):
            held = await self.repository.grant(begun.app, begun.subject)
            if held is not None and held.record.is_attempted_as(begun):
                grant = self._with(redeemed, held.record)
                held = await self.repository.save_grant(grant, expect=held.generation, room=room)
                self._note(TokenRenewed(begun.app, begun.id, job.forced))
                self.metrics.add(Metric.RENEWALS, begun.app)
                return held.record
            if held is not None and (adopted := held.record.adopting(begun, redeemed.token)) is not None:
                return (await self.repository.save_grant(adopted, expect=held.generation, room=room)).record
        if held is None or held.record.revoked:  # a new login may share its grant with these tokens: then they are left
            access = redeemed.token.access_token
            await self.late(job.app, begun.subject, refresh=redeemed.refresh_token, access=access)
        return held.record if held is not None else None

    def _with(self, redeemed: Redeemed, grant: Grant) -> Grant:
        return grant.renewed(redeemed.token, redeemed.scopes, self.clock.now())

    async def _refused(
        self, job: _Job, flight: Flight[Renewed], begun: Grant, refused: RenewalRefused, room: Room
    ) -> Renewed:
        """What a refusal means for the grant, written down; a revoke or a login that came meanwhile wins."""
        came = refused.spare is not None or refused.access is not None
        renewal = begun.renewal.after(
            refused.code, spent=refused.spent, came=came, spare=refused.spare, at=self.clock.now()
        )
        trouble = _trouble(refused, renewal)
        self._count_refusal(begun, refused)
        self._note(RenewalFailed(begun.app, begun.id, trouble.code.value))
        self.metrics.add(Metric.RENEWAL_FAILURES, trouble.code.value)
        if renewal.ended or came or refused.code in {Code.TOKEN_RESPONSE_INVALID, Code.APP_MISCONFIGURED}:
            self.tell(
                "a renewal was refused",
                app=begun.app, grant=begun.id[:15], code=trouble.code.value, note=refused.note, ended=renewal.ended,
            )  # fmt: skip
        renewed = await self._write_down(job, flight, begun, refused, renewal, room)
        await self._drop_unwanted(job.app, refused, renewal, renewed.grant)
        return renewed

    async def _write_down(
        self, job: _Job, flight: Flight[Renewed], begun: Grant, refused: RenewalRefused, renewal: Renewal, room: Room
    ) -> Renewed:
        """A spare may be the only refresh token that lives, so it is kept like a token; the rest can be found out
        again: an intent that stays says no more than that the token may be spent."""
        after = begun.refused(renewal, self.clock.now(), rejected=job.rejected is not None)
        trouble = _trouble(refused, renewal)

        async def write(room: Room | None) -> Grant | None:
            async with self.repository.pair(begun.app, begun.subject):
                held = await self.repository.grant(begun.app, begun.subject)
                if held is None or not held.record.is_attempted_as(begun):
                    return held.record if held is not None else None
                changed = held.record.refused(renewal, self.clock.now(), rejected=job.rejected is not None)
                return (await self.repository.save_grant(changed, expect=held.generation, room=room)).record

        if refused.spare is not None and not renewal.ended:
            return await self._keep(flight, after, trouble, room, write)
        with suppress(BrokerError, Conflict):
            return Renewed(await write(room), trouble)
        return Renewed(after, trouble)

    async def _drop_unwanted(
        self, app: OAuthApp, refused: RenewalRefused, renewal: Renewal, grant: Grant | None
    ) -> None:
        if grant is not None and grant.revoked:
            if refused.spare is not None or refused.access is not None:
                await self.late(app, grant.subject, refresh=refused.spare, access=refused.access)
            return
        spare = refused.spare if renewal.ended else None  # while the grant may go on, it may be all it has
        unwanted = tuple(secret for secret in (spare, refused.access) if secret is not None)
        if unwanted and app.revocation.reach == "token":
            await self.drop(app, unwanted)

    def _count_refusal(self, begun: Grant, refused: RenewalRefused) -> None:
        """What may be this grant's own trouble does not stop everybody's; a provider that speaks of our client, asks
        for patience or was not reached at all speaks of everybody's."""
        about_all = refused.note in CLIENT_UNKNOWN or refused.retry_after_seconds is not None or not refused.spent
        if refused.code is Code.APP_MISCONFIGURED:
            about_all = refused.note in CLIENT_UNKNOWN
        self._count(begun.app, refused, begun.id, own=not about_all)
        if refused.code in {Code.TOKEN_RESPONSE_INVALID, Code.SCOPE_EXCEEDED, Code.ID_TOKEN_INVALID}:
            self.circuits.pause_one(begun.app, begun.id, refused)
        elif refused.code is Code.EXCHANGE_FAILED:
            self.circuits.pause_one(begun.app, begun.id, BrokerError(Code.PROVIDER_UNREACHABLE))

    def _count(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> None:
        if self.circuits.failed(app, error, grant, own=own):
            self.tell("renewals pause", app=app, code=error.code.value, note=error.note)

    def _note(self, entry: TokenRenewed | RenewalFailed) -> None:
        """After the fact: a log that cannot be written must not cost a token that is stored. The token is not handed
        out without an entry of its own."""
        try:
            self.audit.write(entry, self.clock.now())
        except BrokerError as error:
            self.tell("the audit log lacks an entry", app=entry.app, code=error.code.value)


def _trouble(refused: RenewalRefused, renewal: Renewal) -> BrokerError:
    """What the caller is told, now that the grant remembers the refusal as `renewal`."""
    match renewal.ended:
        case "dead":
            return BrokerError(Code.REAUTH_REQUIRED, note=refused.note)
        case "uncertain":
            return BrokerError(Code.REFRESH_UNCERTAIN, note=refused.note)
    if refused.code is Code.EXCHANGE_FAILED:  # perhaps dead: the next try tells
        return BrokerError(Code.PROVIDER_UNREACHABLE, note=refused.note, retry_after_seconds=1)
    return BrokerError(refused.code, note=refused.note, retry_after_seconds=refused.retry_after_seconds)
