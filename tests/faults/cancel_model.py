"""A model of the states that are allowed after each acknowledged action. Everything here is called between two steps of the event loop."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from oauthbroker.events.port import EventLease

Pair = tuple[str, str]


@dataclass
class Model:
    """`problems` are claims that did not hold."""

    problems: list[str] = field(default_factory=list)
    families: dict[Pair, set[int]] = field(default_factory=dict)
    dead: dict[Pair, set[int]] = field(default_factory=dict)
    ended_turns: set[str] = field(default_factory=set)
    handed: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    queued: set[str] = field(default_factory=set)
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    handed_in_all: int = 0
    reported: set[str] = field(default_factory=set)
    removed_keys: set[str] = field(default_factory=set)

    # tokens

    def known(self, pair: Pair) -> frozenset[int]:
        """The families whose tokens were handed out for this pair by now."""
        return frozenset(self.families.get(pair, ()))

    def dead_of(self, pair: Pair) -> frozenset[int]:
        """The families that no call which begins now may hand out."""
        return frozenset(self.dead.get(pair, ()))

    def handed_out(self, pair: Pair, family: int, dead: frozenset[int]) -> None:
        if family in dead:
            self.problems.append(f"a token of {pair} was handed out after its revocation was acknowledged")
        self.families.setdefault(pair, set()).add(family)

    def revoked(self, pair: Pair, known: frozenset[int]) -> None:
        """A revocation was acknowledged; `known` is from before it was asked for."""
        self.dead.setdefault(pair, set()).update(known)

    # events

    def leased(self, delivery: EventLease) -> None:
        self.handed_event(delivery.id, delivery.attempt, delivery.to_json())

    def handed_event(self, event: str, attempt: int, body: dict[str, Any]) -> None:
        self.handed[event] += 1
        self.handed_in_all += 1
        self.reported.add(event)
        self.about[event] = body
        if event in self.acked:
            self.problems.append(f"{event} was leased after it was acknowledged")
        if attempt > self.handed[event]:
            self.problems.append(f"attempt {attempt} of {event}, which was handed out {self.handed[event]} times")

    def settled(self, event: str, *, done: bool) -> None:
        if done:
            self.acked.add(event)

    def given_back(self, event: str) -> None:
        self.handed[event] -= 1

    def forget(self) -> None:
        """A new epoch: every turn, event and session of the one before is gone. Grants and the lists of what people were told stay."""
        self.reported |= self.dropped
        for kept in (
            self.ended_turns,
            self.handed,
            self.acked,
            self.dropped,
            self.queued,
            self.about,
            self.removed_keys,
        ):
            kept.clear()
