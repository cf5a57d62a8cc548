"""The open facts of a grant: some could not be read yet, or the user has to choose between several elements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.records.codec import OPTIONAL
from oauthbroker.records.event import AgentEvent

_FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=2), timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One of several elements: the facts that it stands for, and the text that users know it by."""

    label: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFacts:
    """`missing` names the facts that the provider did not tell, after so many `tries`; it is asked again from
    `ask_after` on. `candidates` await the user's choice, and so do the `held` events of the sessions that ended."""

    missing: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    tries: int = field(default=0, metadata=OPTIONAL)
    ask_after: datetime | None = field(default=None, metadata=OPTIONAL)
    candidates: tuple[Candidate, ...] = field(default=(), metadata=OPTIONAL)
    held: tuple[AgentEvent, ...] = field(default=(), metadata=OPTIONAL)

    def __repr__(self) -> str:
        return f"OpenFacts({len(self.missing)} missing, {len(self.candidates)} to choose from)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """The result of one round of asking."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    label: str = ""

    def __repr__(self) -> str:
        return f"Learnt({len(self.facts)} facts, {len(self.missing)} missing)"


def pause_after(tries: int) -> timedelta:
    """Return how long to wait after so many tries: two seconds at first, then twice as long each time."""
    return min(_FIRST_PAUSE * (1 << min(tries - 1, 20)), LONGEST_PAUSE)
