"""Check who asks for a token and for what: lines 1 to 4 of the table in docs/embedding.md, before any lookup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType

from oauthbroker.audit import TokenIssued
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import OAuthApp, ToolAuth
from oauthbroker.model.scope import ScopeNeed, resolve_scopes
from oauthbroker.model.subject import resolve_subject
from oauthbroker.model.turn import Turn, whole_turn
from oauthbroker.records import Grant
from oauthbroker.tokens.decision import Need

MAX_MIN_TTL = 10 * 365 * 24 * 3600
MOST_REMEMBERED = 64  # calls of one caller
Words = tuple[str, tuple[str, ...] | None, int | None]


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: a turn, and the tool it runs (None: the runtime itself); `turn_id` is set for a turn token.
    `private_links`: the runtime delivers links, so an answer has none. `narrowed`: the turn token has a caveat.
    `turn_holds` raises `turnEnded` once that token's turn is over."""

    turn: Turn
    tool: str | None = None
    declared: tuple[ToolAuth, ...] | None = None
    turn_id: str | None = None
    private_links: bool = False
    narrowed: bool = False
    turn_holds: Callable[[], Awaitable[None]] | None = field(default=None, compare=False, repr=False)
    _calls: dict[Words, TokenCall] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def speaks_for_person(self) -> bool:
        """Return whether this is the runtime itself. Only the runtime may pass on what the user said: that a browser
        was theirs, that they want another account, or that they declined. A tool may be hostile."""
        return self.tool is None and self.declared is None and not self.narrowed

    @property
    def instance(self) -> str:
        """Return the id of the conversation, for the audit log."""
        return self.turn.instance_key

    def scopes_for(self, app: str) -> tuple[str, ...] | None:
        """Return the scopes that the tool declared for the app, None for all of them. Raises `appForbidden`."""
        if self.declared is None:
            return None
        for auth in self.declared:
            if auth.app == app:
                return auth.scopes
        raise BrokerError(Code.APP_FORBIDDEN)

    async def check_turn(self) -> None:
        """Raise `turnEnded` if the turn has ended since its token was admitted. Call it after the last wait before an
        answer is returned, because other processes end turns too."""
        if self.turn_holds is not None:
            await self.turn_holds()

    def remember(self, words: Words, call: TokenCall) -> None:
        """Cache a judged call: tools repeat the same one."""
        if len(self._calls) >= MOST_REMEMBERED:
            self._calls.clear()
        self._calls[words] = call

    def remembered(self, words: Words, app: OAuthApp | None) -> TokenCall | None:
        """Return the cached call of the same arguments, unless the configuration or the turn's subject has changed."""
        call = self._calls.get(words)
        if call is None or call.app is not app:
            return None
        auth = self.turn.auth
        if auth is None or auth.subjects.get(app.subject_mode) != call.subject:
            return None
        return call


@dataclass(frozen=True, slots=True)
class TokenCall:
    """A permitted call. `rejected`: the token that a provider's API refused. `issued`: its audit entries by `degraded`,
    cached because calls repeat."""

    app: OAuthApp
    subject: str
    asked: ScopeNeed
    need: Need
    switch_account: bool = False
    rejected: Secret | None = None
    issued: dict[bool, TokenIssued] = field(default_factory=dict)

    def entry(self, by: Caller, grant: Grant, *, degraded: bool) -> TokenIssued:
        """Return the audit entry to write before the grant's token is issued."""
        entry = self.issued.get(degraded)
        if entry is None:
            entry = TokenIssued(grant.app, grant.id, by.turn.agent_name, by.tool, degraded, by.turn_id, by.instance)
            self.issued[degraded] = entry
        return entry


@dataclass(frozen=True, slots=True)
class Calls:
    """Checks calls against the current configuration. `default_ttl`: the minimum lifetime in seconds if the caller
    names none."""

    apps: Mapping[str, OAuthApp]
    default_ttl: int

    def judge(self, caller: Caller, app_name: str, scopes: Sequence[str] | None, ttl: int | None) -> TokenCall:
        """Check a call and return it. Raises `oauthAppNotFound`, `appForbidden`, `scopeNotAllowed`,
        `subjectUnavailable`, `requestInvalid`; the last also for arguments whose own code raises."""
        try:
            app, words = self.apps.get(app_name), _words(app_name, scopes, ttl)
            call = caller.remembered(words, app) if words is not None else None
            if call is None:
                call = self._judge(caller, app, scopes, ttl)
                if words is not None:
                    caller.remember(words, call)
        except BrokerError:
            raise
        except Exception:  # noqa: BLE001  (only the caller's arguments run here)
            call = None
        if call is None:
            raise BrokerError(Code.REQUEST_INVALID, note="arguments")
        return call

    def _judge(self, caller: Caller, app: OAuthApp | None, scopes: Sequence[str] | None, ttl: int | None) -> TokenCall:
        whole_turn(caller.turn)
        if app is None:
            raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
        declared = caller.scopes_for(app.name)
        if scopes is not None and declared is not None:
            resolve_scopes(app, declared, scopes)
        subject = resolve_subject(app, caller.turn)
        asked = resolve_scopes(app, declared, scopes)
        alone = app.flow == "clientCredentials"
        need = Need(asked.needed, _checked_ttl(ttl), self.default_ttl, app.registration, alone)
        return TokenCall(app, subject, asked, need)


def _words(app_name: str, scopes: Sequence[str] | None, ttl: int | None) -> Words | None:
    """Return the cache key of a call. None for unusual arguments, which are checked each time."""
    if scopes is None and ttl is None:
        return app_name, None, None
    if type(ttl) not in {int, NoneType} or type(scopes) not in {tuple, list, NoneType}:
        return None
    if scopes is None:
        return app_name, None, ttl
    kept = tuple(scopes)
    return (app_name, kept, ttl) if all(type(scope) is str for scope in kept) else None


def _checked_ttl(seconds: int | None) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= MAX_MIN_TTL:
        raise BrokerError(Code.REQUEST_INVALID, note="minTtlSeconds")
    return seconds
