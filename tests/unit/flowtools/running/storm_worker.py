"""Processes that call a tool, go on with runs that are due, and answer consents, and are killed at random.

python -m tests.unit.flowtools.running.storm_worker URL FOLDER PROCESSES KILLS

The calls charge a card, ask an API behind a consent, and write rows; some of them fail then, and are refunded. When all
kills are done, one process brings each run to its end. Prints one JSON line for each run.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from oauthbroker import AuthorizationRequired
from oauthbroker.flowtools.running import interpreter, refunds
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import ENDED, RUN, WAITING
from oauthbroker.flowtools.running.ports import ConsentNeeded, Effect, Ports
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, Entries, World

LEASE = 0.5
MOST_SECONDS = 150.0  # for the last process to bring all runs to an end
WRITE = {"entity": "Log", "operation": "create"}
NODES: dict[str, Any] = {
    "a": BEGIN,
    "b": ("write", {**WRITE, "fields": {"text": "concat('one ', input.id)"}}),
    "c": COMMIT,
    "pt": ("timeout", {"seconds": 1}),
    "p": ("payment", {"provider": "stripe", "fields": {"order": "input.id"}}),
    "rt": ("timeout", {"seconds": 1}),
    "r": (
        "httpRequest",
        {
            "url": "https://api.example.com/v1",
            "oauthAppRef": "OAuthApp/mail",
            "method": "POST",
            "body": {"order": "input.id"},
        },
    ),
    "d": BEGIN,
    "e": ("write", {**WRITE, "fields": {"text": "concat('two ', input.id)"}}),
    "f": ("assert", {"expression": "input.n != 0.0", "message": "it fails"}),
}


class Outside:
    """The shop, which takes keys, and the API, which does not: files that outlive the processes."""

    takes_keys = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def send(self, effect: Effect) -> Any:
        fields = effect.fields
        order = (fields["body"] if effect.kind == "httpRequest" else fields.get("charge") or fields)["order"]
        with self._opened() as file:
            lines = file.read().splitlines()
            line = f"{effect.operation} {order} {effect.key}"
            if effect.kind == "httpRequest" or line not in lines:
                file.write(f"{line}\n")
        return {"order": order}

    def problem(self, *_: str) -> str:
        return ""

    def ask(self, effect: Effect) -> None:
        order = effect.fields["body"]["order"]
        if not (self.folder / f"consent-{order}").exists():
            said = {"auth_session_id": order, "authorization_url": "https://b.example/c/1", "message": "Agree."}
            raise ConsentNeeded(
                AuthorizationRequired(**said, expires_at=datetime(2100, 1, 1, tzinfo=UTC), reason="noGrant")
            )

    def lines(self) -> list[list[str]]:
        with self._opened() as file:
            return [line.split() for line in file.read().splitlines()]

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with (self.folder / "outside").open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file


def opened(url: str, folder: Path) -> tuple[World, ReadyFlow]:
    for module, name in (
        (interpreter, "ASK_SECONDS"),
        (refunds, "_SECONDS"),
    ):  # a lease lasts as long as a call outside may
        setattr(module, name, 1.0)
    outside = Outside(folder)
    ports = Ports(payments={"stripe": outside}, requests=outside)
    world = World(url, ports=ports, lease_seconds=LEASE, sleep=None, audit=Entries(folder / "audit"))
    return world, world.flow(NODES, chain(*NODES), idempotencyKey="input.id", policies=["paymentRollback"])


def serve(world: World, flow: ReadyFlow, folder: Path, name: str, *, calls: bool) -> None:
    """Work until this process is killed; one without `calls`, until each run has ended."""
    (folder / f"begun-{name}").touch()
    for number in range(10**9):
        if calls:
            order = f"{name}-{number}"
            result = world.runs.call(flow, {"id": order, "n": sum(order.encode()) % 3}, STAFF)
            with (folder / f"answers-{name}").open("a", encoding="utf-8") as file:
                file.write(f"{order} {result.state}\n")
        for run, _ in world.runs.due(20):
            world.runs.work(run, lambda _: flow)
        answer_consents(world, folder)
        if not calls:
            if not world.unended():
                return
            time.sleep(0.05)


def answer_consents(world: World, folder: Path) -> None:
    """Let each fourth user refuse, and the others consent, as the broker's events do."""
    with world.database.reading() as connection:
        waiting = [each.id for each in connection.execute(sa.select(RUN.c.id).where(RUN.c.state == WAITING))]
    for run in waiting:
        order = world.runs.find(run).input["id"]
        if sum(order.encode()) % 4 == 0:
            world.runs.refused(run, order, "accessDenied")
        else:
            (folder / f"consent-{order}").touch()
            world.runs.consented(run)


def forked(url: str, folder: Path, name: str) -> int:
    child = os.fork()
    if not child:
        try:
            serve(*opened(url, folder), folder, name, calls=True)
        finally:
            traceback.print_exc()
            os._exit(3)
    return child


def wait_for(begun: Path) -> None:
    """Wait until a process works: on a busy machine it takes seconds to begin."""
    for _ in range(6000):
        if begun.exists():
            return
        time.sleep(0.01)
    raise TimeoutError(begun.name)


def found(world: World, folder: Path) -> Iterator[dict[str, Any]]:
    lines, texts = Outside(folder).lines(), world.texts()
    answers = [line.split() for file in folder.glob("answers-*") for line in file.read_text("utf-8").splitlines()]
    with world.database.reading() as connection:
        ids = [each.id for each in connection.execute(sa.select(RUN.c.id))]
    for run in map(world.runs.find, ids):
        order = run.input["id"]
        sent = {what: sum(line[:2] == [what, order] for line in lines) for what in ("charge", "refund", "POST")}
        yield {
            "order": order,
            "state": run.state,
            "code": run.code,
            "notes": run.notes,
            **sent,
            "texts": [text for text in texts if text.endswith(f" {order}")],
            "ends": world.entries.ends(run.id),
            "answers": [state for of, state in answers if of == order and state in ENDED],
        }


def main(url: str, folder: Path, processes: int, kills: int) -> None:
    chance, world = random.Random(kills), opened(url, folder)[0]
    world.database.engine.dispose()
    names = {number: f"{number}x0" for number in range(processes)}
    children = {number: forked(url, folder, name) for number, name in names.items()}
    try:
        for kill in range(1, kills + 1):
            number = chance.randrange(processes)
            wait_for(folder / f"begun-{names[number]}")
            time.sleep(chance.uniform(0.1, 0.5))
            os.kill(children[number], signal.SIGKILL)
            assert os.WIFSIGNALED(os.waitpid(children[number], 0)[1]), "a process ended by itself"
            names[number] = f"{number}x{kill}"
            children[number] = forked(url, folder, names[number])
    finally:  # else they would hold the pipe of the test open
        for child in children.values():
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    world, flow = opened(url, folder)
    with world.database.transaction() as connection:  # the fifth lease of a run that was killed is 32 times as long
        now = world.database.now(connection)
        connection.execute(sa.update(RUN).where(RUN.c.state.not_in(ENDED), RUN.c.due > now).values(due=now))
    signal.alarm(int(MOST_SECONDS))
    serve(world, flow, folder, "last", calls=False)
    signal.alarm(0)
    for each in found(world, folder):
        print(json.dumps(each))
    world.database.engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
