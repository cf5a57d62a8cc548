"""The figures of several processes as one: each leaves its own in a common folder, and any of them adds them up.

A process that has ended stays in the sum, so that no counter goes down; its figures are moved into one file, so that
the folder does not grow with every restart. Whether a process lives is shown by the lock that it holds until it ends,
however it ends. There is nothing secret in the folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.observability.metrics import Gauge, Metrics, Now

GONE = "gone"  # the sum of those that have ended
WRITE_SECONDS = 1.0
AFTER_FAILURE_SECONDS = 30.0
_PAUSES = (0.01,) * 100  # seconds between tries for the lock, on a thread
_GAUGES = {gauge.value: gauge for gauge in Gauge}


@dataclass(slots=True)
class MetricFigures:
    """Counters, times and current values."""

    metrics: Metrics = field(default_factory=Metrics)
    now: Now = field(default_factory=dict)

    def add(self, now: Now) -> None:
        for key, value in now.items():
            self.now[key] = self.now.get(key, 0) + value


class MetricsFolder:
    """One process' place in the folder. It reads and writes files: call it in a thread. May raise OSError."""

    def __init__(self, folder: Path, name: str, held: int) -> None:
        self._folder = folder
        self._name = name
        self._held: int | None = held

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> MetricsFolder:
        """Make this process's place, and the folder (0700) if it is missing. Waits for no other process: the file gets
        its name once it is locked."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = random_text(clock, 128)
        fresh = folder / f"{name}.fresh"
        held = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            lock_descriptor(held)
            fresh.rename(folder / f"{name}.live")
        except OSError:
            os.close(held)
            raise
        return cls(folder, name, held)

    def write(self, metrics: dict[str, Any], now: Now, circuits: Sequence[Any] = ()) -> None:
        """Replace what we left before. `metrics` is `Metrics.to_json`; `circuits` are the open ones, as JSON."""
        gauges = [[gauge.value, list(labels), value] for (gauge, labels), value in now.items() if value]
        _replace(self._folder / f"{self._name}.json", {**metrics, "now": gauges, "circuits": list(circuits)})

    def others(self) -> MetricFigures:
        """Return the counts of all other processes, living or not, and the current values of the living ones."""
        figures = MetricFigures()
        with _locked(self._folder):
            figures.metrics.absorb(self._sum_of_ended().to_json())
            for name in self._names(".json"):
                with suppress(ValueError, KeyError, TypeError):
                    found = _read(self._folder / f"{name}.json")
                    now = {(_GAUGES[gauge], tuple(labels)): float(value) for gauge, labels, value in found["now"]}
                    figures.metrics.absorb(found)
                    figures.add(now)
        return figures

    def circuits(self) -> list[Any]:
        """Return the open circuits that the other living processes have left; they are checked where they are read."""
        found: list[Any] = []
        with _locked(self._folder):
            for name in self._names(".json"):
                with suppress(ValueError, TypeError):
                    left = _read(self._folder / f"{name}.json").get("circuits", [])
                    found += left if isinstance(left, list) and self._lives(name) else []
        return found

    def close(self) -> None:
        """Count as ended from here on. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _sum_of_ended(self) -> Metrics:
        """Return the sum of ended processes. It names them: none is counted twice if we end before removing files."""
        total, counted = self._sum()
        ended = sorted({name for name in (*self._names(".json"), *self._names(".live")) if not self._lives(name)})
        fresh = [name for name in ended if name not in counted]
        for name in fresh:
            with suppress(ValueError, KeyError, TypeError):
                total.absorb(_read(self._folder / f"{name}.json"))
        if fresh:
            _replace(self._folder / f"{GONE}.json", {**total.to_json(), "holds": ended})
        for name in ended:
            for file in (f"{name}.json", f"{name}.new", f"{name}.live"):
                (self._folder / file).unlink(missing_ok=True)
        return total

    def _sum(self) -> tuple[Metrics, frozenset[str]]:
        """Return the sum of ended processes, with their names. An unreadable file begins anew."""
        total = Metrics()
        try:
            found = _read(self._folder / f"{GONE}.json")
            total.absorb(found)
            return total, frozenset(found.get("holds", ()))
        except (ValueError, KeyError, TypeError):
            return Metrics(), frozenset()

    def _names(self, ending: str) -> list[str]:
        mine = {GONE, self._name}
        return [path.stem for path in sorted(self._folder.glob(f"*{ending}")) if path.stem not in mine]

    def _lives(self, name: str) -> bool:
        return _is_held(self._folder / f"{name}.live")


class Sharing:
    """Leaves a process' figures in its place, once a second while they change, and at its end. Without a place it does
    nothing. `now` gives the gauges, `circuits` the open ones."""

    def __init__(
        self,
        *,
        place: MetricsFolder | None,
        metrics: Metrics,
        now: Callable[[], Now],
        circuits: Callable[[], list[Any]] = list,
    ) -> None:
        self._place = place
        self._metrics = metrics
        self._now = now
        self._circuits = circuits
        self._written: tuple[int, Now, list[Any]] | None = None

    async def run(self) -> None:
        """Write the figures until cancelled. A folder that takes nothing is tried again later."""
        pause = 0.0
        while self._place is not None:
            await asyncio.sleep(pause)
            pause = WRITE_SECONDS if await self._try() else AFTER_FAILURE_SECONDS

    async def close(self) -> None:
        """Write the last figures; others count us as ended from here on."""
        if self._place is not None:
            await self._try()
            self._place.close()

    async def _try(self) -> bool:
        place, state = self._place, (self._metrics.changes, self._now(), self._circuits())
        if place is None or state == self._written:
            return True
        try:
            await on_thread(partial(place.write, self._metrics.to_json(), state[1], state[2]))
        except OSError:
            return False
        self._written = state
        return True


def _is_held(lock: Path) -> bool:
    try:
        tried = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not lock_descriptor(tried, blocking=False)
    finally:
        os.close(tried)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from adding up meanwhile. Raises OSError where one holds the lock for longer than a second:
    it was stopped, and each scrape that waited on would keep a thread."""
    held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for pause in _PAUSES:
            if lock_descriptor(held, blocking=False):
                break
            select.select((), (), (), pause)
        else:
            raise TimeoutError("the folder of the metrics is locked")
        yield
    finally:
        os.close(held)


def _read(path: Path) -> dict[str, Any]:
    """Return the content, or nothing for a missing file. Raises ValueError for other JSON."""
    nothing: dict[str, Any] = {"counts": [], "times": [], "now": []}
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return nothing
    return found if isinstance(found, dict) else nothing


def _replace(path: Path, content: dict[str, Any]) -> None:
    """Write so that readers see all or nothing. Not synced: figures need not survive the machine."""
    fresh = path.with_suffix(".new")
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(json.dumps(content).encode("ascii"))
    fresh.replace(path)
