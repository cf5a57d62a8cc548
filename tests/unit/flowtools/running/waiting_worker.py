"""A process in which a run waits and lets it go on, each time with a child that kills itself at the next of its points.

First the child makes the call, which waits; then a child goes on after the consent. Prints one JSON line for each
child.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import event

from oauthbroker import AuthorizationRequired
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.ports import ConsentNeeded, Effect, Ports
from oauthbroker.flowtools.running.working import RunResult
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, World, log, world_in
from tests.unit.flowtools.running.kill_worker import MOST, Points

URL = {"url": "https://api.example.com/v1", "oauthAppRef": "OAuthApp/mail", "method": "POST"}
NODES = {"a": BEGIN, "b": log("one"), "c": COMMIT, "r": ("httpRequest", URL), "d": BEGIN, "e": log("two")}


class Api:
    """An API behind a consent: a file says that the user has given it, another one has the requests."""

    def __init__(self, folder: Path, points: Points) -> None:
        self.consent, self.sent, self.points = folder / "consent", folder / "sent", points

    def problem(self, *_: str) -> str:
        return ""

    def ask(self, _: Effect) -> None:
        self.points()
        if not self.consent.exists():
            raise ConsentNeeded(
                AuthorizationRequired(
                    auth_session_id="s1",
                    authorization_url="https://b.example/c/1",
                    message="Agree.",
                    expires_at=datetime(2030, 1, 1, tzinfo=UTC),
                    reason="noGrant",
                )
            )

    def send(self, effect: Effect) -> Any:
        self.points()
        with self.sent.open("a", encoding="utf-8") as file:
            file.write(f"{effect.key}\n")
        self.points()
        return {"status": 200, "body": None}


def opened(folder: Path, points: Points) -> tuple[World, ReadyFlow]:
    made = world_in(folder, ports=Ports(requests=Api(folder, points)), lease_seconds=-120.0)
    for name in ("before_cursor_execute", "commit"):
        event.listen(made.database.engine, name, points)
    return made, made.flow(NODES, chain(*NODES), idempotencyKey="input.id")


def call(folder: Path, points: Points) -> RunResult:
    world, flow = opened(folder, points)
    return world.runs.call(flow, {"id": "a"}, STAFF)


def go_on(folder: Path, points: Points) -> RunResult | None:
    """Go on with the run that is left, as a process that looks for such runs does."""
    world, flow = opened(folder, points)
    results = [world.runs.resume(flow, run) for run in world.unended()]
    return results[0] if results else None


def die_at(folder: Path, point: int, work: Any) -> bool:
    child = os.fork()
    if not child:
        points = Points(10**9)
        opened(folder, points)
        points.left = point
        work(folder, points)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(folder: Path, phase: str, step: int) -> None:
    never = Points(10**9)
    for point in range(0, MOST, step):
        place = folder / str(point)
        place.mkdir()
        if phase == "waiting":
            died = die_at(place, point, call)
            waits = call(place, never).state
        else:
            waits = call(place, never).state
            (place / "consent").touch()
            died = die_at(place, point, go_on)
        (place / "consent").touch()
        world, _ = opened(place, never)
        sessions = [session for run in world.unended() if (session := world.runs.session(run))]
        go_on(place, never)
        state = call(place, never).state
        sent = len((place / "sent").read_text("utf-8").split()) if (place / "sent").exists() else 0
        found = {"died": died, "waits": waits, "sessions": sessions, "state": state, "texts": world.texts()}
        print(json.dumps({**found, "sent": sent}), flush=True)
        if not died:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
