"""The parts of the proof: the long forms that are programs of their own, and how long each is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One long form: a module, and the options that say how long it is."""

    title: str
    module: str
    sizes: Mapping[str, float]
    options: tuple[str, ...] = ()
    shown: tuple[str, ...] = ("problems",)  # the figures in its row of docs/proof.md; none: the last line
    lines: int = 40  # so many of the last that it prints are in the record

    def command(self, scale: float) -> list[str]:
        sizes = [word for name, size in self.sizes.items() for word in (f"--{name}", _scaled(size, scale))]
        return [sys.executable, "-m", self.module, *self.options, *sizes]

    def size(self, scale: float) -> str:
        return ", ".join(f"{_scaled(size, scale)} {name}" for name, size in self.sizes.items())


def _scaled(size: float, scale: float) -> str:
    """Never less than one: memory that settles looks like memory that grows within the first minute."""
    return f"{max(1.0, size * scale):g}" if isinstance(size, float) else str(max(1, round(size * scale)))


MODEL = ("searches", "states of all", "laws", "broken")
WORLDS = ("worlds", "seeds", "states", "laws", "mutants noticed", "broken")
EVERY_FILE = Part("Every row and example of the tests", "tests.faults.long_forms", {})  # each file notes itself
PARTS = (
    EVERY_FILE,
    Part("Every story on PostgreSQL", "tests.faults.long_forms", {}, ("--which", "postgres"), shown=(), lines=1),
    Part("Every order of what may come during a refresh", "tests.model.search", {"states": 400_000}, shown=MODEL),
    Part(
        "Worlds whose time and faults come from a seed",
        "tests.world.__main__",
        {"worlds": 1000},
        ("--mutants",),
        WORLDS,
    ),
    Part("Brokers killed at random", "tests.faults.kills", {"kills": 300}),
    Part("A server killed under load", "tests.faults.server_kills", {"kills": 30}),
    Part("A server of two workers killed under load", "tests.faults.server_kills", {"kills": 30}, ("--workers", "2")),
    Part("Many processes want one expired grant", "tests.faults.storm", {"tasks": 20_480}, ("--only", "rush")),
    Part("Brokers killed during refreshes", "tests.faults.storm", {"kills": 1000}, ("--only", "siege")),
    Part("Calls cancelled at every await", "tests.faults.storm", {"cancels": 20_000}, ("--only", "cancels")),
    Part("Rights that end in another process", "tests.faults.interleavings", {"rounds": 6_000}),
    Part("Queues that crash at each change", "tests.faults.queue_crashes", {"crashes": 1_500}),
    Part("Slots of the audit log that crash", "tests.faults.audit_crashes", {"crashes": 3_000}),
    Part("Agents and orchestrators killed at random", "tests.faults.agent_kills", {"turns": 1000}),
    Part("Four hosts with one database", "tests.faults.hosts", {"seconds": 600.0}),
    Part("A database that is away during refreshes", "tests.faults.outages", {"seconds": 300.0}, lines=70),
    Part("Mixed load for minutes", "bench.soak", {"minutes": 6.0}, shown=()),
)
