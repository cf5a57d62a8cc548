"""A process that makes one call again and again, each time in a child that kills itself at the next of its points.

A point is before a statement, before a commit and behind it, and on both sides of an effect. Prints one JSON line for
each child: the point at which it died, the answer of the repeated call, the rows, the effects and the audit entries.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import event

from oauthbroker.flowtools.running.ports import Effect, Ports
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, Entries, World, log, world_in

MOST = 400  # points; a bound
NODES = {
    "a": BEGIN,
    "b": log("one"),
    "c": log("two"),
    "d": COMMIT,
    "e": ("payment", {"provider": "stripe", "fields": {"amount": "1"}}),
    "f": BEGIN,
    "g": (
        "write",
        {"entity": "Log", "operation": "update", "filter": {"id": "b.result.id"}, "fields": {"text": "'three'"}},
    ),
}


class Points:
    """Counts points, and kills the process at one of them."""

    def __init__(self, last: int) -> None:
        self.left = last

    def __call__(self, *_: Any, **__: Any) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Shop:
    """Writes each effect to a file, as a provider on another host would."""

    def __init__(self, file: Path, points: Points, *, takes_keys: bool) -> None:
        self.file, self.points, self.takes_keys = file, points, takes_keys

    def send(self, effect: Effect) -> Any:
        self.points()
        known = self.file.read_text("utf-8").split() if self.file.exists() else []
        if not (self.takes_keys and effect.key in known):
            self.file.write_text("\n".join([*known, effect.key]), "utf-8")
        self.points()
        return {"paymentId": effect.key}


def world_of(folder: Path, points: Points, *, takes_keys: bool) -> World:
    shop = Shop(folder / "shop", points, takes_keys=takes_keys)
    made = world_in(
        folder, ports=Ports(payments={"stripe": shop}), lease_seconds=-60.0, audit=Entries(folder / "audit")
    )
    for name in ("before_cursor_execute", "commit"):
        event.listen(made.database.engine, name, points)
    return made


def call(world: World) -> Any:
    flow = world.flow(NODES, chain(*NODES), idempotencyKey="input.id")
    return world.runs.call(flow, {"id": "a"}, STAFF)


def die_at(folder: Path, point: int, *, takes_keys: bool) -> bool:
    """Run the call in a child that dies at a point. Return whether it got there."""
    child = os.fork()
    if not child:
        points = Points(10**9)
        world = world_of(folder, points, takes_keys=takes_keys)
        points.left = point
        call(world)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(folder: Path, step: int, *, takes_keys: bool) -> None:
    for point in range(0, MOST, step):
        place = folder / str(point)
        place.mkdir()
        died = die_at(place, point, takes_keys=takes_keys)
        world = world_of(place, Points(10**9), takes_keys=takes_keys)
        result, again = call(world), call(world)
        sent = (place / "shop").read_text("utf-8").split() if (place / "shop").exists() else []
        found = {"point": point, "died": died, "state": result.state, "same": again == result, "texts": world.texts()}
        print(json.dumps({**found, "sent": len(sent), "audit": [each[2] for each in world.audit()]}), flush=True)
        world.database.engine.dispose()
        if not died:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]), takes_keys=sys.argv[2] == "keys")
