"""Decide a token call: lines 5 to 11 of the table in docs/embedding.md, as pure functions."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.scope_ceiling import ScopeNeed, union_in_app_order
from oauthbroker.model.token_results import Reason
from oauthbroker.records import Grant, Token
from oauthbroker.refresh.writeback import Refreshed


class Need(NamedTuple):
    """The requirements of a call. `ttl` is the caller's minimum lifetime in seconds, None for the default; `alone` is
    the client credentials grant (RFC 6749 section 4.4), which needs no user."""

    scopes: frozenset[str]
    ttl: int | None
    default_ttl: int
    registration: str = ""
    alone: bool = False

    def enough(self, token: Token) -> float:
        """Return how many seconds the token must still live. The default is lowered to half the lifetime of short-lived
        tokens, because they would otherwise be refreshed at every call."""
        if self.ttl is not None:
            return self.ttl
        return min(self.default_ttl, (token.lifetime_seconds or 2 * self.default_ttl) / 2)


@dataclass(frozen=True, slots=True)
class UseToken:
    """Issue the grant's token; `degraded` when it lives shorter than usual and no refresh is possible."""

    degraded: bool = False


@dataclass(frozen=True, slots=True)
class RequestConsent:
    """Ask a user for consent."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class RefreshToken:
    """Request a new token from the provider first; no user is needed."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Return an error: neither a refresh nor a user helps."""

    code: Code
    retry_after_seconds: int | None = None


Decision = UseToken | RequestConsent | RefreshToken | Refuse
_USE = UseToken()
_UNUSABLE = frozenset({Code.TOKEN_RESPONSE_INVALID, Code.ID_TOKEN_INVALID, Code.SCOPE_EXCEEDED})
"""Answers that the broker refuses. Their sentences speak of a consent that fails; a caller is told to ask again,
because the next answer may be good. The log, the audit log and the metrics have the code."""


def decide(grant: Grant | None, need: Need, now: datetime) -> Decision:
    """Decide lines 5 to 11 of the token call: the first line that matches wins."""
    if need.alone:
        return _decide_alone(grant, need, now)
    if grant is None or grant.registration != need.registration:
        return RequestConsent("noGrant")
    token = grant.token
    if grant.revoked or token is None or grant.refresh_state.ended == "quarantined":
        return RequestConsent("revoked")
    if grant.rejected:
        return RequestConsent("keyRejected")
    if not need.scopes.issubset(grant.scopes):
        return RequestConsent("scopes" if need.scopes.isdisjoint(grant.declined) else "scopesDeclined")
    if grant.open_facts is not None and grant.needs_choice:
        return RequestConsent("choiceNeeded")
    if token.lives(need.enough(token), now) and not token.is_from_the_future(now, grant.updated_at):
        return _USE
    if _is_too_much(token, need) and not (grant.refresh_tokens and not token.lives(0, now)):
        return Refuse(Code.MIN_TTL_UNSATISFIABLE)
    if grant.refresh_tokens and not grant.refresh_state.rests(now):
        return RefreshToken()
    if need.ttl is None and token.lives(0, now) and not grant.refresh_state.ended:
        return UseToken(degraded=True)
    return _ask_because_ended(grant)


def _ask_because_ended(grant: Grant) -> RequestConsent:
    return RequestConsent("refreshUncertain" if grant.refresh_state.is_uncertain else "expired")


def _decide_alone(grant: Grant | None, need: Need, now: datetime) -> Decision:
    """Decide for client credentials: a missing token or scope is requested, unless the scope was requested and not
    granted."""
    token = grant.token if grant is not None and grant.registration == need.registration else None
    if grant is None or grant.revoked or token is None:
        return RefreshToken()
    if not need.scopes.issubset(grant.scopes):
        return Refuse(Code.SCOPE_INSUFFICIENT) if need.scopes.issubset(grant.refresh_state.asked) else RefreshToken()
    if token.lives(need.enough(token), now) and not token.is_from_the_future(now, grant.updated_at):
        return _USE
    return Refuse(Code.MIN_TTL_UNSATISFIABLE) if _is_too_much(token, need) and token.lives(0, now) else RefreshToken()


def _is_too_much(token: Token, need: Need) -> bool:
    return need.ttl is not None and token.lifetime_seconds is not None and need.ttl >= token.lifetime_seconds


def is_early(grant: Grant, need: Need, now: datetime) -> bool:
    """Return whether the grant's token is still fresh. Only a caller with a minimum close to its whole lifetime has
    such a token refreshed, and could do so at every call."""
    token = grant.token
    if need.ttl is None or token is None or token.lifetime_seconds is None:
        return False
    return token.lives(max(need.default_ttl, token.lifetime_seconds / 2), now)


def settle(refreshed: Refreshed, need: Need, now: datetime) -> Decision:
    """Decide lines 8 to 11 after an attempt to refresh: a token that is still valid is better than none, and no user is
    asked because of a temporary failure."""
    grant, error = refreshed.grant, refreshed.error
    if error is not None and (grant is None or error.code is Code.SUBJECT_MISMATCH):
        return _refused(error)
    decision = decide(grant, need, now)
    if not isinstance(decision, RefreshToken):
        return decision
    token = grant.token if grant is not None and not grant.revoked else None
    alive = grant is not None and token is not None and token.lives(0, now) and need.scopes.issubset(grant.scopes)
    if alive and need.ttl is None:
        return UseToken(degraded=True)
    if grant is not None and grant.refresh_state.given_up:  # and something kept it from being tried again
        return _ask_because_ended(grant)
    if error is not None:
        return _refused(error)
    if alive:
        return Refuse(Code.MIN_TTL_UNSATISFIABLE)
    return Refuse(Code.PROVIDER_UNREACHABLE, 1)  # the token had ended before its answer came, or had no time at all


def _refused(error: BrokerError) -> Refuse:
    code = Code.PROVIDER_UNREACHABLE if error.code in _UNUSABLE else error.code
    return Refuse(code, error.retry_after_seconds)


def step_up(app: App, asked: ScopeNeed, grant: Grant | None, reason: Reason) -> tuple[str, ...]:
    """Return the union of granted and requested scopes, so that a step-up takes no scope from another tool."""
    if grant is None or grant.revoked or reason == "noGrant":
        return asked.asked
    return union_in_app_order(app, grant.scopes, asked.asked)
