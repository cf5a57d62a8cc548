"""The only door to tokens: `OAuthManager` walks the table in docs/embedding.md; its middle is `decision`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from oauthbroker.apps import OAuthApp, ToolAuth
from oauthbroker.audit import AuditWriter, TokenIssued, TokenRejected
from oauthbroker.clock import Clock
from oauthbroker.decision import Ask, Decision, Need, Refuse, Renew, Use, decide, is_early, settle
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.connect import Connect
from oauthbroker.flows.opening import Opening, Wish
from oauthbroker.flows.refresh import Refresh
from oauthbroker.metrics import Metric, Metrics, Timing
from oauthbroker.records import AuthSession, Grant, grant_id
from oauthbroker.repository import Conflict, Repository
from oauthbroker.results import AuthorizationRequired, Failed, Ready, Reason, TokenResult, invitation, invitation_apart
from oauthbroker.scope import ScopeNeed, resolve_scopes, union_in_app_order
from oauthbroker.secret import Secret
from oauthbroker.settings import Settings
from oauthbroker.subject import resolve_subject
from oauthbroker.tracing import Span, span
from oauthbroker.turn import Turn, checked_target

MAX_MIN_TTL = 10 * 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a turn, and the tool it runs (None: the runtime itself, un-narrowed); `turn_id` where a turn token said
    so. `private_links`: links are delivered by the runtime, so an answer holds none."""

    turn: Turn
    tool: str | None = None
    declared: tuple[ToolAuth, ...] | None = None
    turn_id: str | None = None
    private_links: bool = False

    @property
    def instance(self) -> str:
        """Whose conversation it is, for the audit log."""
        return str(self.turn.instance_key)

    def scopes_for(self, app: str) -> tuple[str, ...] | None:
        """The scopes the tool declared for the app, None for all of them. Raises `appForbidden`."""
        if self.declared is None:
            return None
        for auth in self.declared:
            if auth.app == app:
                return auth.scopes
        raise BrokerError(Code.APP_FORBIDDEN)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that passed lines 1 to 4: nothing was looked up for it yet."""

    caller: Caller
    app: OAuthApp
    subject: str
    asked: ScopeNeed
    need: Need
    switch_account: bool = False
    rejected: Secret | None = None


@dataclass(frozen=True, slots=True)
class OAuthManager:
    """Answers from a grant when it can, renews it when it has to, opens a session when it must; never raises.

    `in_use` hears of every grant that a token was issued from, if its app renews ahead; `used` of each, by its id, with
    agent, tool and time.
    """

    apps: Mapping[str, OAuthApp]
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

    async def get_access_token(
        self,
        caller: Caller,
        app_name: str,
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        switch_account: bool = False,
    ) -> TokenResult:
        """The token call. Always an answer: no exception crosses it."""

        async def work() -> TokenResult:
            call = self._call(caller, app_name, scopes, min_ttl_seconds)
            return await self._answer(replace(call, switch_account=True) if switch_account else call)

        return await self._watched(app_name, work)

    async def report_rejected(
        self, caller: Caller, app_name: str, access_token: Secret, scopes: Sequence[str] | None = None
    ) -> TokenResult:
        """The provider's API refused this token (401): a newer one, made now unless somebody has made it meanwhile.

        However many report the same token, it is renewed once; and no grant more than `rejections_per_hour` times an
        hour (`rateLimited`), because a tool must not keep a provider busy. What cannot be renewed needs a person.
        """

        async def work() -> TokenResult:
            call = self._call(caller, app_name, scopes, None)
            grant = grant_id(call.app.name, call.subject)
            words = (app_name, grant, caller.turn.agent_name, caller.tool, caller.turn_id, caller.instance)
            self.audit.write(TokenRejected(*words), self.clock.now())
            return await self._answer(replace(call, rejected=access_token))

        return await self._watched(app_name, work)

    async def _watched(self, app_name: str, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        """The answer, timed and traced, whatever it is."""
        began = self.clock.monotonic()
        with span(Span.TOKEN, app=app_name if app_name in self.apps else "") as spanned:
            result = await self._answered(work)
            outcome = _outcome(result)
            spanned.set(outcome=outcome, code=result.code.value if isinstance(result, Failed) else "")
        self.metrics.time(Timing.TOKEN_CALL, self.clock.monotonic() - began, outcome)
        return result

    async def _answered(self, work: Callable[[], Awaitable[TokenResult]]) -> TokenResult:
        try:
            return await work()
        except BrokerError as error:
            refused = error
        except Conflict:
            refused = BrokerError(Code.STORE_LOCKED)
        return self._failed(refused)

    def _failed(self, refused: BrokerError) -> Failed:
        failed = Failed.from_error(refused, self.settings.locale)
        self.metrics.add(Metric.TOKEN_ERRORS, failed.code.value)
        return failed

    def _call(self, caller: Caller, app_name: str, scopes: Sequence[str] | None, ttl: int | None) -> _Call:
        """Lines 1 to 4: what is refused before anything is looked up."""
        app = self.apps.get(app_name)
        if app is None:
            raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
        declared = caller.scopes_for(app.name)
        if scopes is not None and declared is not None:
            resolve_scopes(app, declared, scopes)
        subject = resolve_subject(app, caller.turn)
        asked = resolve_scopes(app, declared, scopes)
        default_ttl = self.settings.limits.default_min_ttl_seconds
        alone = app.flow == "clientCredentials"
        return _Call(
            caller, app, subject, asked, Need(asked.needed, _checked_ttl(ttl), default_ttl, app.registration, alone)
        )

    async def _answer(self, call: _Call) -> TokenResult:
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
            match decision:
                case Refuse(code, seconds):
                    raise BrokerError(code, retry_after_seconds=seconds)
                case Use(degraded) if grant is not None:
                    return self._issue(call.caller, app, grant, degraded=degraded)
                case Ask(reason):
                    answer = await self._ask(call, grant, reason)
                    if answer is not None:
                        return answer
        raise BrokerError(Code.STORE_LOCKED)

    def _decide(self, call: _Call, grant: Grant | None) -> Decision:
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
        forced = grant.renewal.forced_since(now - hour)
        if len(forced) >= self.settings.limits.rejections_per_hour:
            return Refuse(Code.RATE_LIMITED, max(1, int((forced[0] + hour - now).total_seconds())))
        return Renew()

    def _is_rejected(self, call: _Call, grant: Grant | None) -> bool:
        """Whether the grant still has the token that was reported, and not a newer one."""
        token = grant.token if grant is not None else None
        return call.rejected is not None and token is not None and token.access_token == call.rejected

    def _issue(self, caller: Caller, app: OAuthApp, grant: Grant, *, degraded: bool) -> Ready:
        """Audit first: no entry, no token."""
        token = grant.token
        assert token is not None  # noqa: S101  (decide gives Use only for a grant with a token)
        now, agent = self.clock.now(), caller.turn.agent_name
        words = (grant.app, grant.id, agent, caller.tool, degraded, caller.turn_id, caller.instance)
        self.audit.write(TokenIssued(*words), now)
        self.used(grant.id, agent, caller.tool, now)
        self.handed_out(token.access_token)
        self.metrics.add(Metric.TOKENS_READY, grant.app)
        if app.refresh_ahead_seconds:
            self.in_use(app, grant)
        scopes = grant.scopes if app.scope_set.issuperset(grant.scopes) else union_in_app_order(app, grant.scopes)
        return Ready(token.access_token, token.token_type, token.expires_at, scopes, degraded)

    async def _ask(self, call: _Call, grant: Grant | None, reason: Reason) -> AuthorizationRequired | None:
        """A link for a person; None when a grant that suffices arrived meanwhile."""
        app = call.app
        target = checked_target(call.caller.turn.resume_target)
        scopes = _step_up(app, call.asked, grant, reason)
        wish = Wish(call.subject, scopes, target, reason, call.switch_account)
        session = await self.opening.open(app, wish, lambda there: isinstance(self._decide(call, there), Ask))
        if session is None:
            return None
        self.metrics.add(Metric.AUTHORIZATIONS_REQUIRED, app.name)
        title, locale = app.display_name, self.settings.locale
        if call.caller.private_links:
            message, link = invitation_apart(reason, title, locale), private_page(self.settings.public_base_url)
            return AuthorizationRequired(session.id, link, session.expires_at, message, reason)
        link = await self._link(app, session)
        prompt = session.device.prompt if session.device is not None else None
        message = invitation(reason, title, locale)
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


def _checked_ttl(seconds: int | None) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= MAX_MIN_TTL:
        raise BrokerError(Code.REQUEST_INVALID, note="minTtlSeconds")
    return seconds
