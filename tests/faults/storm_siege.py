"""The siege: brokers that ask all the time are killed, often while a refresh is under way (case 47)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from oauthbroker.model.token_results import AuthorizationRequired, Ready
from tests.faults.storm_kit import Nursery, People, Provider
from tests.faults.storm_report import Report
from tests.faults.storm_worker import World
from tests.kit.running_broker import file_store

KILLS, WORKERS, PERSONS = 1000, 8, 6
APPS = {"strict": 0, "forgiving": 30}
"""Name -> seconds for which the provider forgives a refresh token that comes again."""
LIFETIME = 6  # seconds of an access token: on a busy machine the provider itself may take one or two
AIMED = 0.4  # of all kills: just after an intent was sealed, so that the answer is lost
PAUSE = 0.4  # at most, between two kills
SETTLE = 60

Pair = tuple[str, int]  # app and person


@dataclass
class Facts:
    """What the brokers said before they died."""

    answers: Counter[str] = field(default_factory=Counter)
    intents: Counter[str] = field(default_factory=Counter)
    after_lost: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    longest_row: int = 0
    links: list[Pair] = field(default_factory=list)
    last: dict[Pair, str] = field(default_factory=dict)
    latest_intent: tuple[int, int] = (0, 0)  # (how many there were, of which process the last one)

    def hear(self, line: list[str]) -> None:
        match line:
            case ["told", _, word, app, person]:
                self.answers[word] += 1
                self.last[app, int(person)] = word
                if word.startswith("link"):
                    self.links.append((app, int(person)))
            case ["intent", pid, app, lost]:
                self.intents[app] += 1
                self.after_lost[app] += int(lost) > 0
                self.longest_row = max(self.longest_row, int(lost))
                if int(lost) <= 1:  # who dies again and again makes the pauses long, and the siege dull
                    self.latest_intent = (self.latest_intent[0] + 1, int(pid))
            case ["ended", _, _, word, _]:
                self.ended[word] += 1


@dataclass
class Siege:
    """Brokers, their killer, and the people who agree again where they must."""

    nursery: Nursery
    people: People
    facts: Facts
    dice: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    async def go_on(self, kills: int) -> None:
        """Kills that many, and begins as many again; people are asked meanwhile."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._agree_until(lambda: self.kills.total() >= kills))
            while self.kills.total() < kills:
                await self._kill_one()

    async def _kill_one(self) -> None:
        await self.nursery.until(lambda: bool(self.nursery.up))
        aimed = self.dice.random() < AIMED
        if aimed:
            before = self.facts.latest_intent[0]
            try:
                await self.nursery.until(lambda: self.facts.latest_intent[0] > before)
            except TimeoutError:
                raise AssertionError(f"no process refreshes any more: {self.facts.last}") from None
            victim = self.facts.latest_intent[1]
            await asyncio.sleep(self.dice.uniform(0, 0.1))
        else:
            await asyncio.sleep(self.dice.uniform(0, PAUSE))
            victim = self.dice.choice(sorted(self.nursery.up))
        if victim in self.nursery.alive:  # else it was killed before its sealed intent was read
            os.kill(victim, signal.SIGKILL)
            await self.nursery.until(lambda: victim not in self.nursery.alive)
            self._count_and_replace(aimed=aimed)

    def _count_and_replace(self, *, aimed: bool) -> None:
        self.kills["just after an intent" if aimed else "at any moment"] += 1
        self.nursery.order("live")

    async def _agree_until(self, over: Callable[[], bool]) -> None:
        """Never left in the middle: who has agreed is counted."""
        while not over():
            await asyncio.sleep(0.01)
            while self.facts.links:
                await self.agree(*self.facts.links.pop())

    async def agree(self, app: str, person: int) -> None:
        result = await self.people.agree(app, person)
        if result is not None:
            self.agreed[app] += 1
            self.reasons[result.reason] += 1

    async def settle(self, pairs: list[Pair], opens: Callable[[str], Awaitable[bool]]) -> list[Pair]:
        """The kills are over: every grant comes alive, by itself or because a user agrees. Those that do not.

        A token as old as the last kill may hide an answer that was lost, so first all of them end.
        """
        begin, dead = time.monotonic(), pairs
        while time.monotonic() < begin + LIFETIME or (dead and time.monotonic() < begin + SETTLE):
            await asyncio.sleep(0.1)
            dead = [pair for pair in pairs if not await self._is_alive(pair, opens)]
        return dead

    async def _is_alive(self, pair: Pair, opens: Callable[[str], Awaitable[bool]]) -> bool:
        result = await self.people.ask(*pair)
        if isinstance(result, AuthorizationRequired):
            await self.agree(*pair)
        return isinstance(result, Ready) and not result.degraded and await opens(result.access_token.reveal())


async def siege(folder: Path, kills: int = KILLS, seed: int = 1, workers: int = WORKERS) -> Report:
    """Case 47: long-lived brokers, short-lived tokens, a killer."""
    begin, facts = time.monotonic(), Facts()
    pairs = [(app, person) for app in APPS for person in range(PERSONS)]
    async with Provider.open(dict(APPS), PERSONS, LIFETIME) as provider:
        world = World(provider.introduction)
        orders = {"folder": str(folder), "people": PERSONS, "seed": seed, **provider.introduction}
        async with People.open(folder, world, facts.hear) as people, Nursery.open(orders, facts.hear) as nursery:
            for pair in pairs:
                await people.agree(*pair)
            for _ in range(workers):
                nursery.order("live")
            storm = Siege(nursery, people, facts, random.Random(seed))
            await storm.go_on(kills)
            dead = await storm.settle(pairs, partial(_opens, provider))
        early = [code for _, code in nursery.ends if code != -signal.SIGKILL]
        facts_of_provider = {word: await provider.ask(word) for word in ("figures", "refusals", "requests")}
    figures, problems = _checked(storm, facts_of_provider, time.monotonic() - begin)
    problems += [f"not alive in the end: {app} of person {person}" for app, person in dead]
    problems += [f"brokers ended by themselves: {early}"] if early else []
    await file_store(folder).close()  # opening a store tidies up after dead processes
    problems += [f"left behind: {path.name}" for path in folder.rglob("*.tmp")]
    return Report(
        "The siege: brokers killed again and again",
        {**figures, "seconds": round(time.monotonic() - begin, 1)},
        problems,
    )


async def _opens(provider: Provider, token: str) -> bool:
    """Whether the provider's API takes a token that a broker gave out just now."""
    url = provider.introduction["endpoints"]["issuer"] + "/api/me"
    async with httpx2.AsyncClient(trust_env=False) as http:
        return (await http.get(url, headers={"authorization": f"Bearer {token}"})).status_code == 200


def _checked(storm: Siege, provider: dict[str, Any], seconds: float) -> tuple[dict[str, Any], list[str]]:
    facts, families = storm.facts, provider["figures"]
    often = {app: _redemptions(families, app) for app in APPS}
    revoked = {app: sum(f["app"] == app and f["ended_by"] == "reuse" for f in families) for app in APPS}
    figures = {
        "kills": dict(storm.kills),
        "answers": dict(sorted(facts.answers.items())),
        "generations": {app: sum(f["generation"] for f in families if f["app"] == app) for app in APPS},
        "refresh requests": provider["requests"],
        "refused": provider["refusals"],
        "intents sealed": dict(facts.intents),
        "of these after a lost answer": dict(facts.after_lost),
        "generations redeemed once, twice, ...": {app: dict(sorted(often[app].items())) for app in APPS},
        "longest row of lost answers": facts.longest_row,
        "families revoked by reuse": revoked,
        "uncertain ends that a person repaired": dict(storm.agreed),
        "reasons why a person was asked": dict(storm.reasons),
    }
    problems = [*_wrong_answers(storm), *_wrong_requests(storm, provider, often, revoked)]
    return figures, [*problems, *_loops(storm, provider["requests"], seconds)]


def _redemptions(families: list[dict[str, Any]], app: str) -> Counter[int]:
    """How many generations bought tokens how often."""
    return Counter(times for family in families if family["app"] == app for times in family["redeemed"].values())


def _wrong_answers(storm: Siege) -> list[str]:
    """A grant ends only by an answer that was lost, and then says so; nothing else asks a user."""
    words = storm.facts.answers
    strange = [
        word for word in words if word.startswith("failed") or (word.startswith("link") and "Uncertain" not in word)
    ]
    problems = [f"{words[word]} times: {word}" for word in strange]
    problems += [f"grants ended as {word}" for word in storm.facts.ended if word != "uncertain"]
    problems += [f"asked for {reason}" for reason in storm.reasons if reason not in {"refreshUncertain", "noGrant"}]
    return problems


def _wrong_requests(
    storm: Siege, provider: dict[str, Any], often: dict[str, Counter[int]], revoked: dict[str, int]
) -> list[str]:
    """No token is sent twice without a sealed intent that says that an answer was lost; no loop of refusals."""
    facts, problems = storm.facts, []
    for app, grace in APPS.items():
        lost, refused = facts.after_lost[app], provider["refusals"].get(app, 0)
        twice = sum((times - 1) * number for times, number in often[app].items())
        if provider["requests"].get(app, 0) > facts.intents[app]:
            problems.append(f"{app}: requests without an intent")
        if refused + twice > lost:
            problems.append(f"{app}: {refused} refused and {twice} repeated after only {lost} lost answers")
        if not grace and twice:
            problems.append(f"{app}: a spent token bought tokens")
        if revoked[app] != storm.agreed[app]:
            problems.append(f"{app}: {revoked[app]} families were revoked, {storm.agreed[app]} repaired")
    return problems


def _loops(storm: Siege, requests: dict[str, int], seconds: float) -> list[str]:
    """A token is refreshed at half its life, once more for each lost answer, and first after a user agreed."""
    lives = PERSONS * (seconds / (LIFETIME / 2) + 1)
    most = {app: int(lives + storm.facts.after_lost[app] + storm.agreed[app]) for app in APPS}
    return [
        f"{app}: {asked} requests, at most {most[app]} make sense"
        for app, asked in requests.items()
        if asked > most[app]
    ]
