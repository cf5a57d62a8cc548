"""`python -m tests.faults.interleavings`: one process ends rights, another one uses them all the time.

A round changes one right: a grant is revoked, erased, replaced or connected again; a turn ends; an API key is removed or
rotated. Every call of the other process that begins after the answer has to see it. Its caches are warm, and file times
may be coarse, or inode numbers and sizes all the same. CI runs a shortened form (`test_interleavings.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_lines import Incoming
from oauthbroker.observability.logging import json_log
from oauthbroker.testing.stores import open_file_store
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running
from tests.faults.interleaving_kit import APP, BUSY, DISKS, KINDS, Board, Disk, Kind, Right, bundle, rights_of
from tests.faults.storm_report import Report
from tests.kit.running_broker import SCOPES, turn

ROUNDS = 6_000
PATIENCE = 60  # seconds for one change, or for the other process to start or end
RARE = 0.05  # of the changes meet a right that has rested
PAUSES = (0, 0, 0.0003, 0.001, 0.004)
ROOT = Path(__file__).parents[2]


@dataclass
class Other:
    """The process that uses the rights, and its output."""

    process: asyncio.subprocess.Process
    problems: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    up: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def start(cls, folder: Path, disk: Disk, seed: int, mistake: str) -> AsyncIterator[Other]:
        """Run it until the block ends; then wait for its figures."""
        words = [str(folder), disk, str(seed), *([mistake] if mistake else [])]
        environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.interleaving_worker", *words),
            stdin=pipe,
            stdout=pipe,
            cwd=ROOT,
            env=environment,
        )
        other = cls(process)
        hearing = asyncio.create_task(other._hear())
        try:
            async with asyncio.timeout(PATIENCE):
                await other.up.wait()
            yield other
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(PATIENCE):
                await hearing
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await hearing

    def tell(self, right: Right, version: int, text: str) -> None:
        assert self.process.stdin is not None
        said = {"right": right.number, "version": version, "text": text}
        self.process.stdin.write(json.dumps(said).encode() + b"\n")

    async def _hear(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            said = json.loads(line)
            self.problems += [said["problem"]] if "problem" in said else []
            self.figures.update(said.get("figures", {}))
            self.up.set()
        status = await self.process.wait()
        self.problems += [f"the other process ended with {status}"] if status else []
        self.up.set()


@dataclass
class Changer:
    """Changes rights, one after another for each kind, and waits until the other process has met each change."""

    running: Running
    board: Board
    other: Other
    dice: Random
    ids: dict[Right, str] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)

    async def change_all(self, kind: Kind, rounds: int) -> None:
        rights = rights_of(kind)
        for _ in range(rounds):
            if self.other.problems:
                return
            await self.change(self.dice.choice(rights[BUSY:] if self.dice.random() < RARE else rights[:BUSY]))

    async def change(self, right: Right) -> None:
        self.board.heat(right)
        await asyncio.sleep(self.dice.choice(PAUSES))
        version, way = self.board.answered(right), self._way(right)
        newer = version + (2 if way in REPLACING else 1)
        self.board.write(right, "begun", newer)
        text = await way(self, right, newer)
        if text:
            self.other.tell(right, newer, text)
        self.board.write(right, "answered", newer)
        self.changes[way.__name__] += 1
        async with asyncio.timeout(PATIENCE):
            while self.board.seen(right) < newer and not self.other.problems:
                await asyncio.sleep(0.0005)

    def _way(self, right: Right) -> Way:
        if self.board.answered(right) % 2 == 0:
            return STARTS[right.kind]
        return self.dice.choice(ENDS[right.kind])

    # ways to change a right; a new token or key is returned

    async def connect(self, right: Right, version: int) -> str:
        """Import a grant, as for an account that is connected again."""
        end = self.running.parts.clock.now() + timedelta(days=1)
        token, refresh = Secret(right.token(version)), Secret(f"refresh-{version}")
        line = Incoming(
            line=1,
            app=APP,
            subject=right.subject,
            refresh_token=refresh,
            access_token=token,
            expires_at=end,
            scopes=SCOPES,
            mark=f"{right.number}-{version}",
        )
        outcome = await self.running.parts.importing.import_grant(line, replace=True)
        assert outcome in {"imported", "replaced"}, outcome
        return ""

    async def replace(self, right: Right, version: int) -> str:
        return await self.connect(right, version)

    async def revoke(self, right: Right, _: int) -> str:
        assert await self.running.broker.revoke(APP, subject=right.subject)
        return ""

    async def erase(self, right: Right, _: int) -> str:
        assert (await self.running.broker.erase(right.subject)).done
        return ""

    async def begin(self, right: Right, _: int) -> str:
        begun = await self.running.broker.turns.begin(turn(right.subject))
        self.ids[right] = begun.turn_id
        return begun.token.reveal()

    async def end(self, right: Right, _: int) -> str:
        assert await self.running.broker.turns.end(self.ids[right])
        return ""

    async def create(self, right: Right, _: int) -> str:
        key, text = await self.running.broker.api_keys.create(f"key-{right.number}", ["runtime"])
        self.ids[right] = key.id
        return text.reveal()

    async def rotate(self, right: Right, _: int) -> str:
        old = self.ids[right]
        key, text = await self.running.broker.api_keys.rotate(f"key-{right.number}", overlap_seconds=0)
        self.ids[right] = key.id
        assert await self.running.broker.api_keys.remove(old)
        return text.reveal()

    async def remove(self, right: Right, _: int) -> str:
        assert await self.running.broker.api_keys.remove(self.ids[right])
        return ""


Way = Callable[[Changer, Right, int], Any]
STARTS: dict[Kind, Way] = {"grant": Changer.connect, "turn": Changer.begin, "key": Changer.create}
ENDS: dict[Kind, tuple[Way, ...]] = {
    "grant": (Changer.revoke, Changer.revoke, Changer.revoke, Changer.replace, Changer.erase),
    "turn": (Changer.end,),
    "key": (Changer.remove, Changer.rotate),
}
REPLACING = {Changer.replace, Changer.rotate}


async def interleave(folder: Path, disk: Disk, rounds: int, seed: int, mistake: str = "") -> Report:
    """Run so many rounds on one kind of disk. `mistake` is one that the other process makes."""
    dice, clock = Random(seed), SystemClock()
    store = open_file_store(folder, clock=clock, fs=DISKS[disk]())
    board = Board(folder / "board")
    log = json_log(io.StringIO(), clock)
    async with open_running(
        bundle(folder), env={}, clock=clock, store=store, log=log, background=False
    ) as running, Other.start(folder, disk, seed, mistake) as other:  # fmt: skip
        changer = Changer(running, board, other, dice)
        await changer.connect(Right("turn", 0), 1)
        for right in (right for kind in KINDS for right in rights_of(kind)):
            await changer.change(right)
        share = -(-rounds // len(KINDS))
        await asyncio.gather(*(changer.change_all(kind, share) for kind in KINDS))
    figures = {"changes": dict(changer.changes), "answers": dict(sorted(other.figures.items()))}
    return Report(f"Rights that end in another process; disk: {disk}, seed {seed}", figures, other.problems[:20])


async def each_disk(folder: Path, rounds: int, seed: int) -> list[Report]:
    reports = []
    for disk in DISKS:
        place = folder / disk
        place.mkdir()
        reports.append(await interleave(place, disk, -(-rounds // len(DISKS)), seed))
    return reports


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.interleavings")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reports = asyncio.run(each_disk(Path(folder), given.rounds, given.seed))
    for report in reports:
        Console().print(report.table())
    return 1 if any(report.problems for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
