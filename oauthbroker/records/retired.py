"""Replaced tokens that are no longer handed out and are still to be revoked at the provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from oauthbroker.core.clock import from_iso, to_iso
from oauthbroker.core.secret import Secret

MOST = 20
"""The limit for each kind. It is reached only if a provider does not answer for very long; then the oldest go."""


@dataclass(frozen=True, slots=True)
class Retired:
    """Refresh and access tokens, each once, the newest first. `since` is when the last of them was added."""

    since: datetime
    refresh: tuple[Secret, ...] = ()
    access: tuple[Secret, ...] = ()

    def __repr__(self) -> str:
        return f"Retired({len(self.refresh)} refresh tokens, {len(self.access)} access tokens)"

    @classmethod
    def of(cls, refresh: Secret | None, access: Secret | None, at: datetime) -> Retired:
        """Return the tokens that end at this time, at most one of each kind."""
        return cls(at, () if refresh is None else (refresh,), () if access is None else (access,))

    def and_also(self, other: Retired | None) -> Retired:
        """Merge both, the newest first; tokens of the same time keep this order."""
        if other is None:
            return self
        newer, older = (self, other) if self.since >= other.since else (other, self)
        refresh, access = (*newer.refresh, *older.refresh), (*newer.access, *older.access)
        return Retired(newer.since, _each_once(refresh), _each_once(access))

    def without(self, secrets: Iterable[Secret]) -> Retired | None:
        """Return the rest after removing these tokens; None if none are left."""
        texts = {secret.reveal() for secret in secrets}
        refresh, access = (
            tuple(secret for secret in kind if secret.reveal() not in texts) for kind in (self.refresh, self.access)
        )
        return replace(self, refresh=refresh, access=access) if refresh or access else None

    def to_json(self) -> dict[str, Any]:
        return {
            "since": to_iso(self.since),
            "refreshTokens": [secret.reveal() for secret in self.refresh],
            "accessTokens": [secret.reveal() for secret in self.access],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Retired | None:
        if data is None:
            return None
        refresh, access = (tuple(map(Secret, data[kind])) for kind in ("refreshTokens", "accessTokens"))
        return cls(from_iso(data["since"]), refresh, access)


def _each_once(secrets: Iterable[Secret]) -> tuple[Secret, ...]:
    return tuple({secret.reveal(): secret for secret in secrets}.values())[:MOST]
