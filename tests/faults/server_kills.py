"""`python -m tests.faults.server_kills --kills 30 --workers 2 --seed 1`: `oauthbroker serve` killed under load.

What must hold in the end: every person who was told that it worked is connected, and no person whose grant was answered to
be ended; every such event came, and none
again after its ack was answered; no ended turn's token works and every other one's does; no refresh token was sent
twice but where its answer was lost. CI runs a shortened form (`test_server_kills.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from oauthbroker import Broker, open_broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.observability.logging import json_log
from oauthbroker.testing import Canaries, IdentityProvider
from tests.faults.server_load import Ledger, Line, Load, Lost
from tests.faults.server_world import Pair, Server, World

PEOPLE_AT_ONCE, TOOLS = 3, 8
QUIET_SECONDS = 90
TOKENS_BETWEEN, MOST_LOOKS, LOOK_SECONDS = 12, 600, 0.05


@dataclass(frozen=True)
class Report:
    """The figures of one run. `problems` must be empty."""

    kills: int
    starts: int
    answers: dict[int, int]
    lost: int
    granted: int
    tokens: int
    refreshes: int
    refreshes_lost: int
    events: int
    again: int
    turns: int
    ended: int
    disconnected: int
    seconds: float
    problems: list[str]

    def __str__(self) -> str:
        return "\n".join(f"{name}: {getattr(self, name)}" for name in self.__dataclass_fields__)


async def run(folder: Path, idp: IdentityProvider, *, kills: int, workers: int, seed: int) -> Report:
    began, dice = time.monotonic(), random.Random(seed)
    world, ledger = World(folder, idp, workers), Ledger()
    await world.make()
    load, server = Load(world, ledger, dice), await world.start()
    try:
        async with load.consuming() as consumer:
            async with load.running(PEOPLE_AT_ONCE, TOOLS):
                for number in range(kills):
                    await _some_load(ledger, dice, wanted=(number + 1) // 2)
                    server = await _kill(world, server, number, dice)
                await asyncio.sleep(1)
            await _until_quiet(ledger, consumer)
        problems = await _wrong_tokens(world, ledger)
        status = await server.end()
        problems += [f"it ended with status {status}"] if status else []
    finally:
        server.bury()
    problems += wrong_events(ledger) + wrong_refreshes(world, ledger) + leaked(world, ledger)
    problems += [await each.reported(world) for each in ledger.unforeseen]
    log = json_log(io.StringIO(), SystemClock())
    async with open_broker(folder / "config", env={}, background=False, log=log) as broker:
        problems += await _wrong_turns(broker, ledger)
    return _report(world, ledger, kills, time.monotonic() - began, problems)


async def _some_load(ledger: Ledger, dice: random.Random, *, wanted: int) -> None:
    """For a moment, which lasts longer where the machine is slow: a kill has to hit a caller at work, and before
    every other one another person has been granted something (`wanted` in all) that the kill may lose."""
    tokens = len([*ledger.said("ready")])
    await asyncio.sleep(dice.uniform(0.3, 1.5))
    for _ in range(MOST_LOOKS):
        if len([*ledger.said("ready")]) >= tokens + TOKENS_BETWEEN and len(ledger.granted) >= wanted:
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _kill(world: World, server: Server, number: int, dice: random.Random) -> Server:
    """Return a worker, which its parent replaces, or the process itself, which only we replace."""
    if world.workers > 1 and number % 3 and server.kill_one_worker(dice):
        return server
    await server.kill()
    return await world.start()


async def _until_quiet(ledger: Ledger, consumer: asyncio.Task[None]) -> None:
    """Three times in a row there is no event: events that were relayed late, or leased by a dead process, have come."""
    async with asyncio.timeout(QUIET_SECONDS):
        while [line[0] for line in ledger.lines[-3:]] != ["quiet"] * 3:
            if consumer.done():
                consumer.result()
            await asyncio.sleep(0.1)


async def _wrong_tokens(world: World, ledger: Ledger) -> list[str]:
    """Each user who was told so is connected, and none whose end was answered. A refresh whose answer was lost may have
    cost a grant its life."""
    ended = ledger.disconnected
    problems, line, load = [], Line(world, ledger), Load(world, ledger, random.Random(0))
    for number in sorted({int(number) for number in ledger.granted.values()}):
        pair = Pair(number)
        try:
            turn_id, token = await load._begin(line, pair)
            _, answer = await line.call("POST", "/v1/tokens", {"oauthAppRef": f"OAuthApp/{pair.app}"}, token=token)
            await load._end(line, turn_id, token)
        except Lost:
            problems.append(f"pair {number}: no answer")
            continue
        if str(number) in ended:
            if ended[str(number)] and answer.get("status") == "ready":
                problems.append(f"pair {number} was ended and has a token")
            continue
        if answer.get("status") == "ready" and world.idp.is_alive(answer["accessToken"]):
            continue
        if answer.get("reason") == "refreshUncertain" or ledger.uncertain[str(number)]:
            continue
        problems.append(f"pair {number} was told that it worked: {answer.get('status')} {answer.get('error')}")
    line.close()
    await asyncio.sleep(0.01)  # the loop has to see that it was closed
    return problems


def wrong_events(ledger: Ledger) -> list[str]:
    """Each granted session's own came at least once, and nothing after its ack."""
    received = {event for (event,) in ledger.said("received")}
    problems = [
        f"never woken: {session}" for session in ledger.granted if f"evt-{session}-auth.granted" not in received
    ]
    done: set[str] = set()
    for word, *rest in ledger.lines:
        if word == "acked":
            done.add(rest[0])
        elif word == "received" and rest[0] in done:
            problems.append(f"woken after an ack: {rest[0]}")
    return problems


def wrong_refreshes(world: World, ledger: Ledger) -> list[str]:
    """A refresh token goes out once. For each time that its answer may have been lost with the process it may go out twice
    more: recovery tries once, and may be killed at that too."""
    uncertain = Counter[str]()
    for pair, times in ledger.uncertain.items():
        uncertain[Pair(int(pair)).login] += times
    problems = []
    for family in world.idp.families("client-mail"):
        again = sum(times - 1 for times in family.redeemed.values() if times > 1)
        if again > 2 * uncertain[family.login]:
            problems.append(f"a refresh token of {family.login} went out {again} times too often")
    return problems


def leaked(world: World, ledger: Ledger) -> list[str]:
    """What servers say while they die is the log too."""
    text = world.log.read_text("utf-8", "replace")
    secrets = [world.key, *(token for (token,) in ledger.said("begun"))]
    return [f"{len(found)} secrets are in the log"] if (found := [each for each in secrets if each in text]) else []


async def _wrong_turns(broker: Broker, ledger: Ledger) -> list[str]:
    """Asked of the store itself: the API takes only so many bad tokens a minute."""
    ended = {token for (token,) in ledger.said("ended")}
    unknown = {token for (token,) in ledger.said("ending")} - ended
    problems = []
    for (token,) in ledger.said("begun"):
        if token not in unknown:
            works = await _works(broker, token)
            problems += [f"a turn that was {'ended works' if works else 'begun does not work'}"] * (
                works == (token in ended)
            )
    return problems


async def _works(broker: Broker, token: str) -> bool:
    try:
        await broker.turns.admit(token)
    except BrokerError as error:
        if error.code is not Code.TURN_ENDED:
            raise
        return False
    return True


def _report(world: World, ledger: Ledger, kills: int, seconds: float, problems: list[str]) -> Report:
    received = [event for (event,) in ledger.said("received")]
    return Report(
        kills=kills,
        starts=world.starts,
        answers=dict(ledger.answers),
        lost=ledger.lost,
        granted=len(ledger.granted),
        tokens=len([*ledger.said("ready")]),
        refreshes=len([*ledger.said("refreshed")]),
        refreshes_lost=ledger.uncertain.total(),
        events=len(set(received)),
        again=len(received) - len(set(received)),
        turns=len([*ledger.said("begun")]),
        ended=len([*ledger.said("ended")]),
        disconnected=sum(ledger.disconnected.values()),
        seconds=round(seconds, 1),
        problems=problems,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.server_kills")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, IdentityProvider(canaries=Canaries()) as idp:
        report = asyncio.run(run(Path(folder) / "w", idp, kills=given.kills, workers=given.workers, seed=given.seed))
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
