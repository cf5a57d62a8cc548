"""Assess a refused refresh by evidence: what this answer says, how long the grant is refused, and what other grants of
the same client get meanwhile. Pure functions; docs/refresh.md, "How a refusal is assessed", has the table."""

from __future__ import annotations

from datetime import datetime

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.protocol.refresh_messages import Ambiguity, RefreshRefused
from oauthbroker.records import RefreshState
from oauthbroker.records.refresh_state import UNCLEAR_SECONDS
from oauthbroker.refresh.clients import Standing

_LOGGED = frozenset({Code.TOKEN_RESPONSE_INVALID, Code.TOKEN_UNCHANGED, Code.APP_MISCONFIGURED})
LONG_SECONDS = 3600  # where others of the client are refused, too, a refusal of the token has to last as long


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalAssessment:
    """The meaning of a refusal: what the grant remembers, what its caller is told, and whether the operator has to look
    because nothing tells whose fault it is. `is_news`: the log has not had it yet."""

    refused: RefreshRefused
    state: RefreshState
    error: BrokerError
    is_open: bool = False
    is_news: bool = True

    @property
    def is_loud(self) -> bool:
        """Tell whether the operator's log gets a line for it."""
        came = self.refused.spare is not None or self.refused.access is not None
        is_answer = self.refused.code in _LOGGED
        return bool(self.state.ended) or came or (self.is_news and (self.state.given_up or is_answer))


def assess_refusal(
    before: RefreshState, refused: RefreshRefused, standing: Standing, at: datetime
) -> RefusalAssessment:
    """Assess a refusal of the grant whose state was `before`. `standing` is the evidence on its client since the
    grant was first refused."""
    came = refused.spare is not None or refused.access is not None
    state = before.after(refused.code, spent=refused.spent, came=came, spare=refused.spare, at=at)
    if not refused.ambiguity:
        return RefusalAssessment(
            refused=refused, state=state, error=_error_of(refused, state), is_news=not state.given_up
        )
    lasted = (at - before.refused_since(at)).total_seconds()
    if before.given_up or is_dead(refused.ambiguity, standing, lasted):
        state = state.give_up(at, spent=refused.spent)
        error = _error_of(refused, state)
        return RefusalAssessment(refused=refused, state=state, error=error, is_news=not before.given_up)
    state = state.marked_ambiguous(at)
    error = _error_of(refused, state, is_proven=standing == "good")
    is_open = lasted >= UNCLEAR_SECONDS
    return RefusalAssessment(
        refused=refused, state=state, error=error, is_open=is_open, is_news=before.refused_at is None
    )


def is_dead(ambiguity: Ambiguity, standing: Standing, lasted: float) -> bool:
    """Tell whether refusals that have `lasted` so many seconds show that the refresh token is dead.

    A client that is good shows it in any words. Else only words that speak of the refresh token do, and they may be a
    fault of the provider while others are refused, too.
    """
    if lasted < UNCLEAR_SECONDS:
        return False
    if standing == "good":
        return True
    return ambiguity == "token" and (standing == "unknown" or lasted >= LONG_SECONDS)


def _error_of(refused: RefreshRefused, state: RefreshState, *, is_proven: bool = False) -> BrokerError:
    """Return the caller's error for a refusal, which the grant remembers in `state`."""
    if state.is_uncertain:
        return BrokerError(Code.REFRESH_UNCERTAIN, note=refused.note)
    if state.ended == "dead" or state.given_up:
        return BrokerError(Code.REAUTH_REQUIRED, note=refused.note)
    if refused.code is Code.EXCHANGE_FAILED or is_proven:  # perhaps dead: the next try tells
        return BrokerError(Code.REFRESH_REFUSED, note=refused.note, retry_after_seconds=1)
    return BrokerError(refused.code, note=refused.note, retry_after_seconds=refused.retry_after_seconds)
