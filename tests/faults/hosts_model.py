"""What the hosts said, and what of it must not be: the reference model of `tests.faults.hosts`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from oauthbroker.store.format.port import FEED_SECONDS
from tests.world.histories import Operation, is_possible

Pair = tuple[str, int]  # app and person
LONGEST_REVOCATION = 60.0  # seconds: of one whose process was killed, it is not known when it took effect
UNREADABLE = ("keyUnknown", "recordCorrupt", "recordMisplaced")
TOLERATED = {"link:noGrant", "link:refreshUncertain", "link:revoked"}


@dataclass(frozen=True)
class Reported:
    """An answer with a token, and the times before and after the call. `bound`: of the freshness of the host that gave
    it, in seconds."""

    pair: Pair
    token: str
    asked: float
    got: float
    bound: float = 0.0


@dataclass(frozen=True)
class Without:
    """An answer that knows of no grant, with the times and the bound of `Reported`."""

    pair: Pair
    asked: float
    got: float
    bound: float = 0.0


@dataclass
class Facts:
    """The lines of all hosts, in the order in which they were read."""

    answers: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    intents: Counter[str] = field(default_factory=Counter)
    after_lost: Counter[str] = field(default_factory=Counter)
    ended: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    reported: list[Reported] = field(default_factory=list)
    without: list[Without] = field(default_factory=list)
    revoking: list[tuple[Pair, float]] = field(default_factory=list)
    revoked: list[tuple[Pair, float, float]] = field(default_factory=list)
    refused_revocations: dict[tuple[Pair, float], float] = field(default_factory=dict)
    granted: set[str] = field(default_factory=set)
    consented: list[tuple[Pair, float]] = field(default_factory=list)
    turns_over: dict[str, float] = field(default_factory=dict)
    admitted: list[tuple[str, float, float]] = field(default_factory=list)  # turn, asked, bound
    feeds: Counter[str] = field(default_factory=Counter)
    trusting: set[str] = field(default_factory=set)  # processes that trust a feed
    enqueued: set[tuple[str, int]] = field(default_factory=set)
    received: dict[tuple[str, int], float] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)

    def hear(self, line: list[str]) -> None:
        match line:
            case ["told", process, word, app, person, token, asked, got]:
                self.answers[word] += 1
                pair = app, int(person)
                if token != "-":
                    self.reported.append(Reported(pair, token, float(asked), float(got), self._bound(process)))
                elif word == "link:noGrant":
                    self.without.append(Without(pair, float(asked), float(got), self._bound(process)))
            case ["intent", _, app, lost]:
                self.intents[app] += 1
                self.after_lost[app] += int(lost) > 0
            case ["ended", _, _, word, token]:
                self.ended[word].add(token)
            case ["refused", what, code]:
                self.refused[f"{what}: {code}"] += 1
            case ["granted", session, app, person, when]:
                self.granted.add(session)
                self.consented.append(((app, int(person)), float(when)))
            case ["revoking" | "revoked" | "unrevoked", app, person, *times]:
                self._hear_of_revocation(line[0], (app, int(person)), [*map(float, times)])
            case _:
                self._hear_of_others(line)

    def _hear_of_revocation(self, what: str, pair: Pair, times: list[float]) -> None:
        match what, times:
            case "revoking", [begun]:
                self.revoking.append((pair, begun))
            case "revoked", [begun, done]:
                self.revoked.append((pair, begun, done))
            case "unrevoked", [begun, done]:
                self.refused_revocations[pair, begun] = done

    def _bound(self, process: str) -> float:
        """Return how many seconds a change of another host may go unnoticed in a process."""
        return FEED_SECONDS if process in self.trusting else 0.0

    def _hear_of_others(self, line: list[str]) -> None:
        match line:
            case ["trusts", process]:
                self.trusting.add(process)
            case ["feed", _, state]:
                self.feeds[state] += 1
            case ["over", turn, when]:
                self.turns_over[turn] = float(when)
            case ["admitted", process, turn, asked]:
                self.admitted.append((turn, float(asked), self._bound(process)))
            case ["enqueued", instance, number]:
                self.enqueued.add((instance, int(number)))
            case ["received", instance, number, session, when]:
                self.sessions.add(session)
                event = (instance, int(number))
                if int(number):
                    self.received[event] = min(float(when), self.received.get(event, float(when)))

    def missing_events(self) -> list[Any]:
        return sorted(self.enqueued - self.received.keys())

    def missing_ends(self) -> list[str]:
        return sorted(self.granted - self.sessions)


def problems(facts: Facts, provider: Mapping[str, Any], grace: Mapping[str, int]) -> list[str]:
    """Return what no run may show. `provider`: its answers to `figures`, `refusals`, `requests` and `families`."""
    return [
        *_grants_lost(facts),
        *_families_lost(facts, provider, grace),
        *_handed_out_after_revocation(facts, provider["families"]),
        *_without_an_order(facts, provider["families"]),
        *_admitted_after_end(facts),
        *_out_of_order(facts),
        *[f"an acknowledged event was never delivered: {each}" for each in facts.missing_events()],
        *[f"no event told the end of session {each}" for each in facts.missing_ends()],
        *_ended_without_cause(facts, provider),
        *[f"{facts.answers[word]} times: {word}" for word in facts.answers if word.startswith("failed")],
        *[f"{count} times: {what}" for what, count in facts.refused.items() if what.endswith(UNREADABLE)],
        *[
            f"{facts.answers[word]} times: {word}"
            for word in facts.answers
            if word.startswith("link") and word not in {*TOLERATED, "link:expired"}
        ],
    ]


def _grants_lost(facts: Facts) -> list[str]:
    """A pair whose consent or token was acknowledged has a grant from then on, until a revocation takes effect. A grant that
    is revoked leaves a record only until the provider has been told."""
    acknowledged = defaultdict[Pair, list[tuple[float, float]]](list)  # before and after each call
    for each in facts.reported:
        acknowledged[each.pair].append((each.asked, each.got))
    for pair, when in facts.consented:
        acknowledged[pair].append((when, when))
    ends = {(pair, begun): done for pair, begun, done in facts.revoked} | facts.refused_revocations
    revocations = defaultdict[Pair, list[tuple[float, float]]](list)
    for pair, begun in facts.revoking:
        revocations[pair].append((begun, ends.get((pair, begun), begun + LONGEST_REVOCATION)))
    found = []
    for answer in facts.without:
        known = [asked for asked, got in acknowledged[answer.pair] if got < answer.asked]
        if known and not any(begun < answer.got and done > max(known) for begun, done in revocations[answer.pair]):
            found.append(f"{answer.pair}: no grant {answer.asked - max(known):.3f} s after an answer that had one")
    return found


def _ended_without_cause(facts: Facts, provider: Mapping[str, Any]) -> list[str]:
    """A grant ends as `uncertain` after a lost answer, and as `dead` only with a family that the provider has ended for
    a reuse: the late answer to the first request is kept, and fails when it is used. Each reuse is counted above."""
    reused = sum(each["ended_by"] == "reuse" for each in provider["figures"])
    quarantined, dead = len(facts.ended["quarantined"]), len(facts.ended["dead"])
    found = [f"{quarantined} grants ended as quarantined"] if quarantined else []
    if dead > reused:
        found.append(f"{dead} grants ended as dead, {reused} families for a reuse")
    if facts.answers["link:expired"] and not dead:
        found.append(f"{facts.answers['link:expired']} times: link:expired")
    return found


def _families_lost(facts: Facts, provider: Mapping[str, Any], grace: Mapping[str, int]) -> list[str]:
    """A refresh token is sent twice only if a sealed intent says that the first answer was lost."""
    found = []
    for app in grace:
        families = [each for each in provider["figures"] if each["app"] == app]
        twice = sum(times - 1 for each in families for times in each["redeemed"].values())
        refused, lost = provider["refusals"].get(app, 0), facts.after_lost[app]
        if refused + twice > lost:
            found.append(f"{app}: {refused} tokens refused and {twice} repeated after {lost} lost answers")
        if provider["requests"].get(app, 0) > facts.intents[app]:
            found.append(f"{app}: requests without an intent")
        if not grace[app] and twice:
            found.append(f"{app}: a spent token bought tokens")
    return found


def _handed_out_after_revocation(facts: Facts, families: Mapping[str, int]) -> list[str]:
    """No token of a grant is handed out by a call that began after the grant's revocation was acknowledged, or by a host
    that trusts a feed after its bound. A grant counts if one of its tokens was handed out before the revocation began."""
    of_pair = defaultdict[Pair, list[Reported]](list)
    for each in facts.reported:
        of_pair[each.pair].append(each)
    found = []
    for pair, begun, done in facts.revoked:
        before = {families.get(each.token) for each in of_pair[pair] if each.got < begun} - {None}
        late = [each for each in of_pair[pair] if each.asked > done + each.bound and families.get(each.token) in before]
        found += [f"{pair}: a token was handed out {late[0].asked - done:.3f} s after the revocation"] if late else []
    return found


def histories(facts: Facts, families: Mapping[str, int]) -> Mapping[Pair, list[Operation]]:
    """Return the calls on each grant. A consent is an open write: it is not known which family an acknowledgement told of.
    A host that trusts a feed may answer as of its bound before the call."""
    found = defaultdict[Pair, list[Operation]](list)
    for told in facts.reported:
        if (family := families.get(told.token)) is not None:
            found[told.pair].append(Operation(True, family, told.asked - told.bound, told.got))
    for answer in facts.without:
        found[answer.pair].append(Operation(True, None, answer.asked - answer.bound, answer.got))
    ends = {(pair, begun): done for pair, begun, done in facts.revoked}
    for pair, calls in found.items():
        written = dict.fromkeys(each.family for each in calls if each.family is not None)
        calls += [Operation(False, family, -inf) for family in written]
        calls += [
            Operation(False, None, begun, ends.get((pair, begun), inf))
            for each, begun in facts.revoking
            if each == pair
        ]
    return found


def _without_an_order(facts: Facts, families: Mapping[str, int]) -> list[str]:
    """What all hosts saw of a grant is what one register would have shown (linearizability)."""
    found = histories(facts, families)
    return [
        f"{pair}: no order explains its {len(calls)} calls" for pair, calls in found.items() if not is_possible(calls)
    ]


def _admitted_after_end(facts: Facts) -> list[str]:
    over = facts.turns_over
    late = [(it, asked - over[it]) for it, asked, bound in facts.admitted if it in over and asked > over[it] + bound]
    return [f"{turn} was admitted {seconds:.3f} s after its end" for turn, seconds in late]


def _out_of_order(facts: Facts) -> list[str]:
    of_instance = defaultdict[str, list[tuple[int, float]]](list)
    for (instance, number), when in facts.received.items():
        of_instance[instance].append((number, when))
    found = []
    for instance, events in of_instance.items():
        numbers = [number for number, _ in sorted(events, key=lambda each: each[1])]
        if numbers != sorted(numbers):
            found.append(f"{instance}: delivered in the order {numbers}")
    return found
