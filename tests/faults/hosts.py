"""`python -m tests.faults.hosts`: brokers on four hosts, one PostgreSQL database, and what goes wrong between them.

`rush`: all processes of all hosts want one expired grant at once. `mixed`: random work, while processes are killed,
hosts are frozen and cut off from the database, their clocks are minutes apart, the database is restarted, and replaced
by its standby. Every second host trusts a feed. With `--beside FOLDER` half of the hosts run the version of that
checkout, which is an earlier one. The hosts are network namespaces: `tests/kit/network_hosts.py`. CI runs
a short form (`test_hosts.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from rich.console import Console

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.store.keys.key_encryption_keys import FileKek, KeyProvider
from oauthbroker.store.keys.rotation import KeyRotation
from oauthbroker.store.postgres.feed import Feed
from oauthbroker.store.postgres.schema import KeyringTable, migrate
from oauthbroker.store.postgres.sealed_rows import PROCESS_SECONDS
from oauthbroker.testing import Canaries
from tests.faults.hosts_model import Facts, Pair, problems
from tests.faults.hosts_settling import last_of, settle
from tests.faults.hosts_worker import LEASE_SECONDS, TellingPostgres, follow, rotation_of, telling_postgres
from tests.faults.storm_kit import ROOT, Nursery, People, Provider, end, start
from tests.faults.storm_report import Report
from tests.faults.storm_worker import World, broker_on
from tests.kit import postgres
from tests.kit.network_hosts import HUB, cut, inside, join, network, trusted

HOSTS, OF_EACH, TASKS, SECONDS = 4, 2, 80, 600.0
APPS, PERSONS, LIFETIME = {"strict": 0, "forgiving": 30}, 5, 20
SKEWS = (0, 90, -120, 200)  # seconds that the clocks of the hosts are wrong
PORTS = (5432, 5433)  # of the primary and its standby
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class Hosts:
    """The hosts, their database and their folder. Made in the hub."""

    def __init__(self, folder: Path, names: list[str], database: postgres.Replicated, beside: str = "") -> None:
        self.folder, self.names, self.database = folder, names, database
        self.beside = Path(beside) if beside else ROOT
        self.url = database.url("hosts")
        self.nurseries: list[Nursery] = []

    @asynccontextmanager
    async def running(
        self, provider: Provider, hear: Any, *, skews: tuple[int, ...], seed: int = 0
    ) -> AsyncIterator[list[Nursery]]:
        """Run the nurseries, one in each host, with clocks that are wrong by `skews`."""
        orders = {"folder": str(self.folder), "url": self.url.reveal(), "people": PERSONS, **provider.introduction}
        port = provider.introduction["endpoints"]["issuer"].rpartition(":")[2]
        socket = str(self.folder / f"provider-{port}")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(_relay(socket, port))
            nurseries = []
            for number, (name, skew) in enumerate(zip(self.names, skews, strict=True)):
                await stack.enter_async_context(_relay(port, socket, *inside(name)))
                faked = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{skew:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
                opened = Nursery.open(
                    orders | {"seed": f"{seed}/{number}", "trusts_feed": number % 2 == 1},
                    hear,
                    "tests.faults.hosts_worker",
                    before=inside(name),
                    more=faked if skew else {},
                    root=self.beside if number % 4 in {1, 2} else ROOT,  # one of them trusts its feed
                )
                nurseries.append(await stack.enter_async_context(opened))
            yield nurseries


@asynccontextmanager
async def _relay(source: str, target: str, *before: str) -> AsyncIterator[None]:
    process = await start("tests.kit.relay", source, target, before=before)
    try:
        assert process.stdout
        assert await asyncio.wait_for(process.stdout.readline(), 30)
        yield
    finally:
        await end(process)


def _are_up(nursery: Nursery) -> bool:
    return len(nursery.up) == OF_EACH


def _have_ended(nursery: Nursery) -> bool:
    return len(nursery.ends) == OF_EACH


@asynccontextmanager
async def people_on(hosts: Hosts, world: World, hear: Any) -> AsyncIterator[tuple[People, Any, TellingPostgres]]:
    """People whose broker runs in the hub, and is neither killed nor cut off."""
    store = telling_postgres(hosts.url.reveal(), hosts.folder)
    store.tell = lambda *words: hear([*map(str, words)])
    Canaries.active().outside.add(world.base_url)
    async with broker_on(store, world.apps()) as broker:
        following = asyncio.create_task(follow(rotation_of(store, hosts.url.reveal(), hosts.folder)))
        yield People(broker, world), broker, store
        following.cancel()


async def rush(hosts: Hosts, tasks: int) -> Report:
    """All tasks of all hosts find one token expired at the same moment."""
    reported: list[list[str]] = []

    def hear(line: list[str]) -> None:
        if line[0] == "told":
            reported.append(line[2:])

    async with Provider.open({"rush": 0}, people=1, lifetime=1) as provider:
        async with people_on(hosts, World(provider.introduction), lambda _: None) as (people, *_):
            await people.agree("rush", 0)
        await provider.ask("change", "rush", access_lifetime=3600)
        async with hosts.running(provider, hear, skews=(0,) * len(hosts.names)) as nurseries:
            for nursery in nurseries * OF_EACH:
                nursery.order(f"ask {tasks}")
            for nursery in nurseries:
                await nursery.until(partial(_are_up, nursery))
            await asyncio.sleep(1)  # so that the token is over
            for nursery in nurseries:
                nursery.order("go")
            for nursery in nurseries:
                await nursery.until(partial(_have_ended, nursery))
        (family,) = await provider.ask("figures")
        requests = await provider.ask("count", "refresh_token")
    answers, tokens = Counter(word for word, *_ in reported), {token for _, token, _ in reported}
    total = len(hosts.names) * OF_EACH * tasks
    figures = {
        "hosts, processes, tasks": f"{len(hosts.names)}, {len(hosts.names) * OF_EACH}, {total}",
        "answers": dict(answers),
        "refresh requests": requests,
        "seconds to the last answer": max((float(seconds) for *_, seconds in reported), default=0.0),
    }
    wrong = [
        *([] if answers == {"ready": total} else [f"not every task was served: {dict(answers)}"]),
        *([] if (requests, len(tokens)) == (1, 1) else [f"{requests} requests and {len(tokens)} tokens"]),
        *([] if not family["ended_by"] else [f"the family was ended by {family['ended_by']}"]),
    ]
    return Report("The rush: one expired grant, all tasks of all hosts", figures, wrong)


class Trouble:
    """What goes wrong, by a seed. Each kind is over before the next begins; the work goes on meanwhile."""

    def __init__(self, hosts: Hosts, nurseries: list[Nursery], dice: random.Random) -> None:
        self._hosts, self._nurseries, self._dice = hosts, nurseries, dice
        self.done: Counter[str] = Counter()

    async def go_on(self, until: float) -> None:
        """Make trouble of every kind, at least once each, until the time is over."""
        kinds = [self.kill, self.freeze, self.cut_off, self.restart_database, self.fail_over]
        weights = [12, 6, 4, 1, 1]
        first = list(kinds)
        self._dice.shuffle(first)
        while first or time.monotonic() < until:
            for nursery in self._nurseries:
                for _ in range(OF_EACH - len(nursery.alive)):
                    nursery.order("live")  # for one that could not start
            kind = first.pop() if first else self._dice.choices(kinds, weights)[0]
            await kind()
            self.done[kind.__name__] += 1
            await asyncio.sleep(self._dice.uniform(0, 0.6))

    async def kill(self) -> None:
        nursery = self._dice.choice(self._nurseries)
        await nursery.until(lambda: bool(nursery.up))
        victim = self._dice.choice(sorted(nursery.up))
        os.kill(victim, signal.SIGKILL)
        await nursery.until(lambda: victim not in nursery.alive)
        nursery.order("live")

    async def freeze(self) -> None:
        """Stop all brokers of a host for longer than a lease lasts."""
        victims = sorted(self._dice.choice(self._nurseries).alive)
        for pid in victims:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECONDS * self._dice.uniform(1.1, 1.6))
        for pid in victims:
            os.kill(pid, signal.SIGCONT)

    async def cut_off(self) -> None:
        number = self._dice.randrange(len(self._nurseries))
        cut(number)
        await asyncio.sleep(LEASE_SECONDS * self._dice.uniform(0.5, 2.5))
        join(number)

    async def restart_database(self) -> None:
        await asyncio.to_thread(self._hosts.database.restart)

    async def fail_over(self) -> None:
        await asyncio.to_thread(self._hosts.database.fail_over)


async def mixed(hosts: Hosts, seconds: float, seed: int) -> Report:
    """Random work under trouble, then quiet: every acknowledged event is there, and every grant comes alive again."""
    facts, dice = Facts(), random.Random(seed)
    pairs: list[Pair] = [(app, person) for app in APPS for person in range(PERSONS)]
    (hosts.folder / "turns").mkdir()
    FileKek.create(hosts.folder / "next.kek")  # all processes have both keys
    async with Provider.open(APPS, people=PERSONS, lifetime=LIFETIME) as provider:
        world = World(provider.introduction)
        async with people_on(hosts, world, facts.hear) as (people, broker, store):
            async with hosts.running(provider, facts.hear, skews=SKEWS[: len(hosts.names)], seed=seed) as nurseries:
                for nursery in nurseries * OF_EACH:
                    nursery.order("live")
                for nursery in nurseries:
                    await nursery.until(partial(_are_up, nursery))
                trouble = Trouble(hosts, nurseries, dice)
                rotating = asyncio.create_task(rotate_keys(hosts, store, trouble.done))
                await trouble.go_on(time.monotonic() + seconds)
                rotating.cancel()
                await asyncio.gather(rotating, return_exceptions=True)
                fallen = [code for nursery in nurseries for _, code in nursery.ends if code > 0]
            dead = await settle(people, pairs, broker, facts)
            last = [f"{pair} does not come alive: {await last_of(pair, broker, provider, dead[pair])}" for pair in dead]
        provided = {
            word: await provider.ask(word) for word in ("figures", "refusals", "requests", "families", "reasons")
        }
    figures = {
        "seed, seconds": f"{seed}, {seconds:.0f}",
        "trouble": dict(trouble.done),
        "looks at a trusted feed": dict(facts.feeds),
        "answers": dict(facts.answers),
        "calls that were refused": dict(facts.refused),
        "refresh requests; of these after a lost answer": f"{sum(facts.intents.values())}; {dict(facts.after_lost)}",
        "families ended by": dict(Counter(each["ended_by"] or "alive" for each in provided["figures"])),
        "refresh tokens refused": provided["reasons"],
        "revocations, turns ended, admissions": f"{len(facts.revoked)}, {len(facts.turns_over)}, {len(facts.admitted)}",
        "events enqueued, consents": f"{len(facts.enqueued)}, {len(facts.granted)}",
    }
    wrong = problems(facts, provided, APPS) + last
    wrong += [f"{len(fallen)} processes ended by themselves"] if fallen else []
    return Report("Mixed work on several hosts, with trouble between them", figures, wrong)


async def rotate_keys(hosts: Hosts, store: TellingPostgres, done: Counter[str]) -> None:
    """Change the seed, seal all records anew, remove the old seed, and change the key that opens the keyring, again and
    again."""
    rotation = rotation_of(store, hosts.url.reveal(), hosts.folder)
    keks = rotation.home.keks
    for kek in cycle(keks):
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "rewrap for both keys": partial(rewrap, rotation, keks),
            "rewrap for one": partial(rewrap, rotation, (kek,)),
            "rotate": partial(rotation.rotate, wait=PROCESS_SECONDS + 30),
            "reseal": rotation.reseal,
            "retire": rotation.retire,
        }
        for name, step in steps.items():
            try:
                await step()
                done[f"keys: {name}"] += 1
            except BrokerError as error:
                done[f"keys: {error.code.value}"] += 1
                await asyncio.sleep(1)


async def rewrap(rotation: KeyRotation, keks: tuple[KeyProvider, ...]) -> None:
    """Rewrap as an operator does whose configuration names these keys and no others."""
    home = rotation.home
    assert isinstance(home, KeyringTable)
    try:
        await replace(rotation, home=KeyringTable(home.url, *keks)).rewrap()
    finally:
        rotation.store.keyring.keks = home.keks


async def inside_hub(given: dict[str, Any]) -> list[Report]:
    with tempfile.TemporaryDirectory() as name, postgres.replicated(HUB, PORTS, trusted()) as database:
        database.run("create database hosts")
        migrate(database.url("hosts"))
        await _begin_feeds(database.url("hosts"))
        hosts = Hosts(Path(name), given["hosts"], database, given["beside"])
        reports = [await rush(hosts, given["tasks"])]
        Console().print(reports[-1].table())
        reports.append(await mixed(hosts, given["seconds"], given["seed"]))
        Console().print(reports[-1].table())
    return reports


async def _begin_feeds(url: Secret) -> None:
    """Let a feed begin before any record is written, so that those of the hosts are trusted at once."""
    feed = Feed(url, trusted=True)
    try:
        assert await feed.heard()
    finally:
        await feed.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.hosts")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--tasks", type=int, default=TASKS, help="of each process, in the rush")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", default="", help="a checkout of an earlier version, which half of the hosts run")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return 1 if any(report.problems for report in asyncio.run(inside_hub(json.loads(given.inside)))) else 0
    with network(given.hosts) as made:
        words = {name: getattr(given, name) for name in ("tasks", "seconds", "seed", "beside")}
        orders = json.dumps({"hosts": made.hosts, **words})
        command = [*inside(made.hub), sys.executable, "-m", "tests.faults.hosts", "--inside", orders]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
