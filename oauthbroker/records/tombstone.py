"""TombstoneRecord: marks a record that was ended early, so that a restored copy of it does not count."""

from __future__ import annotations

from datetime import datetime

from oauthbroker.core.clock import LONG_AGO
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.records import codec
from oauthbroker.records.codec import OPTIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The end of a record of kind `of`. It is invalid from `ends_at` on; it would have expired at `keep_until`
    (None: never). `since` is when a future end was set. For an immediate end it is `LONG_AGO`, so that the record
    stays ended under any clock."""

    of: str
    ends_at: datetime
    keep_until: datetime | None
    since: datetime | None = field(default=None, metadata=OPTIONAL)

    def and_also(self, other: Tombstone) -> Tombstone:
        """Merge two tombstones of one record: the earlier end and the later `keep_until`."""
        ends = (self.keep_until, other.keep_until)
        longest = None if None in ends else max(end for end in ends if end is not None)
        first = min(self, other, key=lambda each: (each.ends_at, each.since or LONG_AGO))
        return Tombstone(of=self.of, ends_at=first.ends_at, keep_until=longest, since=first.since)

    def is_over(self, now: datetime) -> bool:
        """Tell whether the record would have expired by now without the tombstone."""
        return self.keep_until is not None and self.keep_until <= now

    def to_plaintext(self) -> bytes:
        return codec.encode("TombstoneRecord", {"spec": codec.members(self)})

    @classmethod
    def from_plaintext(cls, body: bytes) -> Tombstone:
        return codec.made(cls, codec.decode("TombstoneRecord", body)["spec"])
