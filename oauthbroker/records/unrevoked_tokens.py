"""Tokens that are still to be revoked, and what becomes of them when another grant replaces their record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.static_credential import FLOW as STATIC_FLOW
from oauthbroker.records.grant import Grant
from oauthbroker.records.refresh_state import RefreshState
from oauthbroker.records.retired_tokens import Retired

MACHINE = "client_credentials"
"""The flow whose tokens need no consent: the next one replaces them at their end, and the provider drops them."""


def parts_of(grant: Grant) -> tuple[Grant, ...]:
    """Return the tokens to be revoked, one part per registration: the grant without the tokens of other clients, then a
    tombstone for each of their sets."""
    own = replace(grant, elsewhere=()) if grant.elsewhere else grant
    return (*((own,) if own.revocation_pending else ()), *(_part(grant, others) for others in grant.elsewhere))


def passed_on(old: Grant | None, new: Grant, app: App, *, is_apart: bool = True) -> Grant:
    """Return `new`, which replaces `old`, with the old tokens that are still to be revoked: at once, or when `new`
    ends if revoking them earlier could end `new` too. Left out are the ones that it uses itself.

    `is_apart`: `new` came from a consent of its own, so its tokens were not made with the old ones. `forgotten` says
    what the audit log has to know.
    """
    if old is None:
        return new
    is_apart = is_apart and not _texts(*_used(new)) & _texts(*_used(old), *_unrevoked(old), *_replaced(old))
    for each in reversed(old.replaced):
        new = _with(new, each, at_once=False)
    for part in reversed(parts_of(old)):
        if part.ended is not None:
            by_another = part.registration != new.registration
            ended = replace(part.ended, registration=part.registration, authorized_by=part.authorized_by)
            ended = replace(ended, params=part.params, tell_after=part.tell_after)
            new = _with(new, ended, at_once=by_another or (is_apart and app.revocation.reach == "token"))
    own = _own(old) if new.flow != MACHINE and app.revocation.kind != "none" else None
    if own is not None:
        by_another = own.registration != new.registration
        new = _with(new, own, at_once=(by_another or is_apart) and app.revocation.reach == "token")
    return new


def forgotten(old: Grant | None, new: Grant, app: App) -> bool:
    """Return whether `new`, which replaces `old`, lacks a token that could still be revoked: there are too many."""
    if old is None:
        return False
    kept = _texts(*_used(new), *_unrevoked(new), *_replaced(new))
    own = _own(old) if new.flow != MACHINE and app.revocation.kind != "none" else None
    return not _texts(*_unrevoked(old), *_replaced(old), *(own.secrets if own is not None else ())) <= kept


def with_late(grant: Grant, late: Retired, app: App, begun: Grant | None) -> Grant:
    """Return the newest grant with tokens that came late, to be revoked: at once if the grant has ended, or if a
    consent has replaced the grant `begun` that they came for, and revoking them ends nothing else. Otherwise they wait
    for the grant's end, because they may have been made with its own."""
    if awaits(grant, late.registration):
        return grant.owing(late)
    left = late.without(_used(grant))
    if left is None or app.revocation.kind == "none":
        return grant
    is_apart = begun is not None and _is_of_another_consent(grant, begun)
    left = replace(left, authorized_by=begun.authorized_by if begun is not None else None)
    is_apart = is_apart or late.registration != grant.registration
    return _with(grant, left, at_once=is_apart and app.revocation.reach == "token")


def beside(grant: Grant, unused: Retired, app: App) -> Grant:
    """Return a living grant with tokens of a consent that another one has made unnecessary, to be revoked: at once, or
    with the grant if that could end it too."""
    return grant if app.revocation.kind == "none" else _with(grant, unused, at_once=app.revocation.reach == "token")


def left_to(there: Grant, ended: Grant) -> tuple[Grant, bool]:
    """Return a living grant with the tokens of one that has ended, to be revoked when it ends, too. Also return whether
    a token had no room."""
    tokens = ended.ended
    if tokens is None:
        return there, False
    by = ended.authorized_by
    tokens = replace(tokens, registration=ended.registration, authorized_by=by, params=ended.params)
    kept = _with(there, tokens, at_once=False)
    return kept, not _texts(*_replaced(there), *tokens.secrets) <= _texts(*_used(kept), *_replaced(kept))


def shares(grant: Grant, tokens: Iterable[Secret]) -> bool:
    """Return whether a living grant uses one of these tokens."""
    return bool(_texts(*_used(grant)) & _texts(*tokens))


def _is_of_another_consent(grant: Grant, begun: Grant) -> bool:
    is_imported = grant.auth_session_id is None
    return not is_imported and grant.consent != begun.consent and not _texts(*_used(grant)) & _texts(*_used(begun))


def _with(new: Grant, earlier: Retired, *, at_once: bool) -> Grant:
    left = earlier.without(_used(new))
    if left is None:
        return new
    return new.owing(left) if at_once else new.holding(left)


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
    by_another = registration != grant.registration
    return grant.revoked or (by_another and any(each.registration == registration for each in grant.elsewhere))


def _part(grant: Grant, others: Retired) -> Grant:
    ended = replace(grant, revoked=True, revocation="none", token=None, refresh_state=RefreshState(), elsewhere=())
    return replace(
        ended,
        flow="authorization_code",  # tokens of client credentials are never shared; these may be
        registration=others.registration,
        authorized_by=others.authorized_by,
        params=others.params,
        retired=replace(others, registration="", authorized_by=None, tell_after=None, params={}),
        tell_after=others.tell_after,
    )


def _since(retired: Retired, at: datetime) -> Retired:
    return replace(retired, since=min(retired.since, at))


def _unrevoked(grant: Grant) -> tuple[Secret, ...]:
    own = replace(grant, retired=None).ended
    return tuple(
        secret for each in (own, grant.retired, *grant.elsewhere) if each is not None for secret in each.secrets
    )


def _replaced(grant: Grant) -> tuple[Secret, ...]:
    return tuple(secret for each in grant.replaced for secret in each.secrets)


def _own(grant: Grant) -> Retired | None:
    """Return the tokens of a living grant, with the client and account that they belong to. No provider is told of a
    static credential, also where the app has another kind now."""
    own = grant.own_tokens
    if own is None or grant.revoked or grant.flow in {MACHINE, STATIC_FLOW}:
        return None
    return replace(own, registration=grant.registration, authorized_by=grant.authorized_by, params=grant.params)


def _used(grant: Grant) -> tuple[Secret, ...]:
    token = None if grant.revoked else grant.token
    found = (token.access_token, token.refresh_token, grant.refresh_state.spare) if token is not None else ()
    return tuple(secret for secret in found if secret)


def _texts(*secrets: Secret) -> set[str]:
    return {secret.reveal() for secret in secrets}
