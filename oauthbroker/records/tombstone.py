"""TombstoneRecord: a record was ended before its time, and no copy of it that is put back counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from oauthbroker.clock import from_iso, to_iso
from oauthbroker.records import codec


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The end of a record of kind `of`. From `ends_at` on it counts for nothing; at `keep_until` it would have ended by
    itself (None: never)."""

    of: str
    ends_at: datetime
    keep_until: datetime | None

    def and_also(self, other: Tombstone) -> Tombstone:
        """Both of one record: the earlier end, and kept as long as either."""
        ends = (self.keep_until, other.keep_until)
        longest = None if None in ends else max(end for end in ends if end is not None)
        return Tombstone(self.of, min(self.ends_at, other.ends_at), longest)

    def is_over(self, now: datetime) -> bool:
        """Whether the record would have ended by now anyway."""
        return self.keep_until is not None and self.keep_until <= now

    def to_plaintext(self) -> bytes:
        spec = {"of": self.of, "endsAt": to_iso(self.ends_at), "keepUntil": codec.iso(self.keep_until)}
        return codec.encode("TombstoneRecord", {"spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> Tombstone:
        spec = codec.decode("TombstoneRecord", body)["spec"]
        return cls(spec["of"], from_iso(spec["endsAt"]), codec.moment(spec["keepUntil"]))
