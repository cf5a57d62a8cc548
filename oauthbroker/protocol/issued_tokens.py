"""Tokens of an answer that the broker does not keep, so that they can be revoked."""

from __future__ import annotations

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.secret import Secret


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """Refresh and access tokens, each once."""

    refresh: tuple[Secret, ...] = ()
    access: tuple[Secret, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.refresh or self.access)

    def __repr__(self) -> str:
        return f"IssuedTokens({len(self.refresh)} refresh tokens, {len(self.access)} access tokens)"

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Return the tokens to revoke, the refresh tokens first (RFC 7009)."""
        return (*self.refresh, *self.access)

    @classmethod
    def of(cls, refresh: Secret | None, access: Secret | None) -> IssuedTokens:
        """Return the tokens of one answer, at most one of each kind."""
        return cls(() if refresh is None else (refresh,), () if access is None else (access,))
