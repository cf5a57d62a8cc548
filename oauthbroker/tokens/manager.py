"""Answer token calls: `OAuthManager` follows the table in docs/embedding.md, with `decision` for its middle part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from oauthbroker.audit import TokenRejected
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.late_facts import LateFacts
from oauthbroker.authorization.mcp_clients import McpClients
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code, place_of
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_request import split_ref
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, Reason, TokenResult
from oauthbroker.model.turn import locale_of
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics, Timing
from oauthbroker.observability.tracing import Span, is_traced, span
from oauthbroker.records import Grant, grant_id
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.repository.repository import Entry, Repository, Versioned
from oauthbroker.tokens.account_names import names_of_accounts
from oauthbroker.tokens.call_decisions import CallDecisions, refusal
from oauthbroker.tokens.consent_requests import ConsentRequests
from oauthbroker.tokens.credential_rejections import CredentialRejections
from oauthbroker.tokens.decision import (
    RefreshToken,
    Refuse,
    RequestConsent,
    UseToken,
    is_early,
    settle,
)
from oauthbroker.tokens.issuance import Carrier, Words, words_of
from oauthbroker.tokens.team_credentials import TeamCredentials
from oauthbroker.tokens.token_call import Caller, Calls, TokenCall
from oauthbroker.tokens.token_issuer import TokenIssuer

_NO_REQUEST = Carrier("", "")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Issues(Protocol[T_co]):
    """Answer with the token of a grant."""

    def __call__(self, grant: Grant, version: Entry | None, *, degraded: bool, is_team: bool = False) -> T_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthManager:
    """Answers a token call from a grant, refreshes it, or opens an auth session; never raises."""

    calls: Calls
    repository: Repository
    consent_requests: ConsentRequests
    mcp_clients: McpClients
    late_facts: LateFacts
    rejections: CredentialRejections
    team: TeamCredentials
    decisions: CallDecisions
    refresh: RefreshTransaction
    issuer: TokenIssuer
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    settings: Settings
    log: Log

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
        """Answer a token call. No exception leaves it. `app_name` may end with `@account`.

        `switch_account` is for the runtime only: without a verifiable owner a tool could replace the user's account
        with its own. `carrier`: the broker adds the token to that request, so that a tool with `delivery: injected` is
        answered, too.
        """

        async def work() -> TokenResult:
            if caller.issued and switch_account is False:
                again = await self._reissued(caller, words_of(app_name, scopes, min_ttl_seconds, carrier))
                if again is not None:
                    return again
            call = self.calls.validate(caller, app_name, scopes, min_ttl_seconds, carrier=carrier)
            if not isinstance(switch_account, bool):
                raise BrokerError(Code.REQUEST_INVALID, note="switchAccount")
            if switch_account and not caller.speaks_for_person:
                raise BrokerError(Code.NOT_ALLOWED, note="a tool asked to switch accounts")
            if switch_account:
                call = call._replace(switch_account=True, words=None)
            return await self._answer(caller, call, partial(self.issuer.issue, caller, call))

        return await self._watched(caller, app_name, work)

    async def missing_consent(
        self, caller: Caller, app_name: str, scopes: Sequence[str] | None = None
    ) -> AuthorizationRequired | Failed | None:
        """Answer as a token call does, but issue nothing: None stands for a token. A tool with `delivery: injected` is
        answered, too. No exception leaves it."""

        def issue_nothing(*_grant: object, **_how: object) -> None:
            return None

        async def work() -> AuthorizationRequired | None:
            call = self.calls.validate(caller, app_name, scopes, carrier=_NO_REQUEST)
            return await self._answer(caller, call, issue_nothing)

        return await self._answered(caller, app_name, work)

    async def first_scopes(self, caller: Caller, app_name: str) -> tuple[str, ...] | None:
        """Return the scopes that the app's MCP server asks for first, if the caller may use them. None for an app
        of another kind, and if that leaves none: then all count. Raises `appForbidden`, and what a completion does."""
        app = self.calls.apps.get(split_ref(app_name)[0])
        if app is None or app.mcp is None:
            return None
        declared = caller.auth_for(app.name).scopes
        within = app.scopes if declared is None else declared
        wanted = await self.mcp_clients.first_scopes(app)
        return tuple(each for each in within if each in wanted) or None

    async def report_rejected(
        self,
        caller: Caller,
        app_name: str,
        access_token: Secret,
        scopes: Sequence[str] | None = None,
        *,
        carrier: Carrier | None = None,
        demanded: frozenset[str] = frozenset(),
        claims: str = "",
    ) -> TokenResult:
        """Answer a report that the provider's API refused this token (401), with a newer one, refreshed unless that has
        happened already.

        However many callers report the same token, it is refreshed once. A grant is refreshed at most
        `rejections_per_hour` times an hour (`rateLimited`), so that no tool can flood a provider. A grant that cannot
        be refreshed needs consent, to the scopes that the API `demanded`, too, if all of them are within the ceiling.
        `claims` that it demanded take a new sign-in at once (`claims_of`): a refresh would bring the old ones.
        """

        async def work() -> TokenResult:
            call = self.calls.validate(caller, app_name, scopes, carrier=carrier)
            grant = grant_id(*call.key)
            entry = TokenRejected(
                app=call.app.name,
                grant=grant,
                agent=caller.turn.agent_name,
                tool=caller.tool,
                turn=caller.turn_id,
                instance=caller.turn.instance_key,
            )
            self.audit.write(entry, self.clock.now())
            if call.app.credential is not None:
                for key in filter(None, (call.key, self.team.key(caller, call))):
                    await self.rejections.report(call.app, key, access_token)
            asked = self.calls.larger(caller, call, demanded)
            call = call._replace(rejected=access_token, words=None, asked=asked)
            if claims and call.app.has_callback:
                call = call._replace(claims=claims)
            return await self._answer(caller, call, partial(self.issuer.issue, caller, call))

        return await self._watched(caller, app_name, work)

    async def _reissued(self, caller: Caller, words: Words | None) -> Ready | None:
        """Answer as before once the store has confirmed grant and turn in one round trip. Raises both codes."""
        confirming = self.issuer.confirm(caller, words)
        if caller.turn_holds is not None and self.repository.shared is not None:
            confirmed, _ = await asyncio.gather(confirming, caller.check_turn())
        else:
            confirmed = await confirming
            await caller.check_turn()
        if confirmed is None:
            return None
        issuance = self.issuer.reissue(caller, words, confirmed=confirmed)
        return None if issuance is None else issuance.fresh()

    async def _watched(self, caller: Caller, app_name: str, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        """Time and trace the call."""
        began = self.clock.monotonic()
        if is_traced():
            name, _ = split_ref(app_name)
            with span(Span.TOKEN, app=name if name in self.calls.apps else "") as spanned:
                result = await self._answered(caller, app_name, work)
                spanned.set(outcome=_outcome(result), code=result.code.value if isinstance(result, Failed) else "")
        else:
            result = await self._answered(caller, app_name, work)
        self.metrics.time(Timing.TOKEN_CALL, self.clock.monotonic() - began, _outcome(result))
        return result

    async def _answered(self, caller: Caller, app_name: str, work: Callable[[], Awaitable[T]]) -> T | Failed:
        try:
            return await work()
        except BrokerError as error:
            refused = error
        except Exception as fault:  # noqa: BLE001  (a tool is always answered; its text may hold anything)
            self.log.error("a token call failed", error=type(fault).__name__, place=place_of(fault))
            refused = BrokerError(Code.BROKER_UNREACHABLE)
        if self.repository.opened_here.closed:  # a turn of an embedded broker, used after the block of `open_broker`
            refused = BrokerError(Code.TURN_ENDED)
        failed = Failed.from_error(refused, locale_of(caller.turn, self.settings.locale))
        if failed.code is Code.ACCOUNT_REQUIRED:
            app = self.calls.apps[split_ref(app_name)[0]]
            failed = replace(failed, accounts=await names_of_accounts(self.repository, app, caller.turn))
        self.metrics.add(Metric.TOKEN_ERRORS, failed.code.value)
        return failed

    async def _answer(self, caller: Caller, call: TokenCall, issue: _Issues[T]) -> T | AuthorizationRequired:
        is_replaced = False
        for _ in range(3):
            if call.app.mcp is not None:
                call = call.with_app(await self.mcp_clients.complete(call.app))
            versioned, is_checked = await self._newest(caller, call)
            grant = versioned.record if versioned is not None else None
            call = call if grant is None else call.at_connection(grant)
            app = call.app
            decision = self.decisions.decide(call, grant)
            if isinstance(decision, RefreshToken):
                rejected = call.rejected if self.decisions.is_rejected(call, grant) else None
                early = grant is not None and is_early(grant, call.need, self.clock.now())
                job = RefreshJob(app=app, key=call.key, seen=versioned, rejected=rejected, early=early)
                refreshed = await self.refresh.refresh(job)
                if self.decisions.is_superseded(call, versioned, refreshed.grant):
                    is_replaced = True
                    continue
                grant, decision = refreshed.grant, settle(refreshed, call.need, self.clock.now())
                if isinstance(decision, UseToken) and self.decisions.is_rejected(call, grant):
                    raise refreshed.error or BrokerError(Code.TOKEN_UNCHANGED)
                is_checked = False
            if not is_checked:
                await caller.check_turn()
            match decision:
                case Refuse():
                    raise refusal(decision, is_replaced=is_replaced)
                case UseToken() if grant is not None and grant.open_facts is not None:
                    await self.late_facts.learn(app, call.key)
                case UseToken(degraded) if grant is not None:
                    version = versioned.entry if versioned is not None and versioned.record is grant else None
                    return issue(grant, version, degraded=degraded or self.repository.degraded)
                case RequestConsent(reason):
                    answer = await self._without_grant(caller, call, grant, reason, issue)
                    if answer is not None:
                        return answer
        raise BrokerError(Code.STORE_LOCKED)

    async def _without_grant(
        self, caller: Caller, call: TokenCall, grant: Grant | None, reason: Reason, issue: _Issues[T]
    ) -> T | AuthorizationRequired | None:
        """Use the team's credential, if the call may, or ask the user. None to decide again."""
        team = await self.team.grant(caller, call) if call.app.credential is not None else None
        decision = self.decisions.decide(call.at_connection(team), team) if team is not None else None
        if isinstance(decision, Refuse):
            raise refusal(decision, is_replaced=False)
        if isinstance(decision, UseToken) and team is not None:
            is_degraded = decision.degraded or self.repository.degraded
            return issue(team, None, degraded=is_degraded, is_team=call.app.subject_mode == "user")
        needs_consent = partial(self.decisions.needs_consent, call)
        answer = await self.consent_requests.ask(caller, call, grant, reason, needs_consent)
        if answer is not None:
            await caller.check_turn()
        return answer

    async def _newest(self, caller: Caller, call: TokenCall) -> tuple[Versioned[Grant] | None, bool]:
        """Return the newest grant, and whether the turn was checked no earlier than that. A store that has to be asked
        is asked for both in one round trip."""
        known = self.repository.cached_grant(call.key) if caller.turn_holds is not None else None
        self.repository.opened_here.check_open()
        if known is None or self.repository.is_newest(known.entry):
            return await self.repository.grant(call.key), False
        versioned, _ = await asyncio.gather(self.repository.grant(call.key), caller.check_turn())
        return versioned, versioned is known


def _outcome(result: TokenResult) -> str:
    if isinstance(result, Ready):
        return "degraded" if result.degraded else "ready"
    return result.status
