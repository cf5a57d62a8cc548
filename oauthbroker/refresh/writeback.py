"""Write a refresh into its grant: the intent before the request, the token or the refusal after it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from oauthbroker.audit import RefreshFailed, TokenRefreshed, UnusualAnswer
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.single_flight import InFlightCall
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.located_app import located
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.refresh_call import Redeemed
from oauthbroker.protocol.refresh_messages import RefreshRefused
from oauthbroker.records import Grant, RefreshState, Retired, overlapping_refreshes
from oauthbroker.records.refresh_state import Intent
from oauthbroker.records.unrevoked_tokens import awaits, with_late
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.refusal_assessment import RefusalAssessment
from oauthbroker.refresh.retry_store import RetryStore, Write
from oauthbroker.repository.repository import Repository, Reservation, Versioned

UNUSUAL: Final = "a provider's answer is unusual, and its tokens are kept"


class Dropper(Protocol):
    """Revokes unneeded tokens at the provider. True if the provider has accepted all of them."""

    async def __call__(self, app: App, issued: IssuedTokens) -> bool: ...


class Later(Protocol):
    """Keeps or revokes tokens that came for the grant `begun` after its revocation or replacement."""

    async def __call__(
        self,
        app: App,
        key: GrantKey,
        *,
        refresh: Secret | None,
        access: Secret | None,
        begun: Grant | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The outcome of a refresh: the grant as it is now and, if it has no new token, the reason."""

    grant: Grant | None
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writeback:
    """Writes intents, tokens and refusals. `drop` revokes unneeded tokens; `late` revokes those of a grant that was
    revoked meanwhile."""

    repository: Repository
    retry_store: RetryStore
    drop: Dropper
    late: Later
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    log: Log

    async def begin(self, looked: Versioned[Grant], ahead: Reservation, *, forced: bool) -> Grant | None:
        """Take the space for the answer, seal the intent, and return the grant with it. None if the tokens have changed
        since the caller looked."""
        pair = looked.record.key
        async with self.repository.pair(pair):
            versioned = await self.repository.grant(pair)
            if (
                versioned is None
                or versioned.record.token != looked.record.token
                or not versioned.record.refresh_tokens
            ):
                return None
            now = self.clock.now()
            refresh_state = versioned.record.refresh_state
            if refresh_state.intent is None and await self.repository.may_lack_newer(versioned):
                refresh_state = replace(refresh_state, intent=Intent("", now))  # of an attempt that the store has lost
            refresh_state = refresh_state.begun(random_text(self.clock, 128), now)
            if forced:
                refresh_state = refresh_state.forced_at(now)
            begun = replace(versioned.record, refresh_state=refresh_state)
            return (await self.repository.save_grant(begun, expect=versioned.generation, ahead=ahead)).record

    async def commit(
        self,
        job: RefreshJob,
        in_flight: InFlightCall[Refreshed],
        begun: Grant,
        redeemed: Redeemed,
        reservation: Reservation,
    ) -> Refreshed:
        """Store the token of the answer. A revocation or a login that came meanwhile wins."""
        write = partial(self._store, job, begun, redeemed)
        return await self._keep(in_flight, self._with(redeemed, begun), None, reservation, write)

    async def _keep(
        self,
        in_flight: InFlightCall[Refreshed],
        after: Grant,
        error: BrokerError | None,
        reservation: Reservation,
        write: Write,
    ) -> Refreshed:
        """Store a grant. Until that works, serve it from memory."""

        def meanwhile(code: Code) -> None:
            in_flight.finish(Refreshed(after, error or BrokerError(code)))

        grant, why_not = await self.retry_store.keep_grant(after, reservation, write, meanwhile)
        return Refreshed(grant, error or (BrokerError(why_not) if why_not is not None else None))

    async def _store(
        self, job: RefreshJob, begun: Grant, redeemed: Redeemed, reservation: Reservation | None
    ) -> Grant | None:
        pair = begun.key
        async with self.repository.pair(pair):
            versioned = await self.repository.grant(pair)
            if versioned is not None and overlapping_refreshes.awaits_answer_of(versioned.record, begun):
                grant = self._with(redeemed, versioned.record)
                if not overlapping_refreshes.is_attempted_as(versioned.record, begun):
                    grant = overlapping_refreshes.beside(grant, versioned.record.refresh_state, begun)
                versioned = await self.repository.save_grant(
                    grant, expect=versioned.generation, reservation=reservation
                )
                entry = TokenRefreshed(app=begun.app, grant=begun.id, forced=job.forced)
                await self.note(entry, Metric.REFRESHES, begun.app)
                if set(grant.unusual) - set(begun.unusual):
                    tell_unusual(grant, self.audit, self.clock, self.log)
                return versioned.record
            if (
                versioned is not None
                and (adopted := overlapping_refreshes.adopting(versioned.record, begun, redeemed.token)) is not None
            ):
                access = Retired.of(None, redeemed.token.access_token, self.clock.now())
                adopted = with_late(adopted, replace(access, registration=job.app.registration), job.app, begun)
                return (
                    await self.repository.save_grant(adopted, expect=versioned.generation, reservation=reservation)
                ).record
            await self.repository.sync("grants")  # it may be the one that a failed write has put there
        is_over = versioned is None or awaits(versioned.record, job.app.registration)
        refresh, access_token, instead_of = (
            redeemed.refresh_token,
            redeemed.token.access_token,
            None if is_over else begun,
        )
        await self.late(job.app, pair, refresh=refresh, access=access_token, begun=instead_of)
        return versioned.record if versioned is not None else None

    def _with(self, redeemed: Redeemed, grant: Grant) -> Grant:
        token, scopes, data = redeemed.token, redeemed.scopes, redeemed.provider_data
        more: dict[str, Any] = {"verified": redeemed.verified, "unusual": redeemed.unusual}
        grant = replace(grant, ends=redeemed.ends)
        return grant.refreshed(token, scopes, self.clock.now(), data, **more)

    async def refuse(
        self,
        job: RefreshJob,
        in_flight: InFlightCall[Refreshed],
        begun: Grant,
        assessment: RefusalAssessment,
        reservation: Reservation,
    ) -> Refreshed:
        """Store the meaning of a refusal for the grant. A revocation or a login that came meanwhile wins."""
        refused, refresh_state, error = assessment.refused, assessment.state, assessment.error
        code = error.code.value
        await self.note(RefreshFailed(app=begun.app, grant=begun.id, code=code), Metric.REFRESH_FAILURES, code)
        if assessment.is_loud:
            self._tell(begun, refused, refresh_state, code)
        after = begun.refused(refresh_state, self.clock.now(), rejected=job.rejected is not None)
        write = partial(self._write_down, begun, after)
        if refused.spare is not None and not refresh_state.ended:  # perhaps the only one that lives: kept like a token
            refreshed = await self._keep(in_flight, after, error, reservation, write)
        else:
            refreshed = Refreshed(after, error)  # an intent that stays says no more than that the token may be spent
            with suppress(BrokerError):
                grant = await write(reservation)
                if refresh_state.is_over and grant is not None and not grant.refresh_state.is_over:
                    error = BrokerError(Code.REFRESH_IN_PROGRESS, retry_after_seconds=1)  # of another attempt
                refreshed = Refreshed(grant, error)
        await self._drop_unwanted(job.app, begun, refused, refresh_state, refreshed.grant)
        return refreshed

    def _tell(self, begun: Grant, refused: RefreshRefused, refresh_state: RefreshState, code: str) -> None:
        fields = {"app": begun.app, "grant": begun.id[:15], "code": code, "note": refused.note}
        if refresh_state.given_up:
            self.log.warning("a refresh token is given up for now", **fields)
        else:
            self.log.warning("a refresh was refused", **fields, ended=refresh_state.ended)

    async def withdraw(self, begun: Grant) -> None:
        """Take back an intent whose request was not sent. One that stays says no more than that the token may be
        spent."""
        with suppress(BrokerError):
            await self._write_down(begun, replace(begun, refresh_state=begun.refresh_state.unsent()), None)

    async def _write_down(self, begun: Grant, after: Grant, reservation: Reservation | None) -> Grant | None:
        async with self.repository.pair(begun.key):
            versioned = await self.repository.grant(begun.key)
            changed = (
                overlapping_refreshes.after_refusal(versioned.record, begun, after) if versioned is not None else None
            )
            if versioned is None or changed is None:
                await self.repository.sync("grants")
                return versioned.record if versioned is not None else None
            return (
                await self.repository.save_grant(changed, expect=versioned.generation, reservation=reservation)
            ).record

    async def _drop_unwanted(
        self, app: App, begun: Grant, refused: RefreshRefused, refresh_state: RefreshState, grant: Grant | None
    ) -> None:
        is_over = grant is None or awaits(grant, app.registration)
        is_replaced = grant is not None and grant.consent != begun.consent
        if is_over or (is_replaced and not refresh_state.ended):
            if refused.spare is not None or refused.access is not None:
                instead_of = None if is_over else begun
                await self.late(app, begun.key, refresh=refused.spare, access=refused.access, begun=instead_of)
            return
        spare = refused.spare if refresh_state.ended else None  # while the grant may go on, it may be all it has
        unwanted = IssuedTokens.of(spare, refused.access)
        if unwanted and app.revocation.reach == "token":
            await self.drop(located(app, begun.provider_data), unwanted)

    async def note(self, entry: TokenRefreshed | RefreshFailed, metric: Metric, label: str) -> None:
        """Enter a refresh in the audit log after it has happened: a log that cannot be written must not cost a stored
        token. The token is handed out only with an entry of its own."""
        self.metrics.add(metric, label)
        _enter(entry, self.audit, self.clock, self.log)


def tell_unusual(grant: Grant, audit: AuditWriter, clock: Clock, log: Log) -> None:
    """Tell the operator what the answer behind a stored grant could have been refused for."""
    log.warning(UNUSUAL, app=grant.app, grant=grant.id[:15], unusual=list(grant.unusual))
    _enter(UnusualAnswer(app=grant.app, grant=grant.id, unusual=" ".join(grant.unusual)), audit, clock, log)


def _enter(entry: TokenRefreshed | RefreshFailed | UnusualAnswer, audit: AuditWriter, clock: Clock, log: Log) -> None:
    try:
        audit.write(entry, clock.now())
    except BrokerError as error:
        log.warning("the audit log lacks an entry", app=entry.app, code=error.code.value)
