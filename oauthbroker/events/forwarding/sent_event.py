"""What became of an event that was sent to its receiver."""

from __future__ import annotations

from typing import Literal

from oauthbroker.core.dataclasses import dataclass

Outcome = Literal["taken", "refused", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentEvent:
    """`taken`: the receiver has the event. `refused`: it may have it, and did not say so; the attempt counts. `away`:
    it cannot take any event now, so that the attempt does not count; `pause_seconds` is how long it asked to be left
    alone, 0 if it did not. `why` is a fixed phrase for the log.
    """

    outcome: Outcome
    why: str = ""
    pause_seconds: int = 0


TAKEN = SentEvent(outcome="taken")
