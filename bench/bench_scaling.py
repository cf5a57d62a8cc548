"""One, two and four processes of a broker on one store: warm token calls, durable writes, events.

The store is PostgreSQL, reached over TCP from one host and from several (network namespaces, which need root), and
files for the processes of one host. Beside PostgreSQL stands `pgbench` with the same statements, as many clients and
the same time, by turns. Brokers, database and pgbench share the machine's cores, so the CPU time of one call is what
scales; the rates say what these cores do together.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.bench_contention import asked
from bench.children import Child, child
from bench.figures import parser, show, show_failure
from bench.installation import install, write_config
from bench.scaling_host import BODY, TASKS
from oauthbroker.store.postgres import entry_statements, freshness_checks
from oauthbroker.store.postgres.queue_statements import STATEMENTS
from tests.kit import network_hosts, postgres
from tests.kit.network_hosts import HUB, inside, trusted

ENV, PORT = "OAUTHBROKER_BENCH_DATABASE", 5432
SOON = 0.3
FEED_SECONDS = 35.0  # in which calls still ask
WORDS = {"token": "warm token calls", "write": "durable writes", "event": "events: enqueue, lease, ack"}
# A row by its number; what a client of pgbench uses is its own, as each task of a broker has its own entry and queue.
_OWN = "decode(lpad(to_hex(({})::bigint), 64, '0'), 'hex')"
_GIVEN = {
    "kind": "'bench'",
    "name": _OWN.format(":client_id"),
    "agent": _OWN.format(":client_id"),
    "address": _OWN.format(":n"),
    "id": _OWN.format(":n"),
    "lease": _OWN.format(":n"),
    "version": "version",
    "expect": "generation",
    "epoch": "epoch",
    "labels": "'{}'",
    "values": "'{}'",
    "seconds": "60",
    "now": "null",
    "record": f"decode(repeat('5a', {len(BODY) + 256}), 'hex')",
}
SCRIPTS = {
    "token": [freshness_checks.ONE],
    "write": [entry_statements.REPLACE],
    "event": [STATEMENTS[name] for name in ("enqueue", "lease", "ack")],
}


def script(kind: str) -> str:
    """Return a script of pgbench with the product's own statements, each a transaction."""
    filled = [re.sub(r"%\((\w+)\)s", lambda found: _GIVEN[found[1]], each).strip() for each in SCRIPTS[kind]]
    return "\n".join(["\\set n random(1, 1000000000000)", *(f"{' '.join(each.split())};" for each in filled), ""])


def make_rows(server: postgres.Server, database: str, clients: int) -> None:
    """Make one row for each client of pgbench."""
    server.run(
        f"""insert into oauthbroker.entry (kind, name, generation, record)
        select 'bench', {_OWN.format("n")}, 1, {_GIVEN["record"]} from generate_series(0, {clients - 1}) as n""",  # noqa: S608  (of constants)
        database,
    )


def pgbench(
    server: postgres.Server,
    kind: str,
    clients: int,
    seconds: float,
    before: Sequence[str] = (),
    *,
    host: str = HUB,
    database: str = "bench",
) -> float:
    """Return the transactions a second of `clients` connections."""
    file = server.folder / f"{kind}.sql"
    file.write_text(script(kind), "utf-8")
    words = [*before, str(server.bin / "pgbench"), "-n", "-M", "extended", "-c", str(clients), "-j", "2"]
    words += ["-T", str(max(1, round(seconds))), "-f", str(file), "-h", host, "-U", "postgres", database]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    found = re.search(r"tps = ([0-9.]+) \(without", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


async def rates(children: Sequence[Child], kind: str, seconds: float) -> tuple[float, float]:
    """Return how often all of them did it in a second, and the CPU microseconds of one."""
    at = time.monotonic() + SOON
    answers = await asked(children, do="work", kind=kind, tasks=TASKS, at=at, until=at + seconds)
    count = sum(each["count"] for each in answers)
    return count / seconds, sum(each["cpu"] * each["count"] for each in answers) / max(1, count)


Samples = dict[tuple[str, str], list[float]]


def tell(samples: Samples, kind: str, layout: str, first: str, beside: str | None = None) -> None:
    """Print the rate of a layout, beside pgbench's and beside that of one process, and the CPU time of one."""
    name = f"{layout}: {WORDS[kind]}"
    others = {f"{beside}: {WORDS[kind]}": samples[beside, kind]} if beside else {}
    if layout != first:
        others[f"{first}: {WORDS[kind]}"] = samples[first, kind]
    show(name, samples[layout, kind], "1/s", others)
    show(f"{name}, CPU of one in the broker", samples[f"{layout}, CPU", kind], "us")


async def taken(layouts: Mapping[str, Sequence[Child]], kinds: Sequence[str], seconds: float, into: Samples) -> None:
    """Take one sample of each layout and kind."""
    for layout, children in layouts.items():
        for kind in kinds:
            rate, cpu = await rates(children, kind, seconds)
            into.setdefault((layout, kind), []).append(rate)
            into.setdefault((f"{layout}, CPU", kind), []).append(cpu)


@contextmanager
def processes(folder: Path, befores: Sequence[Sequence[str]], first: int = 0) -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(child("bench.scaling_host", str(folder), str(first + number), before=before))
            for number, before in enumerate(befores)
        ]


async def on_files(folder: Path, rounds: int, seconds: float) -> None:
    await install(folder, PORT)
    samples: Samples = {}
    with processes(folder, [()] * 4) as children:
        await asked(children, do="open")
        layouts = {f"files, {count} workers": children[:count] for count in (1, 2, 4)}
        for _ in range(rounds):
            await taken(layouts, tuple(WORDS), seconds, samples)
        await asked(children, do="close")
    for kind in WORDS:
        for layout in layouts:
            tell(samples, kind, layout, "files, 1 workers")


async def on_postgres(folder: Path, hosts: Sequence[str], rounds: int, seconds: float, *, feed: bool) -> None:
    """Measure in the hub, where the server listens."""
    settings = ("fsync=on", f"listen_addresses={HUB}", f"port={PORT}", "max_connections=200")
    with postgres.server(*settings, on_disk=True) as server:
        with (server.folder / "data" / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write(trusted())
        server.run("select pg_reload_conf()")
        server.run("create database bench")
        os.environ[ENV] = f"postgresql://postgres@{HUB}:{PORT}/bench"
        await install(folder, PORT, ENV)
        make_rows(server, "bench", 16)
        first = inside(hosts[0])
        with (
            processes(folder, [first] * 4) as workers,
            processes(folder, [inside(each) for each in hosts], 4) as others,
        ):
            await asked([*workers, *others], do="open")
            layouts: dict[str, Sequence[Child]] = {
                f"PostgreSQL, {count} workers": workers[:count] for count in (1, 2, 4)
            }
            layouts |= {f"PostgreSQL, {count} hosts": others[:count] for count in (2, 4)}
            samples: Samples = {}
            for _ in range(rounds):
                await taken(layouts, tuple(WORDS), seconds, samples)
                for kind in WORDS:
                    for count in (1, 2, 4):
                        rate = await asyncio.to_thread(pgbench, server, kind, count * TASKS, seconds, first)
                        samples.setdefault((f"pgbench, {count * TASKS} clients", kind), []).append(rate)
            for kind, words in WORDS.items():
                for count in (1, 2, 4):
                    bare = f"pgbench, {count * TASKS} clients"
                    show(f"{bare}: {words}", samples[bare, kind], "1/s")
                for layout, children in layouts.items():
                    tell(samples, kind, layout, "PostgreSQL, 1 workers", f"pgbench, {len(children) * TASKS} clients")
            if feed:
                await asked([*workers, *others], do="close")
                await with_feed(folder, workers, rounds, seconds, samples)


async def with_feed(folder: Path, workers: Sequence[Child], rounds: int, seconds: float, samples: Samples) -> None:
    """Measure warm token calls that ask the database nothing, because a feed tells the changes."""
    write_config(folder, PORT, ENV, "fast")
    await asked(workers, do="open")
    await taken({"": workers}, ["token"], 0.2, {})  # the first call begins the feed
    await asyncio.sleep(FEED_SECONDS)
    layouts = {f"PostgreSQL with feed, {count} workers": workers[:count] for count in (1, 2, 4)}
    for _ in range(rounds):
        await taken(layouts, ["token"], seconds, samples)
    for count, layout in zip((1, 2, 4), layouts, strict=True):
        tell(samples, "token", layout, "PostgreSQL with feed, 1 workers", f"PostgreSQL, {count} workers")
    await asked(workers, do="close")


def missing() -> str:
    """Return what this machine lacks for several hosts; empty if nothing."""
    if postgres.binaries() is None:
        return postgres.LACKS
    return "" if network_hosts.possible() else network_hosts.LACKS


async def main(given: Any) -> None:
    rounds, seconds = (1, 1.0) if given.quick else (5, 2.0)
    with tempfile.TemporaryDirectory() as name:
        if given.hosts:
            await on_postgres(Path(name), given.hosts, rounds, seconds, feed=not given.quick)
            return
        await on_files(Path(name), rounds, seconds)
    if why := missing():
        for kind in WORDS.values():
            show_failure(f"PostgreSQL, 4 hosts: {kind}", f"this machine lacks {why}")
        return
    with network_hosts.network(4) as net:
        words = [*inside(net.hub), sys.executable, "-m", "bench.bench_scaling", "--hosts", *net.hosts]
        await asyncio.to_thread(
            subprocess.run, [*words, *(["--quick"] if given.quick else [])], check=True, timeout=500
        )


if __name__ == "__main__":
    options = parser()
    options.add_argument("--hosts", nargs="*", default=[], help="network namespaces; this process is in their hub")
    asyncio.run(main(options.parse_args()))
