"""`python -m tests.faults.agent_kills --turns 1000 --seed 1`: agents and their orchestrator killed at random.

No accepted event is lost, each is one turn with one answer, no call is made twice, and no token is in a transcript, a
log or a file of an agent. `make test` runs a short form (test_agent_kills.py).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from oauthbroker import Broker, Turn, TurnAuth, open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import json_log
from oauthbroker.tools.orchestration.instances import Instances
from tests.kit.agent_bundle import plan, written
from tests.kit.processes import children_of
from tests.kit.running_broker import file_store

ROOT = Path(__file__).parents[2]
TOKEN = "xoxb-leaked-token-of-a-tool-0123456789abcdef"
THREADS = 4
WINDOW = 24  # events that wait at once
STALL_SECONDS = 90


@dataclass
class KillReport:
    turns: int = 0
    interrupted: int = 0
    orchestrators_killed: int = 0
    agents_killed: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in vars(self).items())


class Stage:
    """The store, the orchestrator under attack, and its log."""

    def __init__(self, folder: Path, broker: Broker, dice: random.Random) -> None:
        self.folder, self.broker, self.dice = folder, broker, dice
        self.instances = Instances(broker.plugin_state("tools"))
        self.report = KillReport()
        self.process: asyncio.subprocess.Process | None = None
        self.log = (folder / "log").open("ab")

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.agent_orchestrator", str(self.folder)),
            stdout=asyncio.subprocess.PIPE,
            stderr=self.log,
            cwd=ROOT,
        )
        assert self.process.stdout
        assert await asyncio.wait_for(self.process.stdout.readline(), 60) == b"up\n"

    async def end(self) -> None:
        assert self.process
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def strike(self) -> None:
        """Kill the orchestrator, or one of its agents."""
        assert self.process
        agents = children_of(self.process.pid)
        if self.dice.random() < 0.25 or not agents:
            await self.end()
            self.report.orchestrators_killed += 1
            await self.start()
            return
        with suppress(ProcessLookupError):
            os.kill(self.dice.choice(agents), signal.SIGKILL)
            self.report.agents_killed += 1

    async def say(self, number: int) -> str:
        actor = {"type": "user", "id": "chat:U1"}
        thread = f"thread-{number % THREADS}"
        of = Turn("planner", thread, "Swarm/default", origin={}, auth=TurnAuth(actor, {"user": "chat:user:U1"}))
        note = ("notes__add", {"text": f"e{number}"})
        calls = [note, ("notes__leak", {})]
        if number % 5 == 0:
            calls.append(("others__send", {"target": "writer", "input": plan(("notes__add", {"text": f"w{number}"}))}))
        key, payload = f"event {number}", {"input": plan(*calls)}
        return await self.broker.events.enqueue("planner", "chat.message", payload, turn=of, idempotency_key=key)


async def run(folder: Path, turns: int, seed: int) -> KillReport:
    """Run so many turns under kills and return the report."""
    config = written(folder / "config", lease=2, attempts=100)
    (config / "leaked").write_text(TOKEN)
    clock, log = SystemClock(), json_log(io.StringIO(), SystemClock())
    store = file_store(folder, clock)
    async with open_broker(config, env={}, store=store, audit=AuditList(), log=log, background=False) as broker:
        stage = Stage(folder, broker, random.Random(seed))
        await stage.start()
        try:
            await _attack(stage, turns)
        finally:
            await stage.end()
            stage.log.close()
        await _check(stage, turns)
    return stage.report


async def _attack(stage: Stage, turns: int) -> None:
    waiting: dict[str, int] = {}
    said = 0
    async with asyncio.timeout(STALL_SECONDS + turns * 2):
        while said < turns or waiting:
            while said < turns and len(waiting) < WINDOW:
                waiting[await stage.say(said)] = said
                said += 1
            await asyncio.sleep(stage.dice.uniform(0.2, 1.5))
            if stage.dice.random() < 0.7:
                await stage.strike()
            for event_id in list(waiting):
                if (outcome := await stage.instances.outcome(event_id)) is not None:
                    del waiting[event_id]
                    _count(stage.report, event_id, outcome["answer"])


def _count(report: KillReport, event_id: str, answer: str) -> None:
    report.turns += 1
    ends = json.loads(answer)
    report.interrupted += any(end == "E_TOOL_INTERRUPTED" for end in ends)
    if not all(end in ("E_TOOL_INTERRUPTED", "***", {"sent": True}) or str(end).startswith("e") for end in ends):
        report.problems.append(f"{event_id}: another answer than a note or an interruption: {answer}")


async def _check(stage: Stage, turns: int) -> None:
    problems = stage.report.problems
    lines = [line for notes in stage.folder.glob("workspaces/*/*/notes") for line in notes.read_text().splitlines()]
    counts = Counter(line.split()[-1] for line in lines)
    problems += [f"{text}: performed {count} times" for text, count in counts.items() if count > 1]
    missing = turns - sum(f"e{number}" in counts for number in range(turns))
    if missing > stage.report.interrupted:
        problems.append(f"{missing} calls were not made, and {stage.report.interrupted} told so")
    problems += [f"dead letter: {each['eventId']}" for each in await stage.broker.events.dead("planner")]
    kept = [json.dumps(value) async for _, value in stage.broker.plugin_state("tools").all()]
    problems += [f"a token is in a record: {text[:80]}" for text in kept if TOKEN in text]
    files = [path for path in stage.folder.rglob("*") if path.is_file() and path.name != "leaked"]
    problems += [f"a token is in {path.name}" for path in files if TOKEN.encode() in path.read_bytes()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.agent_kills")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(run(Path(folder), given.turns, given.seed))
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
