"""Search every state of the model, the nearest first. `python -m tests.model.search` runs the long form."""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from tests.model.actions import Action
from tests.model.bounds import BY_NATURE, TWO_LOSSES, long_rows
from tests.model.disturbances import successors
from tests.model.invariants import INVARIANTS, Broken, broken, family_ended
from tests.model.state import CURRENT, Bounds, Habit, Rules, State, first_state

MOST_STATES = 20_000_000
Cause = tuple[State, Action] | None


@dataclass
class Found:
    """How each state was reached first, and for each reason the first action that broke an invariant, or by which the
    broker ended the family. `shapes` has the first action of each shape, for a replay that passes through all of them."""

    reached: dict[State, Cause] = field(default_factory=dict)
    broken: dict[Broken, tuple[State, Action, State]] = field(default_factory=dict)
    ended: dict[str, tuple[State, Action, State]] = field(default_factory=dict)
    shapes: dict[tuple[object, ...], tuple[State, Action, State]] = field(default_factory=dict)
    actions: int = 0
    whole: bool = False

    def path(self, state: State) -> list[tuple[Action, State]]:
        """Return the shortest way to a state."""
        steps = list[tuple[Action, State]]()
        while (cause := self.reached[state]) is not None:
            steps.append((cause[1], state))
            state = cause[0]
        return steps[::-1]

    def trace(self, why: Broken | str) -> list[tuple[Action, State]]:
        return self.with_last(self.ended[why] if isinstance(why, str) else self.broken[why])

    def with_last(self, last: tuple[State, Action, State]) -> list[tuple[Action, State]]:
        """Return the shortest way to an action, with it."""
        return [*self.path(last[0]), last[1:]]


def search(
    rules: Rules,
    bounds: Bounds,
    *,
    hosts: int = 2,
    habit: Habit = "strict",
    known: Container[Broken] | None = None,
    most: int = MOST_STATES,
) -> Found:
    """Visit the states breadth-first. What follows a broken invariant is not visited; The search ends with the
    first broken one that is not `known`."""
    found = Found()
    start = first_state(bounds, hosts)
    found.reached[start] = None
    queue = deque([start])
    while queue and len(found.reached) < most:
        before = queue.popleft()
        for action, after in successors(before, rules, habit):
            found.actions += 1
            found.shapes.setdefault(_shape(before, action, after), (before, action, after))
            if (why := broken(before, action, after)) is not None:
                found.broken.setdefault(why, (before, action, after))
                if known is not None and why not in known:
                    return found
                continue
            if why_ended := family_ended(before, after):
                found.ended.setdefault(why_ended, (before, action, after))
            if after not in found.reached:
                found.reached[after] = before, action
                queue.append(after)
    found.whole = not queue
    return found


def follow(rules: Rules, bounds: Bounds, *lines: str) -> list[tuple[Action, State]]:
    """Return the trace with these lines."""
    trace, state = list[tuple[Action, State]](), first_state(bounds)
    for line in lines:
        after = {str(action): (action, after) for action, after in successors(state, rules, "strict")}
        trace.append(after[line])
        state = trace[-1][1]
    return trace


def _shape(before: State, action: Action, after: State) -> tuple[object, ...]:
    """Return what an action is about, without its numbers."""
    record, host = before.record, before.hosts[action.host - 1]
    mine = 0 if not record.intent else 1 if record.intent == action.host else 2
    age = (record.token > host.begun.token) - (record.token < host.begun.token)
    facts = (record.word, after.record.word, mine, bool(record.spare), bool(host.begun.spare), bool(record.lost), age)
    return action.word, before.up, before.failed_over, host.step, host.kind, host.contact, *facts


def reported(trace: list[tuple[Action, State]]) -> Iterator[str]:
    """Yield a line for each action of a trace, with what the store and the provider know then."""
    for number, (action, state) in enumerate(trace, 1):
        record = state.record
        store = f"{record.word} {record.token}" + (f" spare {record.spare}" if record.spare else "")
        intent = f", an intent after {record.lost} lost answers" if record.intent else ""
        yield f"{number:3}. {action}  [store: {store}{intent}; provider: {state.provider.newest} {state.provider.family}]"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model.search")
    parser.add_argument("--states", type=int, default=400_000, help="the most states of each table row")
    most, problems, states = parser.parse_args().states, 0, list[int]()
    for name, habit, hosts, bounds in long_rows():
        began = time.monotonic()
        found = search(CURRENT, bounds, hosts=hosts, habit=habit, most=most)
        seconds = time.monotonic() - began
        states.append(len(found.reached))
        print(
            f"{name}: {len(found.reached)} states{'' if found.whole else ' (not all)'} in {seconds:.0f} s", flush=True
        )
        for why in found.broken.keys() - BY_NATURE - TWO_LOSSES:
            problems += 1
            print(f"\n{why}", *reported(found.trace(why)), "", sep="\n")
    print(f"searches: {len(states)}\nstates of all: {sum(states)}\nlaws: {len(INVARIANTS)}\nbroken: {problems}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
