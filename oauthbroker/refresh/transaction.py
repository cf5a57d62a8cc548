"""The refresh transaction: the numbered steps of docs/refresh.md, "How it works".

The intent of step 5 fences all later writes: a revocation or a new consent that came meanwhile has removed it, and
wins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from oauthbroker.audit import RefreshFailed, TokenRefreshed
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.single_flight import InFlightCall, SingleFlight
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.located_app import located
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric
from oauthbroker.observability.tracing import Span, span
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.refresh_call import Redeemer
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, Token, overlapping_refreshes
from oauthbroker.refresh.after_failure import Failures
from oauthbroker.refresh.circuit import Circuits
from oauthbroker.refresh.client_credentials import ClientCredentials
from oauthbroker.refresh.clients import Clients
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.writeback import Refreshed, Writeback
from oauthbroker.repository.repository import Lease, Repository, Versioned

PROVIDER_CALLS = 5  # discovery, two refresh tokens, keys, userinfo: how long a refresh may last, and is waited for


@dataclass(slots=True, kw_only=True)
class RefreshTransaction:
    """Refreshes by refresh token, or by `fetch` where the app uses client credentials."""

    repository: Repository
    discovery: Discovery
    redeemer: Redeemer
    fetch: ClientCredentials
    writeback: Writeback
    circuits: Circuits
    clients: Clients
    clock: Clock
    limits: Limits
    log: Log
    failures: Failures = field(init=False)
    _single_flight: SingleFlight[Refreshed] = field(default_factory=SingleFlight)

    def __post_init__(self) -> None:
        self.failures = Failures(circuits=self.circuits, clients=self.clients, clock=self.clock, log=self.log)

    async def refresh(self, job: RefreshJob) -> Refreshed:
        """Refresh the grant that the caller has seen, unless another caller has done it meanwhile.

        Never raises: an error is part of the answer, `brokerUnreachable` when the broker is closing. A caller that is
        cancelled does not cancel the refresh.
        """
        try:
            return await self._single_flight.join(  # (1) one call in this process
                job.key,
                lambda in_flight: self._settle(job, in_flight),
                lambda: Refreshed(None, BrokerError(Code.STORE_UNAVAILABLE)),
            )
        except BrokerError as error:
            closing = error.with_traceback(None)
        return Refreshed(await self._newest_or_none(job), closing)

    async def close(self) -> None:
        """Send no further refresh and wait for those under way. Tokens that are not stored yet get one more try."""
        self.writeback.retry_store.close()
        await self._single_flight.close()

    async def _settle(self, job: RefreshJob, in_flight: InFlightCall[Refreshed]) -> Refreshed:
        """Run steps 2 to 9. Trouble becomes part of the answer, with the grant as it is then."""
        try:
            with span(Span.REFRESH, app=job.app.name):
                async with self._lease(job) as lease:  # (2) one call in all processes
                    return await (
                        self._without_lease(job) if lease is None else self._under_lease(job, in_flight, lease)
                    )
        except BrokerError as error:
            failure = error.with_traceback(None)
        return Refreshed(await self._newest_or_none(job), failure)

    async def _under_lease(self, job: RefreshJob, in_flight: InFlightCall[Refreshed], lease: Lease) -> Refreshed:
        versioned = await self._newest(job)  # (3) read again
        if job.settled_by(versioned):
            return Refreshed(_record(versioned))
        if job.app.flow == "clientCredentials":
            return await self._by_client_credentials(job, versioned)
        if versioned is None or not job.can_send(versioned.record, self.clock.now()):
            return Refreshed(_record(versioned))
        if not await lease.holds():  # nothing may be sent yet: the store has lost its last writes
            return await self._without_lease(job)
        return await self._by_refresh_token(job, versioned, in_flight, lease)

    async def _by_refresh_token(
        self, job: RefreshJob, versioned: Versioned[Grant], in_flight: InFlightCall[Refreshed], lease: Lease
    ) -> Refreshed:
        self.failures.check_pause(versioned.record, forced=job.forced)
        async with self._turn(job):  # (10) the app's circuit lets us ask
            endpoints = await self._endpoints(located(job.app, versioned.record.provider_data), job)
            async with self.repository.reserve_for(versioned, now=False) as reservation:
                # (4) space on the disk, (5) the intent is sealed
                begun = await self.writeback.begin(versioned, reservation, forced=job.forced)
                if begun is None:  # a revocation or a new consent came since step 3
                    return Refreshed(_record(await self._newest(job)))
                try:
                    redeemed = await self.redeemer.redeem(  # (6) ask, (7) assess the answer
                        job.app, endpoints, begun, partial(self._may_send, job, begun, lease)
                    )
                except RefreshRefused as error:
                    refused = error
                except BrokerError:  # the store does not say whether it may be sent
                    await self.writeback.withdraw(begun)
                    raise
                else:
                    if redeemed is None:  # another attempt has come in between, or the lease is lost
                        await self.writeback.withdraw(begun)
                        return await self._without_lease(job)
                    self._count_over(begun, redeemed.token)
                    return await self.writeback.commit(
                        job, in_flight, begun, redeemed, reservation
                    )  # (8) store, (9) then answer
                assessment = self.failures.refused(begun, refused)
                return await self.writeback.refuse(job, in_flight, begun, assessment, reservation)

    async def _may_send(self, job: RefreshJob, begun: Grant, lease: Lease, secret: Secret) -> bool:
        """Read the grant again, right before a refresh token is sent: it is still the grant's, and so is the intent. A
        process that was frozen or cut off may have lost both without a word. Then ask whether the lease is held."""
        versioned = await self._newest(job)
        if (
            versioned is None
            or not overlapping_refreshes.is_attempted_as(versioned.record, begun)
            or secret not in versioned.record.refresh_tokens
        ):
            return False
        return await lease.holds()

    async def _by_client_credentials(self, job: RefreshJob, versioned: Versioned[Grant] | None) -> Refreshed:
        app = job.app.name
        async with self._turn(job):
            try:
                fetched = await self.fetch(job, versioned)
            except BrokerError as error:
                code = error.code.value
                self.failures.not_fetched(app, job.grant, error)
                await self.writeback.note(
                    RefreshFailed(app=app, grant=job.grant, code=code), Metric.REFRESH_FAILURES, code
                )
                raise
        if fetched is not None:
            self._count_over(fetched, fetched.token)
            await self.writeback.note(
                TokenRefreshed(app=app, grant=job.grant, forced=job.forced), Metric.REFRESHES, app
            )
        return Refreshed(fetched)

    def _count_over(self, grant: Grant, token: Token | None) -> None:
        """Count a success, and a failure beside it where no caller can get the new token: it is over already."""
        if (code := self.failures.worked(grant, token)) is not None:
            self.writeback.metrics.add(Metric.REFRESH_FAILURES, code.value)

    @asynccontextmanager
    async def _lease(self, job: RefreshJob) -> AsyncIterator[Lease | None]:
        """Hold the provider lease of the pair. Yields None where another process keeps it for longer than we wait."""
        async with AsyncExitStack() as stack:
            lease: Lease | None = None
            try:
                wait = PROVIDER_CALLS * self.limits.provider_seconds
                lease = await stack.enter_async_context(self.repository.provider_lease(job.key, wait=wait))
            except BrokerError as error:
                if error.code is not Code.STORE_LOCKED:
                    raise
            yield lease

    async def _without_lease(self, job: RefreshJob) -> Refreshed:
        """Return what another process has made of the grant. Raises `refreshInProgress` where it is not done."""
        versioned = await self._newest(job)
        if job.settled_by(versioned):
            return Refreshed(_record(versioned))
        raise BrokerError(Code.REFRESH_IN_PROGRESS, retry_after_seconds=1)

    @asynccontextmanager
    async def _turn(self, job: RefreshJob) -> AsyncIterator[None]:
        """Hold a place at the provider. Raises `brokerUnreachable` for one that came after the close: nothing was sent
        yet, and a long row would keep an ending process for minutes."""
        async with self.circuits.permit(job.app.name, job.grant, wait=self.limits.provider_seconds):
            self._single_flight.check_open()
            yield

    async def _endpoints(self, app: App, job: RefreshJob) -> Endpoints:
        try:
            return await self.discovery.endpoints(app)
        except BrokerError as error:
            own = bool(app.params)  # the issuer may be at a host of this connection
            self.failures.count(app.name, error, job.grant if own else "", own=own)
            raise

    async def _newest(self, job: RefreshJob) -> Versioned[Grant] | None:
        return await self.repository.grant(job.key)

    async def _newest_or_none(self, job: RefreshJob) -> Grant | None:
        """Return the grant as it is now: it may have been revoked meanwhile. None when the store cannot be read."""
        try:
            return _record(await self._newest(job))
        except BrokerError:
            return None


def _record(versioned: Versioned[Grant] | None) -> Grant | None:
    return versioned.record if versioned is not None else None
