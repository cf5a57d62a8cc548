"""Check who asks for a token and for what: lines 1 to 4 of the table in docs/embedding.md, before any lookup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.accounts import check_apps_of_accounts
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.connect_params import values_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.scope_ceiling import ScopeNeed, resolve_scopes
from oauthbroker.model.subject import resolve_key
from oauthbroker.model.token_request import MAX_TTL, NeverHandedOut, WrongArgument, split_ref
from oauthbroker.model.turn import Turn, whole_turn
from oauthbroker.records import Grant
from oauthbroker.tokens.decision import Need
from oauthbroker.tokens.issuance import Carrier, Words, words_of
from oauthbroker.tokens.issuance_cache import Issued


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: a turn, and the tool it runs (None: the runtime itself); `turn_id` is set for a turn token.
    `private_links`: the runtime delivers links, so an answer has none. `narrowed`: the turn token has a caveat.
    `nearest`: of a tool that the bundle lacks, the declared one with the nearest name, or an empty text.
    `turn_holds` raises `turnEnded` once that token's turn is over. `issued`: the tokens that the same words get again;
    it belongs to one caller and one configuration."""

    turn: Turn
    tool: str | None = None
    declared: tuple[ToolAuth, ...] | None = None
    _: KW_ONLY
    turn_id: str | None = None
    private_links: bool = False
    narrowed: bool = False
    nearest: str | None = field(default=None, compare=False)
    turn_holds: Callable[[], Awaitable[None]] | None = field(default=None, compare=False, repr=False)
    issued: Issued = field(default_factory=Issued, compare=False, repr=False)

    @property
    def speaks_for_person(self) -> bool:
        """Return whether this is the runtime itself. Only the runtime may pass on what the user said: that a browser
        was theirs, that they want another account, or that they declined. A tool may be hostile."""
        return self.tool is None and self.declared is None and not self.narrowed

    def auth_for(self, app: str) -> ToolAuth:
        """Return what the tool declared for the app. Raises `appForbidden`."""
        if self.declared is None:
            return ToolAuth(app)
        for auth in self.declared:
            if auth.app == app:
                return auth
        raise AppForbidden(self)

    async def check_turn(self) -> None:
        """Raise `turnEnded` if the turn has ended since its token was admitted. Call it after the last wait before an
        answer is returned, because other processes end turns too."""
        if self.turn_holds is not None:
            await self.turn_holds()


class AppForbidden(BrokerError):
    """`appForbidden` that names a tool that the bundle lacks."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(Code.APP_FORBIDDEN, name=caller.tool or "", nearest=caller.nearest or "")
        if caller.nearest is not None:
            self.hint = "nearestTool" if caller.nearest else "unknownTool"


class TokenCall(NamedTuple):
    """A permitted call. `rejected`: the token that a provider's API refused. `words`: the key under which its answer is
    cached, None for one that is not. `carrier`: the request that carries the token, which then stays in the broker.
    `claims`: the claims that the API demanded of the next token."""

    app: App
    key: GrantKey
    asked: ScopeNeed
    need: Need
    words: Words | None = None
    switch_account: bool = False
    rejected: Secret | None = None
    carrier: Carrier | None = None
    claims: str = ""

    def at_connection(self, grant: Grant) -> TokenCall:
        """Return the call for the app at the host of a grant's connection."""
        return self.with_app(self.app.at(grant.params)) if self.app.connect_params else self

    def with_app(self, app: App) -> TokenCall:
        """Return the call for the app as its server completes it."""
        return self._replace(app=app, need=self.need._replace(registration=app.registration))


@dataclass(frozen=True, slots=True)
class Calls:
    """Checks calls against the current configuration. `default_ttl`: the minimum lifetime in seconds if the caller
    names none."""

    apps: Mapping[str, App]
    default_ttl: int

    def validate(
        self,
        caller: Caller,
        app_name: str,
        scopes: Sequence[str] | None,
        ttl: int | None = None,
        *,
        carrier: Carrier | None = None,
    ) -> TokenCall:
        """Check a call and return it. `app_name` may end with `@account`.

        Raises `oauthAppNotFound`, `appForbidden`, `tokenInjectedOnly`, `scopeNotAllowed`, `subjectUnavailable`,
        `accountRequired`, `accountForbidden`, `accountsInvalid`, `requestInvalid`; the last also for arguments
        whose own code raises.
        """
        try:
            words = words_of(app_name, scopes, ttl, carrier)
            scopes = scopes if words is None else words[1]
            name, account = split_ref(app_name)
            whole_turn(caller.turn)
            return self._validate(caller, self.apps.get(name), account, scopes, ttl, words, carrier)
        except BrokerError:
            raise
        except Exception:  # noqa: BLE001, S110  (only the caller's arguments run here)
            pass
        raise BrokerError(Code.REQUEST_INVALID, note="arguments")

    def connection(self, caller: Caller, app_name: str) -> str:
        """Return `name`, or `name@account`, with the account that the turn chooses where `app_name` has none. Raises
        `oauthAppNotFound`, `requestInvalid`, `subjectUnavailable`, `accountRequired`, `accountForbidden`."""
        name, account = split_ref(app_name)
        app = self.apps.get(name)
        if app is None:
            raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
        return resolve_key(app, whole_turn(caller.turn), account).connection

    def larger(self, caller: Caller, call: TokenCall, demanded: frozenset[str]) -> ScopeNeed:
        """Return what to ask the user for: the call's scopes and those that an API demands. The call's alone if the
        demand goes beyond the ceiling, since the API would refuse again."""
        declared, asked = caller.auth_for(call.app.name).scopes, call.asked.asked
        try:
            return resolve_scopes(call.app, declared, (*asked, *sorted(demanded.difference(asked))))
        except BrokerError:
            return call.asked

    def _validate(
        self,
        caller: Caller,
        app: App | None,
        account: str | None,
        scopes: Sequence[str] | None,
        ttl: int | None,
        words: Words | None,
        carrier: Carrier | None,
    ) -> TokenCall:
        if app is None:
            raise BrokerError(Code.OAUTH_APP_NOT_FOUND)
        accounts = caller.turn.auth.accounts if caller.turn.auth is not None else {}
        if accounts and caller.turn_id is None:  # the beginning of another turn has checked them
            check_apps_of_accounts(accounts, self.apps)
        auth = caller.auth_for(app.name)
        if carrier is None and app.credential is not None:
            raise NeverHandedOut
        if carrier is None and (auth.injected or app.api.injected):
            raise BrokerError(Code.TOKEN_INJECTED_ONLY)
        declared = auth.scopes
        if scopes is not None and declared is not None:
            resolve_scopes(app, declared, scopes)
        key = resolve_key(app, caller.turn, account)
        if key.account and app.connect_params:
            app = app.at(values_of(app.connect_params, key.account))
        asked = resolve_scopes(app, declared, scopes)
        alone = app.flow == "clientCredentials"
        if alone and not app.is_at_a_connection:
            raise BrokerError(Code.ACCOUNT_REQUIRED, note="in this flow the turn has to name connectParams")
        need = Need(asked.needed, _checked_ttl(ttl), self.default_ttl, registration=app.registration, alone=alone)
        return TokenCall(app, key, asked, need=need, words=words, carrier=carrier)


def _checked_ttl(seconds: int | None) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= MAX_TTL:
        raise WrongArgument("minTtl", "minTtlSeconds", most=str(MAX_TTL))
    return seconds
