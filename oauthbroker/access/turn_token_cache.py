"""Cache the holders of admitted turn tokens by digest. An ended turn's own tokens are evicted without a scan of the
others."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.tokens.token_call import Caller

MOST_KNOWN = 10_000
MOST_BYTES = 16 * 1024 * 1024  # of their turns as stored; most of them are in the cache of records anyway

Allowed = tuple[ToolAuth, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTokenHolder(Caller):
    """The holder of a turn token. `declared`: the apps and scopes that it may request, None for everything, as for the
    runtime's own token. `tool` is the one that the runtime named: a token narrowed further still acts as that tool."""

    turn_id: str
    expires_at: datetime

    def may_ask(self, app: str) -> bool:
        return self.declared is None or any(auth.app == app for auth in self.declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A checked token: its holder, valid while this is the turn's record and this the configuration. `size` is the
    record's, in bytes."""

    record: TurnRecord
    bundle: Bundle
    token_holder: TurnTokenHolder
    size: int = 0


class KnownTokens:
    """The last `most` tokens, all of one configuration. A newer configuration clears the cache."""

    def __init__(self, most: int = MOST_KNOWN, most_bytes: int = MOST_BYTES) -> None:
        self._tokens = Bounded[bytes, Known](most, most_bytes=most_bytes, size_of=lambda known: known.size)
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
        self.forget(digest)
        self._of_turn.setdefault(known.record.locator, set()).add(digest)
        for evicted in self._tokens.keep(digest, known):
            self._unlist(*evicted)

    def forget(self, digest: bytes) -> None:
        known = self._tokens.pop(digest)
        if known is not None:
            self._unlist(digest, known)

    def _unlist(self, digest: bytes, known: Known) -> None:
        left = self._of_turn[known.record.locator]
        left.discard(digest)
        if not left:
            del self._of_turn[known.record.locator]

    def forget_turns(self, locators: Iterable[str]) -> None:
        for locator in locators:
            for digest in self._of_turn.pop(locator, ()):
                self._tokens.pop(digest)

    def turns(self) -> set[str]:
        """Return the locators of the turns whose tokens are cached."""
        return set(self._of_turn)
