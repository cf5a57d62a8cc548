"""The only door to tokens: `OAuthManager` walks the table in docs/embedding.md; its middle is `decision`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from oauthbroker.apps import OAuthApp
from oauthbroker.audit import AuditWriter, TokenRejected
from oauthbroker.clock import Clock
from oauthbroker.decision import Ask, Decision, Refuse, Renew, Use, decide, is_early, settle
from oauthbroker.errors import BrokerError, Code, place_of
from oauthbroker.flows.connect import Connect
from oauthbroker.flows.opening import Opening, Wish
from oauthbroker.flows.refresh import Refresh
from oauthbroker.keeper import Tell
from oauthbroker.metrics import Metric, Metrics, Timing
from oauthbroker.records import AuthSession, Grant, grant_id
from oauthbroker.records.provider_data import told_to_tools
from oauthbroker.repository import Repository
from oauthbroker.results import AuthorizationRequired, Failed, Ready, Reason, TokenResult, invitation, invitation_apart
from oauthbroker.scope import ScopeNeed, union_in_app_order
from oauthbroker.secret import Secret
from oauthbroker.settings import Settings
from oauthbroker.token_call import Caller, Calls, TokenCall
from oauthbroker.tracing import Span, is_traced, span
from oauthbroker.turn import checked_target, locale_of


@dataclass(frozen=True, slots=True)
class OAuthManager:
    """Answers from a grant when it can, renews it when it has to, opens a session when it must; never raises.

    `in_use` hears of every grant that a token was issued from, if its app renews ahead; `used` of each, by its id, with
    agent, tool and time. `tell` writes the log.
    """

    calls: Calls
    repository: Repository
    opening: Opening
    connect: Connect
    refresh: Refresh
    in_use: Callable[[OAuthApp, Grant], None]
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    settings: Settings
    used: Callable[[str, str, str | None, datetime], None]
    handed_out: Callable[[Secret], None]
    tell: Tell

    async def get_access_token(
        self,
        caller: Caller,
        app_name: str,
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        switch_account: bool = False,
    ) -> TokenResult:
        """The token call. Always an answer: no exception crosses it. `switch_account` is the runtime's alone: where
        nothing can be compared, a tool that switches puts an account of its own in the place of the person's."""

        async def work() -> TokenResult:
            call = self.calls.judge(caller, app_name, scopes, min_ttl_seconds)
            if not isinstance(switch_account, bool):
                raise BrokerError(Code.REQUEST_INVALID, note="switchAccount")
            if switch_account and not caller.speaks_for_person:
                raise BrokerError(Code.NOT_ALLOWED, note="a tool asked to switch accounts")
            return await self._answer(caller, replace(call, switch_account=True) if switch_account else call)

        return await self._watched(caller, app_name, work)

    async def report_rejected(
        self, caller: Caller, app_name: str, access_token: Secret, scopes: Sequence[str] | None = None
    ) -> TokenResult:
        """The provider's API refused this token (401): a newer one, made now unless somebody has made it meanwhile.

        However many report the same token, it is renewed once; and no grant more than `rejections_per_hour` times an
        hour (`rateLimited`), because a tool must not keep a provider busy. What cannot be renewed needs a person.
        """

        async def work() -> TokenResult:
            call = self.calls.judge(caller, app_name, scopes, None)
            grant = grant_id(call.app.name, call.subject)
            words = (app_name, grant, caller.turn.agent_name, caller.tool, caller.turn_id, caller.instance)
            self.audit.write(TokenRejected(*words), self.clock.now())
            return await self._answer(caller, replace(call, rejected=access_token))

        return await self._watched(caller, app_name, work)

    async def _watched(self, caller: Caller, app_name: str, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        """The answer, timed and traced, whatever it is."""
        began = self.clock.monotonic()
        result = await (self._traced(caller, app_name, work) if is_traced() else self._answered(caller, work))
        self.metrics.time(Timing.TOKEN_CALL, self.clock.monotonic() - began, _outcome(result))
        return result

    async def _traced(self, caller: Caller, app_name: str, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        with span(Span.TOKEN, app=app_name if app_name in self.calls.apps else "") as spanned:
            result = await self._answered(caller, work)
            spanned.set(outcome=_outcome(result), code=result.code.value if isinstance(result, Failed) else "")
        return result

    async def _answered(self, caller: Caller, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        try:
            return await work()
        except BrokerError as error:
            refused = error
        except Exception as fault:  # noqa: BLE001  (a tool is always answered; its text may hold anything)
            self.tell("a token call failed", error=type(fault).__name__, place=place_of(fault))
            refused = BrokerError(Code.BROKER_UNREACHABLE)
        return self._failed(caller, refused)

    def _failed(self, caller: Caller, refused: BrokerError) -> Failed:
        failed = Failed.from_error(refused, locale_of(caller.turn, self.settings.locale))
        self.metrics.add(Metric.TOKEN_ERRORS, failed.code.value)
        return failed

    async def _answer(self, caller: Caller, call: TokenCall) -> TokenResult:
        app, subject = call.app, call.subject
        for _ in range(3):
            held = self.repository.warm_grant(app.name, subject) or await self.repository.grant(app.name, subject)
            grant = held.record if held is not None else None
            decision = self._decide(call, grant)
            if isinstance(decision, Renew):
                rejected = call.rejected if self._is_rejected(call, grant) else None
                early = grant is not None and is_early(grant, call.need, self.clock.now())
                renewed = await self.refresh.renew(app, subject, held, rejected=rejected, early=early)
                grant, decision = renewed.grant, settle(renewed, call.need, self.clock.now())
                if isinstance(decision, Use) and self._is_rejected(call, grant):
                    raise renewed.trouble or BrokerError(Code.PROVIDER_UNREACHABLE)
            await caller.check_turn()
            match decision:
                case Refuse(code, seconds):
                    raise BrokerError(code, retry_after_seconds=seconds)
                case Use(degraded) if grant is not None:
                    return self._issue(caller, call, grant, degraded=degraded)
                case Ask(reason):
                    answer = await self._ask(caller, call, grant, reason)
                    if answer is not None:
                        await caller.check_turn()
                        return answer
        raise BrokerError(Code.STORE_LOCKED)

    def _decide(self, call: TokenCall, grant: Grant | None) -> Decision:
        if call.switch_account and not call.need.alone:
            return Ask("noGrant")
        now = self.clock.now()
        decision = decide(grant, call.need, now)
        if grant is None:
            return decision
        if isinstance(decision, Use) and self._is_rejected(call, grant):
            if not grant.refresh_tokens and not call.need.alone:
                return Ask("revoked")
            return self._forced(grant, now)
        return self._forced(grant, now) if isinstance(decision, Renew) and is_early(grant, call.need, now) else decision

    def _forced(self, grant: Grant, now: datetime) -> Decision:
        """Renewals of tokens that seem to live are counted: a tool must not keep a provider busy."""
        hour = timedelta(hours=1)
        forced = [at for at in grant.renewal.forced_since(now - hour) if at <= now]
        if len(forced) >= self.settings.limits.rejections_per_hour:
            return Refuse(Code.RATE_LIMITED, max(1, int((forced[0] + hour - now).total_seconds())))
        return Renew()

    def _is_rejected(self, call: TokenCall, grant: Grant | None) -> bool:
        """Whether the grant still has the token that was reported, and not a newer one."""
        token = grant.token if grant is not None else None
        return call.rejected is not None and token is not None and token.access_token == call.rejected

    def _issue(self, caller: Caller, call: TokenCall, grant: Grant, *, degraded: bool) -> Ready:
        """Audit first: no entry, no token."""
        app, token, entry = call.app, grant.token, call.entry(caller, grant, degraded=degraded)
        assert token is not None  # noqa: S101  (decide gives Use only for a grant with a token)
        now = self.clock.now()
        self.audit.write(entry, now)
        self.used(entry.grant, entry.agent, entry.tool, now)
        self.handed_out(token.access_token)
        self.metrics.add(Metric.TOKENS_READY, grant.app)
        if app.refresh_ahead_seconds:
            self.in_use(app, grant)
        scopes = grant.scopes if app.scope_set.issuperset(grant.scopes) else union_in_app_order(app, grant.scopes)
        return Ready(
            token.access_token, token.token_type, token.expires_at, scopes, degraded,
            provider_data=told_to_tools(app, grant),
        )  # fmt: skip

    async def _ask(
        self, caller: Caller, call: TokenCall, grant: Grant | None, reason: Reason
    ) -> AuthorizationRequired | None:
        """A link for a person; None when a grant that suffices arrived meanwhile."""
        app = call.app
        target = checked_target(caller.turn.resume_target)
        scopes = _step_up(app, call.asked, grant, reason)
        wish = Wish(call.subject, scopes, target, reason, call.switch_account)
        session = await self.opening.open(app, wish, lambda there: isinstance(self._decide(call, there), Ask))
        if session is None:
            return None
        self.metrics.add(Metric.AUTHORIZATIONS_REQUIRED, app.name)
        title, locale = app.display_name, caller.turn.locale_or(self.settings.locale)
        declined = [scope for scope in scopes if grant is not None and scope in grant.declined]
        if caller.private_links:
            message = invitation_apart(reason, title, locale, declined)
            link = private_page(self.settings.public_base_url)
            return AuthorizationRequired(session.id, link, session.expires_at, message, reason)
        link = await self._link(app, session)
        prompt = session.device.prompt if session.device is not None else None
        message = invitation(reason, title, locale, declined)
        return AuthorizationRequired(session.id, link, session.expires_at, message, reason, prompt)

    async def _link(self, app: OAuthApp, session: AuthSession) -> str:
        """The connect page's link, which is safe in a chat; the provider's own only where the app says `direct`."""
        if session.link == "direct" and session.attempt.cookie is None:
            return (await self.connect.provider_url(app, session)).reveal()
        return connect_link(self.settings.public_base_url, session)


def _outcome(result: TokenResult) -> str:
    if isinstance(result, Ready):
        return "degraded" if result.degraded else "ready"
    return result.status


def connect_link(base_url: str, session: AuthSession) -> str:
    """`<publicBaseUrl>/connect/<ticket>`: opaque; no state, no client id, no challenge in it."""
    ticket = session.ticket if session.ticket is not None else Secret("")
    return f"{base_url.rstrip('/')}/connect/{ticket.reveal()}"


def private_page(base_url: str) -> str:
    """A page that says that the link was delivered elsewhere: nothing in its address, nothing to open."""
    return f"{base_url.rstrip('/')}/connect"


def _step_up(app: OAuthApp, asked: ScopeNeed, grant: Grant | None, reason: Reason) -> tuple[str, ...]:
    """A step-up asks for the union of granted and wanted, so that no tool loses what another one has."""
    if grant is None or grant.revoked or reason == "noGrant":
        return asked.asked
    return union_in_app_order(app, grant.scopes, asked.asked)
