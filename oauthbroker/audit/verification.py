"""The verification of an audit log: the genuine, missing and changed lines, and their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from oauthbroker.audit.chain import START, ChainHead
from oauthbroker.core.dataclasses import dataclass, field

MOST_BREAKS = 100  # stored with their places; all are counted
Kind = Literal["changed", "missing", "misplaced", "foreign", "cut", "replaced", "checkpoint", "reported"]
WHAT: dict[Kind, str] = {
    "changed": "the line is not the one that was written",
    "missing": "lines that were written before this one are missing",
    "misplaced": "the line is not in its place, or there twice",
    "foreign": "no line of this log",
    "cut": "the end of the log is not there",
    "replaced": "a line that is known to have been there is not, or is another one",
    "checkpoint": "the checkpoint is not there, or not of this store",
    "reported": "a broker found the log changed when it wanted to write, and said so here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One fault and its place. `lines` are the numbers of the missing lines, `reported` is a LogBroken's kind."""

    file: str
    line: int
    kind: Kind
    lines: tuple[int, int] | None = None
    reported: str | None = None

    def to_json(self) -> dict[str, Any]:
        words: dict[str, Any] = {"file": self.file, "line": self.line, "kind": self.kind}
        if self.lines is not None:
            words["missing"] = list(self.lines)
        return words | ({"reported": self.reported} if self.reported is not None else {})


@dataclass(slots=True, kw_only=True)
class SlotVerification:
    """The result for one slot. `verified` lines of the chain, numbers `first` to `last`; `moved_away`: the
    log's beginning is in files that are missing here; `unchained` lines precede the chain; `torn` ones were cut off
    by a crash; `unfinished`: bytes after the last line, which the next entry will report; `gaps`: entries that could
    not be written."""

    verified: int = 0
    first: int = 0
    head: ChainHead = START
    moved_away: bool = False
    unchained: int = 0
    torn: int = 0
    unfinished: int = 0
    gaps: int = 0
    checkpointed: int | None
    breaks: list[Break] = field(default_factory=list)
    broken: int = 0

    def add(self, found: Break) -> None:
        """Count a break, and keep its place within a limit."""
        self.broken += 1
        if len(self.breaks) < MOST_BREAKS:
            self.breaks.append(found)

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "last": self.head.seq,
            "mac": self.head.mac.decode(),
            "checkpointed": self.checkpointed,
            "earlierFilesMovedAway": self.moved_away,
        }


class _Sum:
    """A number of the trail: the sum of the slots' attributes of this name."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, trail: TrailVerification, _owner: type) -> int:
        return sum(getattr(slot, self._name) for slot in trail.slots.values())


@dataclass(frozen=True)
class TrailVerification:
    """The verifications of the slots, as one."""

    slots: Mapping[int, SlotVerification]

    @property
    def sound(self) -> bool:
        return not self.broken

    @property
    def breaks(self) -> tuple[Break, ...]:
        """Return the breaks of all slots, up to a limit; `broken` counts all."""
        return tuple(each for slot in self.slots.values() for each in slot.breaks)[:MOST_BREAKS]

    verified = _Sum()
    unchained = _Sum()
    torn = _Sum()
    unfinished = _Sum()
    gaps = _Sum()
    broken = _Sum()

    def to_json(self) -> dict[str, Any]:
        return {
            "sound": self.sound,
            "verified": self.verified,
            **self.slots[0].to_json(),
            "earlierFilesMovedAway": any(slot.moved_away for slot in self.slots.values()),
            "unchainedLines": self.unchained,
            "tornLines": self.torn,
            "unfinishedBytes": self.unfinished,
            "missingEntries": self.gaps,
            "broken": self.broken,
            "breaks": [each.to_json() for each in self.breaks],
            "slots": {str(number): slot.to_json() for number, slot in self.slots.items()},
        }
