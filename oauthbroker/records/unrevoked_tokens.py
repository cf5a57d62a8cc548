"""Tokens that are still to be revoked, and what becomes of them when another grant replaces their record."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Literal

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import OAuthApp
from oauthbroker.records.grant import Grant
from oauthbroker.records.refresh_state import RefreshState
from oauthbroker.records.retired_tokens import Retired


def parts_of(grant: Grant) -> tuple[Grant, ...]:
    """Return the tokens to be revoked, one part per registration: the grant without the tokens of other clients, then a
    tombstone for each of their sets."""
    own = replace(grant, elsewhere=())
    return (*((own,) if own.to_be_told else ()), *(_part(grant, others) for others in grant.elsewhere))


def passed_on(old: Grant | None, new: Grant, app: OAuthApp) -> Grant:
    """Return `new`, which replaces `old`, with the old tokens that are still to be revoked.

    Left out are the ones that it uses itself, and those of its own client if revoking them would also end the new
    grant. `forgotten` says what the audit log has to know.
    """
    for part in reversed(parts_of(old)) if old is not None else ():
        left = part.ended.without(_used(new)) if part.ended is not None else None
        if left is not None and (part.registration != new.registration or app.revocation.reach == "token"):
            by = part.authorized_by
            left = replace(left, registration=part.registration, authorized_by=by, tell_after=part.tell_after)
            new = new.owing(left)
    return new


def forgotten(old: Grant | None, new: Grant, app: OAuthApp) -> Literal["none", "shared"] | None:
    """Return why `new`, which replaces `old`, lacks a token that is still to be revoked, in the audit log's words:
    telling would end `new` too, or there are too many. None if it lacks none."""
    if old is None or _texts(*_unrevoked(old)) <= _texts(*_used(new), *_unrevoked(new)):
        return None
    return "none" if new.revoked or app.revocation.reach == "token" else "shared"


def dated_back(grant: Grant, registration: str, at: datetime) -> Grant:
    """Return the grant with its unrevoked tokens of a registration waiting since `at` at the latest. They seem to wait
    from a later time on if the clock was set back since."""
    others = (_since(each, at) if each.registration == registration else each for each in grant.elsewhere)
    grant = replace(grant, elsewhere=tuple(others))
    if registration != grant.registration:
        return grant
    token = grant.token.with_latest_end(at, grant.updated_at) if grant.token is not None else None
    if grant.revocation == "pending":
        grant = replace(grant, token=token, updated_at=min(grant.updated_at, at))
    return grant if grant.retired is None else replace(grant, retired=_since(grant.retired, at))


def awaits(grant: Grant, registration: str) -> bool:
    """Tell whether tokens of this client that come late belong to something that has ended."""
    return grant.revoked or any(others.registration == registration for others in grant.elsewhere)


def _part(grant: Grant, others: Retired) -> Grant:
    ended = replace(grant, revoked=True, revocation="none", token=None, refresh_state=RefreshState(), elsewhere=())
    return replace(
        ended,
        flow="authorization_code",  # tokens of client credentials are never shared; these may be
        registration=others.registration,
        authorized_by=others.authorized_by,
        retired=replace(others, registration="", authorized_by=None, tell_after=None),
        tell_after=others.tell_after,
    )


def _since(retired: Retired, at: datetime) -> Retired:
    return replace(retired, since=min(retired.since, at))


def _unrevoked(grant: Grant) -> tuple[Secret, ...]:
    own = replace(grant, retired=None).ended
    return tuple(
        secret for each in (own, grant.retired, *grant.elsewhere) if each is not None for secret in each.secrets
    )


def _used(grant: Grant) -> tuple[Secret, ...]:
    token = None if grant.revoked else grant.token
    found = (token.access_token, token.refresh_token, grant.refresh_state.spare) if token is not None else ()
    return tuple(secret for secret in found if secret is not None)


def _texts(*secrets: Secret) -> set[str]:
    return {secret.reveal() for secret in secrets}
