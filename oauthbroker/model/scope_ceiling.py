"""Which scopes a call may have: app >= tool >= call, exact strings, fixed in advance (specification 12.5.1, rule 2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.token_request import NotScopes, ScopeNotAllowed

NO_RIGHTS = frozenset({"offline_access"})
"""Scopes that ask for a refresh token and give no right (OpenID Connect Core 1.0 section 11). Many providers grant them
and leave them out of their answers, so they never count as missing."""


@dataclass(frozen=True, slots=True)
class ScopeNeed:
    """`needed` decides whether a grant suffices; `asked` is what an authorization asks the person for."""

    needed: frozenset[str]
    asked: tuple[str, ...]


def resolve_scopes(app: App, declared: Sequence[str] | None, wanted: Sequence[str] | None) -> ScopeNeed:
    """Return the scopes that a call needs, within its ceiling.

    `declared` are the tool's scopes (None: all of the app's), `wanted` the call's own (None: the declared ones;
    empty: nothing in particular). Raises `scopeNotAllowed` for anything outside, for repetition, and for junk;
    `appForbidden` when the app has none of the declared scopes left.
    """
    ceiling = app.scopes if declared is None else tuple(declared)
    if not app.scope_set.issuperset(ceiling):
        ceiling = tuple(scope for scope in ceiling if scope in app.scope_set)
        if not ceiling:
            raise BrokerError(Code.APP_FORBIDDEN)
    if wanted is None:
        return _all_of(ceiling)
    allowed = app.scope_set if declared is None else app.scope_set.intersection(declared)
    if not isinstance(wanted, (list, tuple, set, frozenset)):
        raise NotScopes
    are_texts = len(wanted) <= len(allowed) and all(isinstance(scope, str) for scope in wanted)
    needed = frozenset(wanted) if are_texts else frozenset()
    if not are_texts or len(needed) != len(wanted) or not needed <= allowed:
        raise ScopeNotAllowed(wanted, (scope for scope in app.scopes if scope in allowed))
    return ScopeNeed(needed - NO_RIGHTS, tuple(wanted) or ceiling)


@lru_cache(maxsize=1024)
def _all_of(ceiling: tuple[str, ...]) -> ScopeNeed:
    """Return the need for a whole ceiling. There are few: those of apps and tools."""
    return ScopeNeed(frozenset(ceiling) - NO_RIGHTS, ceiling)


def union_in_app_order(app: App, *groups: Sequence[str]) -> tuple[str, ...]:
    """Return the scopes of any group that the app allows, in the app's order: what a step-up asks for."""
    together = frozenset[str]().union(*groups)
    return tuple(scope for scope in app.scopes if scope in together)


def granted_scopes(
    app: App, asked: Sequence[str], answered: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (granted, missing) after an exchange. RFC 6749 section 5.1: no `scope` in the answer means the requested
    scopes.

    Aliases are folded; unlisted ones (never echoed by the provider) and those that are no right are assumed. Raises
    `scopeExceeded` for a scope that the app does not have, unless it says `extraScopes: ignore`; extras are never
    stored.
    """
    habits = app.habits
    if answered is None or habits.scopeless:
        return tuple(asked), ()
    said = {habits.scope_aliases.get(scope, scope) for scope in answered}
    extras = said - app.scope_set - set(habits.always_scopes)
    if extras and habits.extra_scopes == "reject":
        raise BrokerError(Code.SCOPE_EXCEEDED)
    said.update(scope for scope in asked if scope in habits.unlisted_scopes or scope in NO_RIGHTS)
    granted = tuple(scope for scope in app.scopes if scope in said)
    return granted, tuple(scope for scope in asked if scope not in said)
