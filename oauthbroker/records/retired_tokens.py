"""Replaced tokens that are no longer handed out and are still to be revoked at the provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.records.codec import OPTIONAL, named

MOST = 20
"""The limit for each kind. It is reached only if a provider does not answer for very long; then the oldest go."""
MOST_BYTES = 64 * 1024
"""The limit for each kind in bytes, so that a record with many long tokens still fits the store. The newest token is
always kept."""
MOST_CLIENTS = 5
"""The limit of sets in one list of a record. Each is a client id that the app had, or an account that agreed."""


@dataclass(frozen=True, slots=True)
class Retired:
    """Refresh and access tokens, each once, the newest first. `since` is when the last of them was added.

    The rest is set for tokens of another client than their record's: the `registration` that alone may revoke them,
    with the connection's `params`, the account that `authorized_by` names, and `tell_after`, as in a grant.
    """

    since: datetime
    refresh: tuple[Secret, ...] = field(default=(), metadata=named("refreshTokens"))
    access: tuple[Secret, ...] = field(default=(), metadata=named("accessTokens"))
    _: KW_ONLY
    registration: str = field(default="", metadata=OPTIONAL)
    authorized_by: str | None = field(default=None, metadata=OPTIONAL)
    tell_after: datetime | None = field(default=None, metadata=OPTIONAL)
    params: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)

    def __repr__(self) -> str:
        return f"Retired({len(self.refresh)} refresh tokens, {len(self.access)} access tokens)"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        return (*self.refresh, *self.access)

    @classmethod
    def of(cls, refresh: Secret | None, access: Secret | None, at: datetime) -> Retired:
        """Return the tokens that end at this time, at most one of each kind."""
        return cls(at, () if refresh is None else (refresh,), () if access is None else (access,))

    def and_also(self, other: Retired | None) -> Retired:
        """Merge both, the newest first; tokens of the same time keep this order. A pause that the provider asked for by
        a refusal stays, and so does the account of tokens that came without one."""
        if other is None:
            return self
        newer, older = (self, other) if self.since >= other.since else (other, self)
        return replace(
            self,
            since=newer.since,
            refresh=_each_once((*newer.refresh, *older.refresh)),
            access=_each_once((*newer.access, *older.access)),
            authorized_by=self.authorized_by or other.authorized_by,
            tell_after=max(filter(None, (self.tell_after, other.tell_after)), default=None),
        )

    def without(self, secrets: Iterable[Secret]) -> Retired | None:
        """Return the rest after removing these tokens; None if none are left."""
        texts = {secret.reveal() for secret in secrets}
        refresh, access = (
            tuple(secret for secret in kind if secret.reveal() not in texts) for kind in (self.refresh, self.access)
        )
        return replace(self, refresh=refresh, access=access) if refresh or access else None


def merged(sets: Iterable[Retired], more: Retired) -> tuple[Retired, ...]:
    """Return one set per registration and account, the newest first, with the tokens of `more`. At most MOST_CLIENTS.
    Tokens whose account is unknown join the first set of their registration."""
    sets = tuple(sets)
    there = next((each for each in sets if _is_one_set(each, more)), None)
    kept = (more.and_also(there), *(each for each in sets if each is not there))
    return tuple(sorted(kept, key=lambda each: each.since, reverse=True)[:MOST_CLIENTS])


def _is_one_set(one: Retired, other: Retired) -> bool:
    by = {one.authorized_by, other.authorized_by} - {None}
    return one.registration == other.registration and len(by) < 2


def _each_once(secrets: Iterable[Secret]) -> tuple[Secret, ...]:
    kept, reservation = dict[str, Secret](), MOST_BYTES
    for secret in secrets:
        text = secret.reveal()
        if text in kept:
            continue
        reservation -= len(text)
        if kept and (reservation < 0 or len(kept) == MOST):
            break
        kept[text] = secret
    return tuple(kept.values())
