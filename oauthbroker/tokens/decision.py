"""What a token call comes to: lines 5 to 11 of the table in docs/embedding.md, as pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from oauthbroker.errors import Code
from oauthbroker.records import Grant, Token
from oauthbroker.renewing import Renewed
from oauthbroker.results import Reason


@dataclass(frozen=True, slots=True)
class Need:
    """What a call needs of a grant. `ttl` is the caller's own minimum, None for our default; `alone` where the client
    asks for itself (RFC 6749 section 4.4), so that no person can help and none is needed."""

    scopes: frozenset[str]
    ttl: int | None
    default_ttl: int
    registration: str = ""
    alone: bool = False

    def enough(self, token: Token) -> float:
        """Seconds that the token must still live. Our default gives way to tokens that are short-lived by nature:
        half a life is enough, or they would be renewed at every call."""
        if self.ttl is not None:
            return self.ttl
        return min(self.default_ttl, (token.lifetime_seconds or 2 * self.default_ttl) / 2)


@dataclass(frozen=True, slots=True)
class Use:
    """The grant's token will do; `degraded` when it lives shorter than usual and nothing can be done about it."""

    degraded: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A person has to agree."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Renew:
    """The provider is asked for a new token first; no person is needed."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Neither a token nor a person helps."""

    code: Code
    retry_after_seconds: int | None = None


Decision = Use | Ask | Renew | Refuse


def decide(grant: Grant | None, need: Need, now: datetime) -> Decision:
    """Lines 5 to 11 of the token call: first line that fits wins."""
    if need.alone:
        return _decide_alone(grant, need, now)
    if grant is None or grant.registration != need.registration:
        return Ask("noGrant")
    token = grant.token
    if grant.revoked or token is None or grant.renewal.ended == "quarantined":
        return Ask("revoked")
    if not need.scopes.issubset(grant.scopes):
        return Ask("scopes" if need.scopes.isdisjoint(grant.declined) else "scopesDeclined")
    if token.lives(need.enough(token), now) and not (token.is_from_the_future(now) and grant.refresh_tokens):
        return Use()
    if _is_too_much(token, need):
        return Refuse(Code.MIN_TTL_UNSATISFIABLE)
    if grant.refresh_tokens:
        return Renew()
    if need.ttl is None and token.lives(0, now) and not grant.renewal.ended:
        return Use(degraded=True)
    return Ask("refreshUncertain" if grant.renewal.ended == "uncertain" else "expired")


def _decide_alone(grant: Grant | None, need: Need, now: datetime) -> Decision:
    """The same without a person: whatever is missing is fetched, unless it was asked for and not given."""
    token = grant.token if grant is not None and grant.registration == need.registration else None
    if grant is None or grant.revoked or token is None:
        return Renew()
    if not need.scopes.issubset(grant.scopes):
        return Refuse(Code.SCOPE_INSUFFICIENT) if need.scopes.issubset(grant.renewal.asked) else Renew()
    if token.lives(need.enough(token), now) and not token.is_from_the_future(now):
        return Use()
    return Refuse(Code.MIN_TTL_UNSATISFIABLE) if _is_too_much(token, need) else Renew()


def _is_too_much(token: Token, need: Need) -> bool:
    return need.ttl is not None and token.lifetime_seconds is not None and need.ttl >= token.lifetime_seconds


def is_early(grant: Grant, need: Need, now: datetime) -> bool:
    """Whether the grant's token is young: only a caller who names a minimum close to its whole lifetime has it renewed,
    and could have it renewed at every call."""
    token = grant.token
    if need.ttl is None or token is None or token.lifetime_seconds is None:
        return False
    return token.lives(max(need.default_ttl, token.lifetime_seconds / 2), now)


def settle(renewed: Renewed, need: Need, now: datetime) -> Decision:
    """Lines 8 to 11, once a renewal was tried: a token that still lives is better than none, and a passing trouble is
    nobody's reason to bother a person."""
    grant, trouble = renewed.grant, renewed.trouble
    if trouble is not None and (grant is None or trouble.code is Code.SUBJECT_MISMATCH):
        return Refuse(trouble.code, trouble.retry_after_seconds)
    decision = decide(grant, need, now)
    if not isinstance(decision, Renew):
        return decision
    token = grant.token if grant is not None and not grant.revoked else None
    alive = grant is not None and token is not None and token.lives(0, now) and need.scopes.issubset(grant.scopes)
    if alive and need.ttl is None:
        return Use(degraded=True)
    if trouble is not None:
        return Refuse(trouble.code, trouble.retry_after_seconds)
    if alive:
        return Refuse(Code.MIN_TTL_UNSATISFIABLE)
    if token is not None and token.lifetime_seconds:  # it lived, and its answer took longer than that
        return Refuse(Code.PROVIDER_UNREACHABLE, 1)
    return Refuse(Code.TOKEN_RESPONSE_INVALID)
