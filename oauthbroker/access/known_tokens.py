"""Cache admitted turn tokens by digest. An ended turn's own tokens are evicted without a scan of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from oauthbroker.core.bounded import Bounded
from oauthbroker.model.apps import Bundle, ToolAuth

MOST_KNOWN = 10_000

Allowed = tuple[ToolAuth, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """A checked token, valid while its turn exists and the configuration is unchanged. It does not hold the turn, which
    may be large; the record store bounds how many turns are cached."""

    locator: str
    bundle: Bundle
    tool: str | None
    declared: Allowed | None
    expires_at: datetime
    narrowed: bool


class KnownTokens:
    """The last `MOST_KNOWN` tokens, all of one configuration. A newer configuration clears the cache."""

    def __init__(self, most: int = MOST_KNOWN) -> None:
        self._tokens = Bounded[bytes, Known](most)
        self._of_turn: dict[str, set[bytes]] = {}
        self._bundle: object = None

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"KnownTokens({len(self)} of {len(self._of_turn)} turns)"

    def get(self, digest: bytes) -> Known | None:
        return self._tokens.get(digest)

    def keep(self, digest: bytes, known: Known) -> None:
        if known.bundle is not self._bundle:
            self._tokens.clear()
            self._of_turn.clear()
            self._bundle = known.bundle
        self._of_turn.setdefault(known.locator, set()).add(digest)
        for evicted in self._tokens.keep(digest, known):
            self._unlist(*evicted)

    def forget(self, digest: bytes) -> None:
        known = self._tokens.pop(digest)
        if known is not None:
            self._unlist(digest, known)

    def _unlist(self, digest: bytes, known: Known) -> None:
        left = self._of_turn[known.locator]
        left.discard(digest)
        if not left:
            del self._of_turn[known.locator]

    def forget_turns(self, locators: Iterable[str]) -> None:
        for locator in locators:
            for digest in self._of_turn.pop(locator, ()):
                self._tokens.pop(digest)

    def turns(self) -> set[str]:
        """Return the locators of the turns whose tokens are cached."""
        return set(self._of_turn)
