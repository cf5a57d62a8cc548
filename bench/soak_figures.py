"""What a soak looks at, and its rule: processes by `/proc`, the store by its files."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oauthbroker.repository.repository import KINDS
from tests.kit.processes import children_of

MIB = 1024 * 1024
LASTING = (
    "grants",
    "uses",
    "queues",
    "apikeys",
    "secrets",
    "plugins",
)  # as many as pairs, agents, keys, secrets and values
PASSING = tuple(kind for kind in KINDS if kind not in LASTING)


@dataclass(frozen=True)
class Process:
    """One process at one moment. `memory` is resident, in MiB."""

    memory: float
    descriptors: int
    threads: int

    @classmethod
    def look(cls, pid: int) -> Process:
        """Raises OSError for a process that has ended."""
        place = Path(f"/proc/{pid}")
        lines = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
        descriptors = len([*(place / "fd").iterdir()])
        return cls(int(lines["VmRSS"].split()[0]) * 1024 / MIB, descriptors, int(lines["Threads"]))


@dataclass(frozen=True)
class Store:
    """How many files and bytes each kind has, and what else lies in the folder."""

    files: Mapping[str, int]
    size: Mapping[str, int]
    temporary: int
    locks: int
    audit: int

    @classmethod
    def look(cls, data: Path) -> Store:
        found = {kind: _files(data / kind) for kind in KINDS}
        return cls(
            {kind: sum(not name.endswith(".tmp") for name in files) for kind, files in found.items()},
            {kind: sum(files.values()) for kind, files in found.items()},
            sum(name.endswith(".tmp") for files in found.values() for name in files),
            sum(not name.startswith("write-") for name in _files(data / "locks")),  # of those there are always 64
            sum(size for name, size in _files(data).items() if name.startswith("audit")),
        )


@dataclass(frozen=True)
class Moment:
    """Everything at once. `at` is in seconds since the load was as it stays."""

    at: float
    processes: Mapping[str, Process]
    store: Store
    calls: int

    @classmethod
    def look(cls, at: float, parent: int, data: Path, calls: int) -> Moment:
        workers = sorted(children_of(parent))
        names = {"parent": parent, **{f"worker {worker}": worker for worker in workers}}
        return cls(at, {name: Process.look(pid) for name, pid in names.items()}, Store.look(data), calls)


@dataclass(frozen=True)
class Bounds:
    """The bounds of a level run. Memory moves for many reasons: MiB a minute, by the slope over the last two thirds. A
    busy machine answers fewer calls a minute: bytes a call of any worker, once they are more than `noise` in MiB, which
    a single step of 1 MiB, Python's unit, makes of a level line."""

    slope: float
    per_call: float
    noise: float = 1.5
    threads: int = 0


@dataclass(frozen=True)
class Growth:
    """How the memory of a process grew over the last two thirds, by least squares. `whole` is in MiB."""

    per_minute: float
    per_call: float
    whole: float

    @classmethod
    def of(cls, name: str, moments: Sequence[Moment]) -> Growth:
        late = moments[len(moments) // 3 :]
        if len(late) < 2:
            return cls(0.0, 0.0, 0.0)
        memory = [each.processes[name].memory for each in late]
        rate = statistics.linear_regression([each.at for each in late], memory).slope
        whole = rate * (late[-1].at - late[0].at)
        return cls(rate * 60, whole * MIB / max(1, late[-1].calls - late[0].calls), whole)

    def __str__(self) -> str:
        return f"{self.per_minute:+.2f} MiB a minute, {self.per_call:+.0f} bytes a call"

    def is_over(self, bounds: Bounds) -> bool:
        over_noise = self.whole > bounds.noise and self.per_call > bounds.per_call
        return self.per_minute > bounds.slope or over_noise


def grown_processes(before: Moment, loaded: Sequence[Moment], after: Moment, bounds: Bounds) -> list[str]:
    """`before` and `after` are without load."""
    names = before.processes.keys()
    if any(each.processes.keys() != names for each in (*loaded, after)):
        return ["a worker has ended and was replaced"]
    problems = []
    for name, was in before.processes.items():
        now, growth = after.processes[name], Growth.of(name, loaded)
        if growth.is_over(bounds):
            problems.append(f"{name}: memory grows by {growth}")
        if now.threads > was.threads + bounds.threads:
            problems.append(f"{name}: {was.threads} -> {now.threads} threads")
    return problems + more_descriptors(before, after)


def more_descriptors(before: Moment, after: Moment) -> list[str]:
    """Return a problem for each process that has more than before."""
    return [
        f"{name}: {was.descriptors} -> {after.processes[name].descriptors} descriptors"
        for name, was in before.processes.items()
        if name in after.processes and after.processes[name].descriptors > was.descriptors
    ]


def grown_store(before: Store, rest: Store) -> list[str]:
    """`rest` is hours after the last call: what passes has passed, and the rest is no more than it was."""
    problems = [f"{kind}: {rest.files[kind]} never went" for kind in PASSING if rest.files[kind]]
    most = {**before.files, "uses": rest.files["grants"]}  # a grant's use is written once it has been used
    problems += [f"{kind}: {most[kind]} -> {rest.files[kind]}" for kind in LASTING if rest.files[kind] > most[kind]]
    if rest.temporary:
        problems.append(f"{rest.temporary} temporary files")
    needed = 1 + 2 * rest.files["grants"] + rest.files["queues"]  # the probe; two leases a pair, one an agent
    if rest.locks > needed:
        problems.append(f"{rest.locks} locks, and {needed} are needed")
    return problems


def _files(folder: Path) -> dict[str, int]:
    """Name -> bytes. A file that goes meanwhile is not there."""
    found = {}
    for path in folder.iterdir():
        try:
            found[path.name] = path.stat().st_size
        except FileNotFoundError:
            continue
    return found
