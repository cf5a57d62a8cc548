"""`python -m tests.faults.kills --kills 300 --seed 1`: brokers killed at random, and what must hold in the end.

No acknowledged grant is lost, and every grant's events are delivered at least once, under ids by which a second
delivery is recognised. CI runs a shortened form (`test_broker_kills.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from oauthbroker.model.token_results import Ready
from oauthbroker.records import Grant, grant_id
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import Account, Canaries, IdentityProvider, TestClock
from oauthbroker.testing.provider.types import Client
from tests.faults.broker_worker import PAIRS, PEOPLE, app_of, subject_of, turns_of
from tests.kit.broker_process import AFTER_CLAIMS, Process
from tests.kit.running_broker import BASE, file_store, user_app

ROOT = Path(__file__).parents[2]
MOST_LINES = 14  # that a broker may say before it dies: two stories
LAST_SECONDS = 0.1  # and how long it may live on after the last of them
PATIENCE = 60


@dataclass
class Facts:
    """What the brokers said before they died."""

    lines: list[list[str]] = field(default_factory=list)
    last_words: Counter[str] = field(default_factory=Counter)
    kills: int = 0

    def add(self, line: list[str]) -> None:
        self.lines.append(line)

    def said(self, word: str) -> list[list[str]]:
        return [line[1:] for line in self.lines if line[0] == word]

    @property
    def next_number(self) -> int:
        """The pair that the last broker was busy with: the next one takes it up."""
        return max([int(number) for number, *_ in self.said("asked")], default=0)

    @property
    def acknowledged_grants(self) -> dict[int, str]:
        """Pair -> the session of which a person was told that it worked."""
        return {int(number): session for number, session in self.said("granted")}

    @property
    def received(self) -> list[str]:
        return [event for event, _ in self.said("received")]

    @property
    def acknowledged_events(self) -> set[str]:
        return {event for (event,) in self.said("acknowledged")}


@dataclass(frozen=True)
class Report:
    """The figures of one run. `problems` must be empty."""

    kills: int
    acknowledged_grants: int
    grants: int
    events: int
    duplicates: int
    seconds: float
    last_words: dict[str, int]
    problems: list[str]

    def __str__(self) -> str:
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return "\n".join(f"{name}: {value}" for name, value in facts.items())


class Nursery:
    """The process that forks brokers; every one it starts is ended here, by its id."""

    def __init__(self, process: asyncio.subprocess.Process, facts: Facts) -> None:
        self._process, self._facts = process, facts

    @classmethod
    async def open(cls, folder: Path, idp: IdentityProvider, secret: str, facts: Facts) -> Nursery:
        pipe = asyncio.subprocess.PIPE
        environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONWARNINGS": "ignore"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.broker_worker"), stdin=pipe, stdout=pipe, cwd=ROOT, env=environment
        )
        nursery = cls(process, facts)
        nursery._tell(json.dumps({"folder": str(folder), "endpoints": idp.endpoints, "secret": secret}))
        return nursery

    async def one_life(self, dice: random.Random) -> None:
        """Start a broker, let it work, and kill it after a random time."""
        self._tell(str(self._facts.next_number))
        child = int((await self._until("born"))[1])
        if dice.random() < 0.8:  # else it may die while it still tidies up after the one before
            await self._until("up")
        reading = asyncio.create_task(self._until("dead"))
        last_line = len(self._facts.lines) + dice.randrange(MOST_LINES)
        async with asyncio.timeout(PATIENCE):
            while len(self._facts.lines) < last_line and not reading.done():
                await asyncio.sleep(0.001)
        await asyncio.sleep(dice.uniform(0, LAST_SECONDS))
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        dead = await reading
        if [str(child), str(-signal.SIGKILL)] != dead[1:]:
            raise AssertionError(f"a broker ended by itself: {dead}")
        self._facts.kills += 1
        self._facts.last_words[self._facts.lines[-2][0]] += 1

    async def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE)

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")

    async def _until(self, word: str) -> list[str]:
        assert self._process.stdout
        async with asyncio.timeout(PATIENCE):
            while True:
                line = (await self._process.stdout.readline()).decode().split()
                if not line:
                    raise AssertionError("the nursery ended")
                self._facts.add(line)
                if line[0] == word:
                    return line


async def run(folder: Path, idp: IdentityProvider, kills: int, seed: int) -> Report:
    """Kills that many brokers on one store, starts a last one, and compares."""
    begin, dice, facts = time.monotonic(), random.Random(seed), Facts()
    secret = idp.canaries.mint("client secret")
    for number in range(PEOPLE):
        idp.add_account(Account(f"person{number}", f"P{number}"))
    for name in map(app_of, range(0, PAIRS, PEOPLE)):
        idp.register(Client(f"client-{name}", secret, redirect_uris=(f"{BASE}/oauth/callback/{name}",)))
    await file_store(folder).close()
    nursery = await Nursery.open(folder, idp, secret.reveal(), facts)
    try:
        for _ in range(kills):
            await nursery.one_life(dice)
    finally:
        await nursery.close()
    return await validate(folder, idp, facts, begin)


async def validate(folder: Path, idp: IdentityProvider, facts: Facts, begin: float) -> Report:
    """A broker starts when every claim and lease of the dead has run out; the store it finds must be whole."""
    later = datetime.now(UTC) + timedelta(seconds=AFTER_CLAIMS)
    clock = TestClock(later)
    process = Process.on(
        file_store(folder, clock), [user_app(idp, app_of(number)) for number in range(0, PAIRS, PEOPLE)], clock
    )
    for _ in range(2):
        await process.tend(after=AFTER_CLAIMS)
        await process.drain()
    grants = {versioned.record.id: versioned.record async for versioned in Repository(process.store).grants()}
    problems = [*wrong_grants(facts, grants), *wrong_events(facts, process, grants)]
    problems += [
        f"pair {number} is not ready" for number in facts.acknowledged_grants if not await ready(process, idp, number)
    ]
    left = await process.counts(("due", "events"))
    problems += [f"left behind: {left}"] if any(left.values()) else []
    problems += [f"left behind: {path.name}" for path in folder.rglob("*.tmp")]
    await process.die()
    received = [*facts.received, *process.heard.received]
    return Report(
        facts.kills,
        len(facts.acknowledged_grants),
        len(grants),
        len(set(received)),
        len(received) - len(set(received)),
        round(time.monotonic() - begin, 1),
        dict(facts.last_words),
        problems,
    )


async def ready(process: Process, idp: IdentityProvider, number: int) -> bool:
    answer = await process.broker.oauth(turns_of(number)[0]).get_access_token(app_of(number))
    return isinstance(answer, Ready) and idp.is_alive(answer.access_token)


def of_pair(number: int) -> str:
    return grant_id(app_of(number), subject_of(number))


def wrong_grants(facts: Facts, grants: dict[str, Grant]) -> list[str]:
    lost = [f"lost grant of pair {number}" for number in facts.acknowledged_grants if of_pair(number) not in grants]
    refused = [f"refused: pair {number}" for number, _ in facts.said("refused")]
    return lost + refused


def wrong_events(facts: Facts, process: Process, grants: dict[str, Grant]) -> list[str]:
    """Every grant wakes all conversations that had asked for it; none is woken without a grant, or again after an ack."""
    heard = {*facts.received, *process.heard.received}
    granted = [f"evt-{grant.auth_session_id}-auth.granted" for grant in grants.values()]
    asked = [sessions for number, *sessions in facts.said("asked") if of_pair(int(number)) in grants]
    problems = [f"never woken: {event}" for event in granted if event not in heard]
    for session in itertools.chain.from_iterable(asked):
        problems += [] if heard & set(endings(session)) else [f"never woken: {session}"]
    for event, grant in facts.said("received"):
        problems += [f"woken for nothing: {event}"] if event.endswith("granted") and grant not in grants else []
    again = facts.acknowledged_events & set(process.heard.received)
    problems += [f"woken after an ack: {event}" for event in {*again, *received_after_ack(facts)}]
    return problems


def endings(session: str) -> list[str]:
    """A session that a dead broker had claimed may have failed before its pair was granted by another one."""
    return [f"evt-{session}-{kind}" for kind in ("auth.granted", "auth.failed")]


def received_after_ack(facts: Facts) -> set[str]:
    done: set[str] = set()
    again: set[str] = set()
    for word, *rest in facts.lines:
        if word == "acknowledged":
            done.add(rest[0])
        elif word == "received" and rest[0] in done:
            again.add(rest[0])
    return again


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, IdentityProvider(canaries=Canaries()) as idp:
        report = asyncio.run(run(Path(folder), idp, given.kills, given.seed))
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
