"""How far the model is searched, and the counterexamples that no rule can remove."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from tests.model import invariants
from tests.model.invariants import Broken, Invariant
from tests.model.state import Bounds, Habit

SMALL: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        "people and bad answers": Bounds(3, kills=1, bad_answers=1, persons=1),
        "an outage and a kill": Bounds(3, kills=1, outages=1),
        "two outages": Bounds(2, outages=2, bad_answers=1),
        "a frozen host": Bounds(2, freezes=1, outages=1),
        "lost writes": Bounds(2, outages=2, lost_writes=1),
        "lost writes and people": Bounds(2, outages=1, lost_writes=1, persons=1),
        "lost writes and a kill": Bounds(2, outages=1, lost_writes=1, kills=1),
    }
)
LARGE: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        "people, kills and bad answers": Bounds(3, kills=2, bad_answers=2, persons=2),
        "two outages, a kill and a bad answer": Bounds(3, kills=1, outages=2, bad_answers=1),
        "two frozen hosts and a kill": Bounds(3, freezes=2, kills=1),
        "a frozen host, an outage and people": Bounds(3, freezes=1, outages=1, persons=1),
        "two outages, lost writes and a kill": Bounds(3, kills=1, outages=2, lost_writes=1),
        "lost writes, a kill and people": Bounds(3, kills=1, outages=1, lost_writes=1, persons=1),
        "lost writes and a bad answer": Bounds(3, outages=1, lost_writes=1, bad_answers=1),
    }
)
HABITS: Final[tuple[Habit, ...]] = ("strict", "grace", "lenient")


def long_rows() -> Iterator[tuple[str, Habit, int, Bounds]]:
    """Yield the rows of the long form: their name, the provider's habit, the hosts, the bounds."""
    for name, bounds in LARGE.items():
        yield name, "strict", 2, bounds
    for habit in HABITS[1:]:
        for name, bounds in SMALL.items():
            yield f"{name}, a provider that is {habit}", habit, 2, bounds
    for name in ("an outage and a kill", "lost writes"):
        yield f"{name}, three hosts", "strict", 3, SMALL[name]


def _broken(invariant: Invariant, *whys: str) -> set[Broken]:
    return {Broken(invariant.__name__, why) for why in whys}


FROZEN: Final = _broken(
    # No other host can tell one that is frozen from one that has died, nor keep it from going on where it was.
    invariants.a_spent_token_is_sent_again_only_if_its_answer_was_lost,
    "a host has its successor; a host was frozen when it was sent",
    "a host has its successor; a host was frozen when it was answered",
    "a host has its successor; a host was frozen when it was may send",
    "the store has its successor; a host was frozen when it was may send",
)
UNREMEMBERED: Final = _broken(
    # The database has lost it, and who has stored it has died: the grant ends as `uncertain`.
    invariants.at_rest_the_store_has_the_newest_token_or_an_intent,
    "no living broker remembers the newest token",
)
TWO_LOSSES: Final = _broken(
    # A record that is written back from memory counts as the newest, also where a newer token died with its holder: the
    # end is told as `expired`, not as `refreshUncertain`. Both lead to the same link.
    invariants.the_end_of_a_grant_is_told_rightly,
    "the database had lost it, and its holder has died",
)
BY_NATURE: Final = FROZEN | UNREMEMBERED
ENDS_BY_NATURE: Final = {"its holder was killed", "an answer was lost", "lost writes"}
