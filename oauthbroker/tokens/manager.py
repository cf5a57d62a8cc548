"""Answer token calls: `OAuthManager` follows the table in docs/embedding.md, with `decision` for its middle part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

from oauthbroker.audit import TokenInjected, TokenIssued, TokenRejected
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.mcp_clients import McpClients
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code, place_of
from oauthbroker.core.secret import Secret
from oauthbroker.model.scope_ceiling import union_in_app_order
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.model.turn import locale_of
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics, Timing
from oauthbroker.observability.tracing import Span, is_traced, span
from oauthbroker.observability.transcript_scrubber import Scrubber
from oauthbroker.records import Grant, grant_id
from oauthbroker.records.provider_data import told_to_tools
from oauthbroker.refresh.background import BackgroundRefresh
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.repository.repository import Entry, Repository, Versioned
from oauthbroker.tokens.asking import Asking
from oauthbroker.tokens.decision import (
    AskPerson,
    Decision,
    RefreshToken,
    Refuse,
    UseToken,
    decide,
    is_early,
    settle,
)
from oauthbroker.tokens.grant_uses import Uses
from oauthbroker.tokens.issuance import Carrier, Issuance, as_issued, words_of
from oauthbroker.tokens.issuance_cache import Issuances
from oauthbroker.tokens.token_call import Caller, Calls, TokenCall

_READY = Timing.TOKEN_CALL, ("ready",)
_NO_REQUEST = Carrier("", "")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Issues(Protocol[T_co]):
    """Answer with the token of a grant."""

    def __call__(self, grant: Grant, version: Entry | None, *, degraded: bool) -> T_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthManager:
    """Answers a token call from a grant, refreshes it, or opens an auth session; never raises."""

    calls: Calls
    repository: Repository
    asking: Asking
    mcp_clients: McpClients
    refresh: RefreshTransaction
    background: BackgroundRefresh
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    settings: Settings
    uses: Uses
    scrubber: Scrubber
    log: Log
    issuances: Issuances = field(default_factory=Issuances)

    def issue_again(
        self,
        caller: Caller,
        app_name: str,
        scopes: Sequence[str] | None,
        min_ttl_seconds: int | None = None,
        *,
        carrier: Carrier | None = None,
    ) -> Ready | None:
        """Do `reissue`, and return the answer."""
        issuance = self.reissue(caller, app_name, scopes, min_ttl_seconds, carrier=carrier)
        return None if issuance is None else issuance.fresh()

    def reissue(
        self,
        caller: Caller,
        app_name: str,
        scopes: Sequence[str] | None,
        min_ttl_seconds: int | None,
        *,
        carrier: Carrier | None = None,
    ) -> Issuance | None:
        """Answer a token call that was answered before, at the cost of one look at the grant's version and one audit
        entry. None if anything may have changed or fails: `get_access_token` decides then, and reports it.

        Check before that the caller's turn has not ended, and wait for nothing in between.
        """
        began = self.clock.monotonic()
        try:
            plain = scopes is None and min_ttl_seconds is None
            words = (app_name, None, None, carrier) if plain else words_of(app_name, scopes, min_ttl_seconds, carrier)
            issuance = caller.issued.get(words) if words is not None else None
            if issuance is None or is_traced() or not issuance.fits(caller.turn, self.calls.apps.get(app_name)):
                return None
            now, version = self.clock.now(), issuance.version
            if version is None or not issuance.since <= now < issuance.until or not self.repository.is_newest(version):
                caller.issued.pop(words, None)  # type: ignore[arg-type]
                return None
            self._issue(issuance, now)
        except Exception:  # noqa: BLE001  (the general way meets it again)
            return None
        self.metrics.note(_READY, self.clock.monotonic() - began)
        return issuance

    async def get_access_token(
        self,
        caller: Caller,
        app_name: str,
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        switch_account: bool = False,
        carrier: Carrier | None = None,
    ) -> TokenResult:
        """Answer a token call. No exception leaves it. `switch_account` is for the runtime only: without a verifiable
        owner a tool could replace the user's account with its own. `carrier`: the broker adds the token to
        that request, so that a tool with `delivery: injected` is answered, too."""

        async def work() -> TokenResult:
            call = self.calls.judge(caller, app_name, scopes, min_ttl_seconds, carrier=carrier)
            if not isinstance(switch_account, bool):
                raise BrokerError(Code.REQUEST_INVALID, note="switchAccount")
            if switch_account and not caller.speaks_for_person:
                raise BrokerError(Code.NOT_ALLOWED, note="a tool asked to switch accounts")
            if switch_account:
                call = call._replace(switch_account=True, words=None)
            return await self._answer(caller, call, partial(self._issue_first, caller, call))

        return await self._watched(caller, app_name, work)

    async def missing_consent(
        self, caller: Caller, app_name: str, scopes: Sequence[str] | None = None
    ) -> AuthorizationRequired | Failed | None:
        """Answer as a token call does, but issue nothing: None stands for a token. A tool with `delivery: injected` is
        answered, too. No exception leaves it."""

        def issue_nothing(*_grant: object, **_how: object) -> None:
            return None

        async def work() -> AuthorizationRequired | None:
            call = self.calls.judge(caller, app_name, scopes, carrier=_NO_REQUEST)
            return await self._answer(caller, call, issue_nothing)

        return await self._answered(caller, work)

    async def report_rejected(
        self,
        caller: Caller,
        app_name: str,
        access_token: Secret,
        scopes: Sequence[str] | None = None,
        *,
        carrier: Carrier | None = None,
        demanded: frozenset[str] = frozenset(),
    ) -> TokenResult:
        """Answer a report that the provider's API refused this token (401), with a newer one, refreshed unless that has
        happened already.

        However many callers report the same token, it is refreshed once. A grant is refreshed at most
        `rejections_per_hour` times an hour (`rateLimited`), so that no tool can flood a provider. A grant that cannot
        be refreshed needs consent, to the scopes that the API `demanded`, too, if all of them are within the ceiling.
        """

        async def work() -> TokenResult:
            call = self.calls.judge(caller, app_name, scopes, carrier=carrier)
            grant = grant_id(call.app.name, call.subject)
            entry = TokenRejected(
                app=app_name,
                grant=grant,
                agent=caller.turn.agent_name,
                tool=caller.tool,
                turn=caller.turn_id,
                instance=caller.instance,
            )
            self.audit.write(entry, self.clock.now())
            asked = self.calls.larger(caller, call, demanded)
            call = call._replace(rejected=access_token, words=None, asked=asked)
            return await self._answer(caller, call, partial(self._issue_first, caller, call))

        return await self._watched(caller, app_name, work)

    async def _watched(self, caller: Caller, app_name: str, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        """Time and trace the call."""
        began = self.clock.monotonic()
        result = await (self._traced(caller, app_name, work) if is_traced() else self._answered(caller, work))
        self.metrics.time(Timing.TOKEN_CALL, self.clock.monotonic() - began, _outcome(result))
        return result

    async def _traced(self, caller: Caller, app_name: str, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        with span(Span.TOKEN, app=app_name if app_name in self.calls.apps else "") as spanned:
            result = await self._answered(caller, work)
            spanned.set(outcome=_outcome(result), code=result.code.value if isinstance(result, Failed) else "")
        return result

    async def _answered(self, caller: Caller, work: Callable[[], Awaitable[T]]) -> T | Failed:
        try:
            return await work()
        except BrokerError as error:
            refused = error
        except Exception as fault:  # noqa: BLE001  (a tool is always answered; its text may hold anything)
            self.log.error("a token call failed", error=type(fault).__name__, place=place_of(fault))
            refused = BrokerError(Code.BROKER_UNREACHABLE)
        return self._failed(caller, refused)

    def _failed(self, caller: Caller, refused: BrokerError) -> Failed:
        failed = Failed.from_error(refused, locale_of(caller.turn, self.settings.locale))
        self.metrics.add(Metric.TOKEN_ERRORS, failed.code.value)
        return failed

    async def _answer(self, caller: Caller, call: TokenCall, issue: _Issues[T]) -> T | AuthorizationRequired:
        for _ in range(3):
            if call.app.mcp is not None:
                call = call.with_app(await self.mcp_clients.complete(call.app))
            app, subject = call.app, call.subject
            held, is_checked = await self._newest(caller, call)
            grant = held.record if held is not None else None
            decision = self._decide(call, grant)
            if isinstance(decision, RefreshToken):
                rejected = call.rejected if self._is_rejected(call, grant) else None
                early = grant is not None and is_early(grant, call.need, self.clock.now())
                refreshed = await self.refresh.refresh(app, subject, held, rejected=rejected, early=early)
                grant, decision = refreshed.grant, settle(refreshed, call.need, self.clock.now())
                if isinstance(decision, UseToken) and self._is_rejected(call, grant):
                    raise refreshed.trouble or BrokerError(Code.PROVIDER_UNREACHABLE)
                is_checked = False
            if not is_checked:
                await caller.check_turn()
            match decision:
                case Refuse(code, seconds):
                    raise BrokerError(code, retry_after_seconds=seconds)
                case UseToken(degraded) if grant is not None:
                    version = held.entry if held is not None and held.record is grant else None
                    return issue(grant, version, degraded=degraded)
                case AskPerson(reason):
                    needed = partial(self._needs_person, call)
                    answer = await self.asking.ask(caller, call, grant, reason, needed)
                    if answer is not None:
                        await caller.check_turn()
                        return answer
        raise BrokerError(Code.STORE_LOCKED)

    async def _newest(self, caller: Caller, call: TokenCall) -> tuple[Versioned[Grant] | None, bool]:
        """Return the newest grant, and whether the turn was checked no earlier than that. A store that has to be asked
        is asked for both in one round trip."""
        pair = call.app.name, call.subject
        known = self.repository.cached_grant(*pair)
        if caller.turn_holds is None or known is None or self.repository.is_newest(known.entry):
            return await self.repository.grant(*pair), False
        held, _ = await asyncio.gather(self.repository.grant(*pair), caller.check_turn())
        return held, held is known

    def _decide(self, call: TokenCall, grant: Grant | None) -> Decision:
        if call.switch_account and not call.need.alone:
            return AskPerson("noGrant")
        now = self.clock.now()
        decision = decide(grant, call.need, now)
        if grant is None:
            return decision
        if isinstance(decision, UseToken) and self._is_rejected(call, grant):
            if not grant.refresh_tokens and not call.need.alone:
                return AskPerson("revoked")
            return self._forced(grant, now)
        return (
            self._forced(grant, now)
            if isinstance(decision, RefreshToken) and is_early(grant, call.need, now)
            else decision
        )

    def _needs_person(self, call: TokenCall, grant: Grant | None) -> bool:
        return isinstance(self._decide(call, grant), AskPerson)

    def _forced(self, grant: Grant, now: datetime) -> Decision:
        """Refresh a token that seems valid, up to the hourly limit: no tool may flood a provider."""
        hour = timedelta(hours=1)
        forced = grant.refresh_state.forced_before(now)
        if len(forced) >= self.settings.limits.rejections_per_hour:
            return Refuse(Code.RATE_LIMITED, max(1, int((forced[0] + hour - now).total_seconds())))
        return RefreshToken()

    def _is_rejected(self, call: TokenCall, grant: Grant | None) -> bool:
        """Return whether the grant still has the token that was reported."""
        token = grant.token if grant is not None else None
        return call.rejected is not None and token is not None and token.access_token == call.rejected

    def _issue_first(
        self, caller: Caller, call: TokenCall, grant: Grant, version: Entry | None, *, degraded: bool
    ) -> Ready:
        """Issue the grant's token. If the caller has asked before, prepare the answer for `reissue`, which gives it as
        long as this is the grant's version. Most callers ask once, and to prepare costs as much as to decide. Nothing
        is prepared where the store has to be asked for that version each time."""
        app, token = call.app, grant.token
        assert token is not None  # noqa: S101  (decide gives Use only for a grant with a token)
        scopes = grant.scopes if app.scope_set.issuperset(grant.scopes) else union_in_app_order(app, grant.scopes)
        ready = Ready(
            access_token=token.access_token,
            token_type=token.token_type,
            expires_at=token.expires_at,
            scopes=scopes,
            degraded=degraded,
            provider_data=told_to_tools(app, grant),
        )
        entry = _issued_entry(caller, call, grant, degraded=degraded)
        counted, words = (Metric.TOKENS_READY, (grant.app,)), call.words
        is_repeated = words is not None and not degraded and caller.issued.asked_before(words)
        if version is None or words is None or not is_repeated or not self.repository.is_newest(version):
            seen, once = as_issued(app, grant) if app.refresh_ahead_seconds else grant, partial(self.audit.write, entry)
            self._issue(
                Issuance(
                    app=app, subject=call.subject, grant=seen, entry=entry, write=once, counted=counted, ready=ready
                ),
                self.clock.now(),
            )
            return ready
        since, until = token.usable(call.need.enough(token), grant.updated_at)
        issuance = Issuance(
            app=app,
            subject=call.subject,
            grant=as_issued(app, grant),
            version=version.without_body(),
            entry=entry,
            write=self.audit.repeated(entry),
            counted=counted,
            ready=ready,
            since=since,
            until=until,
        )
        self._issue(issuance, self.clock.now())
        self.issuances.keep(caller.issued, words, issuance)
        return issuance.fresh()

    def _issue(self, issuance: Issuance, now: datetime) -> None:
        """Issue a token. The audit entry comes first: no entry, no token."""
        entry = issuance.entry
        issuance.write(now)
        self.uses.note(entry.grant, entry.agent, entry.tool, now)
        self.scrubber.remember(issuance.ready.access_token)
        self.metrics.count(issuance.counted)
        if issuance.app.refresh_ahead_seconds:
            self.background.in_use(issuance.app, issuance.grant)


def _issued_entry(caller: Caller, call: TokenCall, grant: Grant, *, degraded: bool) -> TokenIssued | TokenInjected:
    carrier = call.carrier
    kind = TokenIssued if carrier is None else partial(TokenInjected, method=carrier.method, host=carrier.host)
    return kind(
        app=grant.app,
        grant=grant.id,
        agent=caller.turn.agent_name,
        tool=caller.tool,
        degraded=degraded,
        turn=caller.turn_id,
        instance=caller.instance,
    )


def _outcome(result: TokenResult) -> str:
    if isinstance(result, Ready):
        return "degraded" if result.degraded else "ready"
    return result.status
