"""Renewing a grant's token as one transaction, once for everybody who waits for it.

In-process single flight -> flight lease -> re-read -> room on disk -> sealed intent -> provider -> commit -> answer.
A caller that leaves cancels nothing. Nobody goes ahead without the lease: whoever cannot have it reads again and
says so. What is written is fenced by the intent: a revoke or a new login that came meanwhile has removed it and wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from oauthbroker.apps import Endpoints, OAuthApp
from oauthbroker.audit import RenewalFailed, TokenRenewed
from oauthbroker.circuit import Circuits
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.keeper import Tell
from oauthbroker.metrics import Metric
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.redeem import Redeemer
from oauthbroker.protocol.refresh import RenewalRefused
from oauthbroker.records import Grant, Token, grant_id
from oauthbroker.renewing import Renewed, Renewing
from oauthbroker.repository import Held, Repository, Room
from oauthbroker.secret import Secret
from oauthbroker.settings import Limits
from oauthbroker.single_flight import Flight, SingleFlight
from oauthbroker.tracing import Span, span

PROVIDER_CALLS = 4  # discovery, two refresh tokens, keys: how long a flight may last, and so how long to wait for one
REFUSED_BY_US = frozenset({Code.TOKEN_RESPONSE_INVALID, Code.SCOPE_EXCEEDED, Code.ID_TOKEN_INVALID})


class Fetcher(Protocol):
    """Gets a new token for a client that asks for itself; the grant as it is then."""

    async def __call__(
        self, app: OAuthApp, subject: str, held: Held[Grant] | None, rejected: Secret | None, *, forced: bool
    ) -> Grant | None: ...


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
    """Renews by refresh token, or by `fetch` where the client asks for itself. `tell` writes the log."""

    repository: Repository
    discovery: Discovery
    redeemer: Redeemer
    fetch: Fetcher
    renewing: Renewing
    circuits: Circuits
    clock: Clock
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
        life. Never raises: trouble is part of the answer, `brokerUnreachable` when the broker is ending.
        """
        job = _Job(app, subject, seen, rejected, early)
        try:
            return await self._flights.join(
                (app.name, subject),
                lambda flight: self._answer(job, flight),
                lambda: Renewed(None, BrokerError(Code.STORE_UNAVAILABLE)),
            )
        except BrokerError as error:
            ending = error.with_traceback(None)
        return Renewed(await self._as_it_is(job), ending)

    async def close(self) -> None:
        """Begins nothing more, and waits for what is under way; what could not be stored so far gets one more try."""
        self.renewing.keeper.close()
        await self._flights.close()

    async def _answer(self, job: _Job, flight: Flight[Renewed]) -> Renewed:
        try:
            with span(Span.REFRESH, app=job.app.name):
                return await self._transaction(job, flight)
        except BrokerError as error:
            trouble = error.with_traceback(None)
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
                begun = await self.renewing.begin(held, forced=job.forced)
                if begun is not None:
                    return await self._redeem(job, flight, begun, endpoints, room)
        latest = await self.repository.grant(app.name, job.subject)
        return Renewed(latest.record if latest is not None else None)

    async def _fetch(self, job: _Job, held: Held[Grant] | None) -> Renewed:
        app, grant = job.app, grant_id(job.app.name, job.subject)
        async with self.circuits.turn(app.name, grant, wait=self.limits.provider_seconds):
            try:
                fetched = await self.fetch(app, job.subject, held, job.rejected, forced=job.forced)
            except BrokerError as error:
                self._not_fetched(app, grant, error)
                raise
        if fetched is not None:
            self._worked(app.name, grant, fetched.token)
            self.renewing.note(TokenRenewed(app.name, grant, job.forced), Metric.RENEWALS, app.name)
        return Renewed(fetched)

    def _not_fetched(self, app: OAuthApp, grant: str, error: BrokerError) -> None:
        self._count(app.name, error)
        if error.code in REFUSED_BY_US:
            self.circuits.pause_one(app.name, grant, error)
        self.renewing.note(RenewalFailed(app.name, grant, error.code.value), Metric.RENEWAL_FAILURES, error.code.value)
        if not error.retryable:
            self.tell("a token could not be fetched", app=app.name, code=error.code.value, note=error.note)

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

    async def _redeem(
        self, job: _Job, flight: Flight[Renewed], begun: Grant, endpoints: Endpoints, room: Room
    ) -> Renewed:
        try:
            redeemed = await self.redeemer.redeem(job.app, endpoints, begun)
        except RenewalRefused as error:
            refused = error
        else:
            self._worked(begun.app, begun.id, redeemed.token)
            return await self.renewing.commit(job.app, flight, begun, redeemed, room, forced=job.forced)
        self._count_refusal(begun, refused)
        return await self.renewing.refuse(job.app, flight, begun, refused, room, rejected=job.rejected is not None)

    def _worked(self, app: str, grant: str, token: Token | None) -> None:
        self.circuits.worked(app, grant)
        if token is not None and not token.lives(0, self.clock.now()):  # or every call would ask for another like it
            self.circuits.pause_one(app, grant, BrokerError(Code.TOKEN_RESPONSE_INVALID))

    def _count_refusal(self, begun: Grant, refused: RenewalRefused) -> None:
        """What may be this grant's own trouble does not stop everybody's; a provider that speaks of our client, is
        away for a time or was not reached at all speaks of everybody's. Many limit each account by itself: 429 is
        about everybody once several have heard it."""
        about_all = refused.of_client or refused.retry_after_seconds is not None or not refused.spent
        if refused.code is Code.APP_MISCONFIGURED:
            about_all = refused.of_client
        elif refused.code is Code.PROVIDER_RATE_LIMITED:
            about_all = False
        self._count(begun.app, refused, begun.id, own=not about_all)
        if refused.code in REFUSED_BY_US:
            self.circuits.pause_one(begun.app, begun.id, refused)  # renewing says so in the log
        elif refused.code is Code.EXCHANGE_FAILED:
            unclear = BrokerError(Code.REFRESH_REFUSED, note=refused.note)
            if self.circuits.pause_one(begun.app, begun.id, unclear):
                self._tell_of_one(begun.app, begun.id, unclear)

    def _count(self, app: str, error: BrokerError, grant: str = "", *, own: bool = False) -> None:
        match self.circuits.failed(app, error, grant, own=own):
            case "app":
                self.tell("renewals pause", app=app, code=error.code.value, note=error.note)
            case "grant":
                self._tell_of_one(app, grant, error)

    def _tell_of_one(self, app: str, grant: str, error: BrokerError) -> None:
        self.tell("renewals of one grant pause", app=app, grant=grant[:15], code=error.code.value, note=error.note)
