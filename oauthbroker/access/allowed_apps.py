"""The apps and scopes that a call may request, where several lists permit it: what all of them have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oauthbroker.access.turn_token_cache import Allowed
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import ToolAuth


def intersection(one: Allowed | None, other: Allowed) -> Allowed:
    """Return the intersection. None allows everything."""
    if one is None:
        return other
    second = {auth.app: auth for auth in other}
    return _remaining((auth, second[auth.app]) for auth in one if auth.app in second)


def without_emptied(said: Iterable[ToolAuth], apps: Mapping[str, App]) -> Allowed:
    """Drop apps that were narrowed to no scopes: `[]` is valid only for an app without scopes."""
    return tuple(auth for auth in said if auth.scopes != () or (auth.app in apps and not apps[auth.app].scopes))


def configured(allowed: Allowed, apps: Mapping[str, App]) -> Allowed:
    """Drop apps and scopes that are not configured: a caveat's text comes from any holder."""
    there = (auth for auth in allowed if auth.app in apps)
    return _remaining((auth, ToolAuth(auth.app, apps[auth.app].scopes if auth.scopes else None)) for auth in there)


def _remaining(pairs: Iterable[tuple[ToolAuth, ToolAuth]]) -> Allowed:
    """Keep each app's remaining scopes and its delivery. An app with no scope left is dropped: a request with an
    empty list would return the grant's whole token."""
    kept = [
        (
            ToolAuth(one.app, _fewer(one.scopes, other.scopes), one.injected or other.injected),
            one.scopes or other.scopes,
        )
        for one, other in pairs
    ]
    return tuple(auth for auth, some in kept if auth.scopes or not some)


def _fewer(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(scope for scope in one if scope in other)
