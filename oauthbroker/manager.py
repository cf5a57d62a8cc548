"""The only door to tokens: `decide` is the table in docs/embedding.md, `OAuthManager` walks it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from oauthbroker.apps import OAuthApp, Settings, ToolAuth
from oauthbroker.audit import AuditWriter, TokenIssued
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.connect import Connect, Wish
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository import Conflict, Repository
from oauthbroker.results import AuthorizationRequired, Failed, Ready, Reason, TokenResult, invitation
from oauthbroker.scope import ScopeNeed, resolve_scopes, union_in_app_order
from oauthbroker.secret import Secret
from oauthbroker.subject import resolve_subject
from oauthbroker.turn import ResumeTarget, Turn

MAX_MIN_TTL = 10 * 365 * 24 * 3600
MAX_TARGET_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Need:
    """What a call needs of a grant. `ttl` is the caller's own minimum, None for our default."""

    scopes: frozenset[str]
    ttl: int | None
    default_ttl: int
    registration: str = ""

    @property
    def min_ttl(self) -> int:
        return self.default_ttl if self.ttl is None else self.ttl


@dataclass(frozen=True, slots=True)
class Use:
    """The grant's token will do; `degraded` when it lives shorter than usual and nothing can be done about it."""

    degraded: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A person has to agree."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Refuse:
    """Neither a token nor a person helps."""

    code: Code


Decision = Use | Ask | Refuse


def decide(grant: Grant | None, need: Need, now: datetime) -> Decision:
    """Lines 5 to 11 of the token call, for a grant that cannot be refreshed: first line that fits wins."""
    if grant is None or grant.registration != need.registration:
        return Ask("noGrant")
    token = grant.token
    if grant.revoked or token is None:
        return Ask("revoked")
    if not need.scopes.issubset(grant.scopes):
        return Ask("scopes")
    if token.lives(need.min_ttl, now):
        return Use()
    if need.ttl is not None and token.lifetime_seconds is not None and need.ttl >= token.lifetime_seconds:
        return Refuse(Code.MIN_TTL_UNSATISFIABLE)
    if need.ttl is None and token.lives(0, now):
        return Use(degraded=True)
    return Ask("expired")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a turn, and the tool it runs (None: the runtime itself, un-narrowed)."""

    turn: Turn
    tool: str | None = None
    declared: tuple[ToolAuth, ...] | None = None

    def scopes_for(self, app: str) -> tuple[str, ...] | None:
        """The scopes the tool declared for the app, None for all of them. Raises `appForbidden`."""
        if self.declared is None:
            return None
        for auth in self.declared:
            if auth.app == app:
                return auth.scopes
        raise BrokerError(Code.APP_FORBIDDEN)


class OAuthManager:
    """Answers from a grant when it can, opens a session when it must; never raises, never refreshes past a revoke."""

    def __init__(
        self,
        apps: Mapping[str, OAuthApp],
        repository: Repository,
        connect: Connect,
        clock: Clock,
        audit: AuditWriter,
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        self._apps = apps
        self._repository = repository
        self._connect = connect
        self._clock = clock
        self._audit = audit
        self._metrics = metrics
        self._settings = settings

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
        try:
            return await self._answer(caller, app_name, scopes, min_ttl_seconds, switch_account=switch_account)
        except BrokerError as error:
            refused = error
        except Conflict:
            refused = BrokerError(Code.STORE_LOCKED)
        failed = Failed.from_error(refused, self._settings.locale)
        self._metrics.add(Metric.TOKEN_ERRORS, failed.code.value)
        return failed

    async def _answer(
        self, caller: Caller, app_name: str, scopes: Sequence[str] | None, ttl: int | None, *, switch_account: bool
    ) -> TokenResult:
        app = self._apps.get(app_name)
        if app is None:
            raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
        declared = caller.scopes_for(app.name)
        if scopes is not None and declared is not None:
            resolve_scopes(app, declared, scopes)
        subject = resolve_subject(app, caller.turn)
        asked = resolve_scopes(app, declared, scopes)
        default_ttl = self._settings.limits.default_min_ttl_seconds
        need = Need(asked.needed, _checked_ttl(ttl), default_ttl, app.registration)
        for _ in range(3):
            held = self._repository.warm_grant(app.name, subject) or await self._repository.grant(app.name, subject)
            grant = held.record if held is not None else None
            decision = Ask("noGrant") if switch_account else decide(grant, need, self._clock.now())
            match decision:
                case Refuse(code):
                    raise BrokerError(code)
                case Use(degraded) if grant is not None:
                    return self._issue(caller, app, grant, degraded=degraded)
                case Ask(reason):
                    wish = Wish(
                        subject,
                        _step_up(app, asked, grant, reason),
                        _checked_target(caller.turn.resume_target),
                        reason,
                        switch_account,
                    )
                    answer = await self._ask(app, wish, need)
                    if answer is not None:
                        return answer
        raise BrokerError(Code.STORE_LOCKED)

    def _issue(self, caller: Caller, app: OAuthApp, grant: Grant, *, degraded: bool) -> Ready:
        """Audit first: no entry, no token."""
        token = grant.token
        assert token is not None  # noqa: S101  (decide gives Use only for a grant with a token)
        entry = TokenIssued(grant.app, grant.id, caller.turn.agent_name, caller.tool, degraded)
        self._audit.write(entry, self._clock.now())
        self._metrics.add(Metric.TOKENS_READY, grant.app)
        scopes = grant.scopes if app.scope_set.issuperset(grant.scopes) else union_in_app_order(app, grant.scopes)
        return Ready(token.access_token, token.token_type, token.expires_at, scopes, degraded)

    async def _ask(self, app: OAuthApp, wish: Wish, need: Need) -> AuthorizationRequired | None:
        """A link for a person; None when a grant that suffices arrived meanwhile."""

        def still_needed(grant: Grant | None) -> bool:
            return wish.switch_account or isinstance(decide(grant, need, self._clock.now()), Ask)

        session = await self._connect.open(app, wish, still_needed)
        if session is None:
            return None
        self._metrics.add(Metric.AUTHORIZATIONS_REQUIRED, app.name)
        message = invitation(session.reason, app.display_name, self._settings.locale)
        link = await self._link(app, session)
        return AuthorizationRequired(session.id, link, session.expires_at, message, session.reason)

    async def _link(self, app: OAuthApp, session: AuthSession) -> str:
        """The connect page's link, which is safe in a chat; the provider's own only where the app says `direct`."""
        if session.link == "direct" and session.attempt.cookie is None:
            return (await self._connect.provider_url(app, session)).reveal()
        return connect_link(self._settings.public_base_url, session)


def connect_link(base_url: str, session: AuthSession) -> str:
    """`<publicBaseUrl>/connect/<ticket>`: opaque; no state, no client id, no challenge in it."""
    ticket = session.ticket if session.ticket is not None else Secret("")
    return f"{base_url.rstrip('/')}/connect/{ticket.reveal()}"


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


def _checked_target(target: ResumeTarget) -> ResumeTarget:
    """Where the event goes, as a session keeps it. Raises `requestInvalid` for what is not words and JSON of a sane
    size: nobody could be resumed there."""
    words = (target.agent_name, target.instance_key, target.swarm_ref)
    try:
        kept = json.dumps(target.to_json(), ensure_ascii=False, allow_nan=False)
        size = len(kept.encode())
    except (TypeError, ValueError, RecursionError):  # half an emoji of a message that was cut is a ValueError too
        kept, size = "", MAX_TARGET_BYTES + 1
    if size > MAX_TARGET_BYTES or not all(isinstance(word, str) and word for word in words):
        raise BrokerError(Code.REQUEST_INVALID, note="the turn cannot be kept")
    return ResumeTarget.from_json(json.loads(kept))
