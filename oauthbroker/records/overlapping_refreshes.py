"""Two refreshes of one grant that overlap, after a lease was lost or a login came in between: what each may store.

`begun` is the grant with the intent of the refresh in question, `newest` the one that the store has now.
"""

from __future__ import annotations

from dataclasses import replace

from oauthbroker.records.grant import Grant
from oauthbroker.records.refresh_state import RefreshState
from oauthbroker.records.token import Token


def is_attempted_as(newest: Grant, begun: Grant) -> bool:
    """Tell whether the refresh whose intent is `begun` may still commit: no revocation, login or other attempt
    came in between."""
    intent, mine = newest.refresh_state.intent, begun.refresh_state.intent
    return not newest.revoked and intent is not None and mine is not None and intent.attempt == mine.attempt


def awaits_answer_of(newest: Grant, begun: Grant) -> bool:
    """Tell whether an answer to the refresh whose intent is `begun` belongs here: its own intent stands, or another
    attempt began with the same tokens after the first one's lease had lapsed, and has no token yet."""
    return is_attempted_as(newest, begun) or (not newest.revoked and _has_tokens_of(newest, begun))


def _has_tokens_of(newest: Grant, begun: Grant) -> bool:
    mine, sent = newest.token, begun.token
    if mine is None or sent is None:
        return False
    return (mine.refresh_token, mine.access_token) == (sent.refresh_token, sent.access_token)


def _keeps(newest: Grant, begun: Grant) -> bool:
    """Tell whether the refresh token is still one that the attempt `begun` may have spent."""
    return newest.token is not None and newest.token.refresh_token in begun.refresh_tokens


def beside(refreshed: Grant, other: RefreshState, begun: Grant) -> Grant:
    """Return the grant, refreshed by the attempt `begun`, with what another attempt holds, whose request was sent
    later: its intent, and the spare that it has brought. A spare that this attempt had already when it began is
    spent now."""
    spare = None if other.spare in begun.refresh_tokens else other.spare
    return replace(refreshed, refresh_state=replace(refreshed.refresh_state, intent=other.intent, spare=spare))


def after_refusal(newest: Grant, begun: Grant, after: Grant) -> Grant | None:
    """Return this newest grant with the refusal of the refresh whose intent is `begun`, which makes `after` of it;
    None if the refusal changes nothing. What another attempt has stored meanwhile stays: its token, its spare. A
    spare that came with the refusal is kept, because no other place has it, unless an attempt that was sent later
    has brought one."""
    state, refused = newest.refresh_state, after.refresh_state
    mine = None if refused.spare in begun.refresh_tokens else refused.spare
    others = None if state.spare in begun.refresh_tokens else state.spare
    if not is_attempted_as(newest, begun):
        if mine is None or others is not None or newest.revoked or state.ended == "quarantined":
            return None
        return replace(newest, refresh_state=replace(state, spare=mine, ended="")) if _keeps(newest, begun) else None
    if not (_has_tokens_of(newest, begun) or newest.token is None):
        return replace(newest, refresh_state=replace(state, intent=None, spare=mine or state.spare))
    if others is not None and refused.ended != "quarantined":
        refused = replace(state, intent=None) if refused.is_over else replace(refused, spare=mine or others)
    return replace(newest, token=after.token, refresh_state=refused, updated_at=after.updated_at)


def adopting(newest: Grant, begun: Grant, token: Token) -> Grant | None:
    """Return the grant with the refresh token of a refresh that a new login overtook, if that login kept the
    refresh token that the refresh has spent. None if the login has its own."""
    mine, fresh = newest.token, token.refresh_token
    if newest.revoked or mine is None or mine.refresh_token is None or fresh is None or newest.renews_itself:
        return None
    if not _keeps(newest, begun) or fresh in begun.refresh_tokens:
        return None
    return replace(newest, token=replace(mine, refresh_token=fresh))
