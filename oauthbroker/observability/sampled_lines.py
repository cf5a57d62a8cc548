"""Sample the lines that a stranger can cause at will: the first ones of a kind in each minute, then their number."""

from __future__ import annotations

from typing import Any, Final

from oauthbroker.observability.logging import Log

FEW: Final = 20  # lines of a kind in a minute
MINUTE: Final = 60.0
MOST_KINDS: Final = 200
Kind = tuple[tuple[str, Any], ...]
_OTHERS: Final[Kind] = (("kind", "others"),)


class SampledLines:
    """Says which lines are written. A kind is what the line with the number says, as pairs of field and value."""

    __slots__ = ("_counts", "_ends", "_log")

    def __init__(self, log: Log) -> None:
        self._log, self._ends, self._counts = log, float("-inf"), dict[Kind, int]()

    def admits(self, kind: Kind, now: float) -> bool:
        """Count a line. Return whether it is to be written. The first one after a minute writes what that left out."""
        if now >= self._ends:
            self._close()
            self._ends = now + MINUTE
        if kind not in self._counts and len(self._counts) >= MOST_KINDS:
            kind = _OTHERS
        self._counts[kind] = count = self._counts.get(kind, 0) + 1
        return count <= FEW

    def _close(self) -> None:
        counts, self._counts = self._counts, {}
        for kind, count in counts.items():
            if count > FEW:
                self._log.info("lines left out", left_out=count - FEW, **dict(kind))
