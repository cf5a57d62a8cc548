"""Tokens that nobody gets any more and of which the provider has still to hear, in the place of something newer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from oauthbroker.clock import from_iso, to_iso
from oauthbroker.secret import Secret

MOST = 20
"""Of each kind. More than that are only gathered while a provider does not answer for very long: the oldest go."""


@dataclass(frozen=True, slots=True)
class Retired:
    """Refresh and access tokens, each once, the newest first. `since` is when the last of them joined."""

    since: datetime
    refresh: tuple[Secret, ...] = ()
    access: tuple[Secret, ...] = ()

    def __repr__(self) -> str:
        return f"Retired({len(self.refresh)} refresh tokens, {len(self.access)} access tokens)"

    @classmethod
    def of(cls, refresh: Secret | None, access: Secret | None, at: datetime) -> Retired:
        """What ends at this moment, of each kind one or none."""
        return cls(at, () if refresh is None else (refresh,), () if access is None else (access,))

    def and_also(self, other: Retired | None) -> Retired:
        """Both, the newest first; what joined at one moment stays in this order."""
        if other is None:
            return self
        newer, older = (self, other) if self.since >= other.since else (other, self)
        refresh, access = (*newer.refresh, *older.refresh), (*newer.access, *older.access)
        return Retired(newer.since, _each_once(refresh), _each_once(access))

    def without(self, secrets: Iterable[Secret]) -> Retired | None:
        """What is left; None for nothing."""
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
