"""Remember the newest versions of grants that this process has stored or read lately.

A store that has lost its last writes gives an older version than before. Then the newer record in memory is perhaps the
only copy of a rotated token, and the only trace of a revocation.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import SET_BACK, SystemClock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import Grant, RefreshState, Token
from oauthbroker.repository.versioned import Versioned
from oauthbroker.store.format.port import Entry

KEPT_SECONDS: Final = 600.0  # longer than any standby is behind, or a failover takes
_MOST: Final = 5_000
_MOST_REPLACED: Final = 8  # tokens of one grant
_Line = tuple[datetime, str | None, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGrant:
    """The newest version of a grant, the consents and the tokens that it replaced, and when it was seen."""

    versioned: Versioned[Grant]
    lines: frozenset[_Line]
    replaced: tuple[Token, ...]
    at: float


class NewestSeen:
    """The memory of one process. `behind` are the pairs whose stored version is older than a remembered one."""

    def __init__(self, monotonic: Callable[[], float] = SystemClock.monotonic) -> None:
        self._monotonic = monotonic
        self._seen = Bounded[GrantKey, SeenGrant](_MOST)
        self.behind = set[GrantKey]()

    def keys(self) -> list[GrantKey]:
        return [pair for pair, seen in self._seen.items() if self._is_recent(seen)]

    def note(self, versioned: Versioned[Grant]) -> bool:
        """Remember a version that was stored or read. False if a newer one is remembered."""
        if self.newer_than(versioned) is not None:
            return False
        pair, line = versioned.record.key, _line(versioned.record)
        lines, replaced, before = frozenset({line}), tuple[Token, ...](), self._recent(pair)
        if before is not None and (
            versioned.generation > before.versioned.generation or _same_token(versioned, before.versioned)
        ):
            last = before.versioned.record.token
            known = (*before.replaced, last) if last is not None else before.replaced
            lines |= before.lines
            replaced = tuple(token for token in known if not _same(token, versioned.record.token))[-_MOST_REPLACED:]
        kept = Versioned(versioned.record, versioned.entry.without_body())
        self._seen.keep(pair, SeenGrant(versioned=kept, lines=lines, replaced=replaced, at=self._monotonic()))
        self.behind.discard(pair)
        return True

    def forget(self, grant: Grant) -> None:
        self._seen.pop(grant.key)
        self.behind.discard(grant.key)

    def newer_than(self, found: Versioned[Grant]) -> Grant | None:
        """Return the remembered record if the found version is its ancestor: of a consent that led to it, with an older
        token, without its spare, or not yet revoked. A later consent, revocation or refresh is none."""
        pair = found.record.key
        seen = self._recent(pair)
        if seen is None or not _is_ancestor(found, seen):
            return None
        self.behind.add(pair)
        now, there = seen.versioned.record, found.record
        known = {event.id for event in now.outbox}
        return replace(now, outbox=(*(event for event in there.outbox if event.id not in known), *now.outbox))

    def _recent(self, pair: GrantKey) -> SeenGrant | None:
        seen = self._seen.get(pair)
        return seen if seen is not None and self._is_recent(seen) else None

    def _is_recent(self, seen: SeenGrant) -> bool:
        return self._monotonic() - seen.at < KEPT_SECONDS


def _is_ancestor(found: Versioned[Grant], seen: SeenGrant) -> bool:
    there, now = found.record, seen.versioned.record
    if there.revoked or _line(there) not in seen.lines:
        return False
    if now.revoked or _line(there) != _line(now):  # wins over a late answer, which brings a token that is not known
        known = any(_same(there.token, token) for token in (*seen.replaced, now.token))
        return there.updated_at <= now.updated_at or not known
    if _same(there.token, now.token):
        return _lacks_spare(there.refresh_state, now.refresh_state)
    if there.updated_at > now.updated_at + SET_BACK:
        return False
    return any(_same(there.token, token) for token in seen.replaced) or _is_before(found.entry, seen.versioned.entry)


def _lacks_spare(there: RefreshState, now: RefreshState) -> bool:
    """Tell whether a version is from before the refused answer whose refresh token another one keeps."""
    return now.spare is not None and there.spare is None and not there.ended


def _is_before(one: Entry, other: Entry) -> bool:
    """Tell whether a version is older by its numbers. A row that was removed and made again counts from 1, with a later
    stamp where stamps are numbers."""
    if isinstance(one.stamp, int) and isinstance(other.stamp, int) and one.stamp > other.stamp:
        return False
    return one.generation < other.generation


def _line(grant: Grant) -> _Line:
    """Return what all versions of one consent, or of one import, have in common."""
    return grant.created_at, grant.auth_session_id, grant.imported, grant.registration


def _same_token(one: Versioned[Grant], other: Versioned[Grant]) -> bool:
    return _same(one.record.token, other.record.token)


def _same(one: Token | None, other: Token | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.access_token, one.refresh_token) == (other.access_token, other.refresh_token)
