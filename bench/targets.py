"""The table that speed is assessed by: each call, the row of `make bench` that measures it, and its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Figure

Results = Mapping[str, Sequence[Figure]]
OURS = "ctx.oauth.get_access_token"
RAW, STARLETTE, POST = "raw ASGI", "a Starlette route", "POST /v1/tokens"
EVENT, ALONE = "enqueue, lease and ack", "0 others wait"
TCP, UNIX = "16 over TCP", "1 over a Unix socket"


@dataclass(frozen=True)
class Target:
    """`before` and `target` are ratios to the figure `beside`; without one they are values in `unit`.

    `before` is of a run whose figures are gone. `member` names the part of the figure that is assessed.
    """

    call: str
    bench: str
    figure: str
    beside: str | None
    before: str
    target: float
    at_least: bool = False
    unit: str = ""
    member: str = "value"

    def now(self, results: Results) -> tuple[float, float, float] | None:
        """Return the median and the quartiles of the assessed figure, or None if this run did not measure it."""
        found = find(results, self.bench, self.figure)
        if found is None or found["value"] is None:
            return None
        if self.member != "value":
            return found[self.member], found[self.member], found[self.member]
        if self.beside is None:
            return found["value"], found["low"], found["high"]
        assessed = found.get("beside", {}).get(self.beside)
        return (assessed["ratio"], assessed["low"], assessed["high"]) if assessed else None

    def met(self, value: float) -> bool:
        return value >= self.target if self.at_least else value <= self.target

    @property
    def goal(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.target:,.7g}" + (f" {self.unit}" if self.unit else "")


def find(results: Results, bench: str, name: str) -> Figure | None:
    return next((each for each in results.get(bench, ()) if each["name"] == name), None)


def _audit(call: str, row: str, before: str, target: float) -> Target:
    return Target(call, "audit", f"audit: {row}", "audit: the limit (one write)", before, target)


def _start(call: str, row: str, before: str, target: float) -> Target:
    return Target(call, "start", row, "python, nothing imported", before, target)


TABLE = (
    Target("warm call", "token_call", f"warm: {OURS}", "warm: limit, stat and a line", "7.3", 3.0),
    Target("the same beside MSAL's memory cache", "peers", f"{OURS}, 1 grants", "MSAL, memory, 1 grants", "1.12", 0.4),
    Target("cold call", "token_call", f"cold: {OURS}", "cold: limit, read, open and parse", "3.8", 2.5),
    _audit("audit entry", "an entry", "10", 4),
    _audit("audit entry of a repeated call", "an entry of a repeated call", "10", 4),
    _audit("audit entry, two brokers at once", "an entry, two brokers by turns", "23", 5),
    Target(f"`{POST}`, 16 connections", "api", f"{POST}, {TCP}", f"{STARLETTE}, {TCP}", "0.26", 0.8, at_least=True),
    Target("the same beside raw ASGI", "api", f"{POST}, {TCP}", f"{RAW}, {TCP}", "0.15", 0.45, at_least=True),
    Target("CPU of one such request", "api", f"{POST}, {TCP}: CPU", f"{STARLETTE}, {TCP}: CPU", "3.5", 1.25),
    Target(
        "CPU of one behind uvicorn: the general way",
        "api",
        f"{POST} behind uvicorn, {TCP}: CPU",
        None,
        "",
        130,
        unit="us",
    ),
    Target("one over a Unix socket, time", "api", f"{POST}, {UNIX}: time", f"{RAW}, {UNIX}: time", "2.4", 1.4),
    Target(
        "`store.put` alone", "store", "write: store.put, lock included", "write: bare durable replacement", "1.31", 1.3
    ),
    Target("`store.put` together", "store", "together: store.put", "together: bare", "0.51", 0.8, at_least=True),
    Target(
        "a whole refresh, without the provider's answer",
        "refresh",
        "a whole refresh without the provider's answer",
        "two durable writes of a grant",
        "3.2 with it",
        1.2,
    ),
    Target(
        "16 refreshes at once, each",
        "refresh",
        "each of 16 refreshes at once, provider on this machine",
        "a whole refresh, provider on this machine",
        "",
        0.25,
    ),
    Target(
        "2,000 refreshes at once, a provider of 200 ms",
        "storm",
        "storm, without a limit: refreshes",
        None,
        "27",
        150,
        at_least=True,
        unit="a second",
    ),
    Target(
        "requests for a grant, a provider of 50 a second",
        "storm",
        "storm, 50 a second: requests for a grant",
        None,
        "1.24",
        1.1,
    ),
    Target("an event on files", "events", f"{EVENT}, {ALONE}", f"three durable appends, {ALONE}", "", 1.5),
    Target("16 events at once, each", "events", f"{EVENT}, 16 at once, {ALONE}", f"{EVENT}, {ALONE}", "", 0.2),
    _start("`import oauthbroker.client`", "import oauthbroker.client", "25", 6),
    _start("`oauthbroker --help`", "oauthbroker --help", "24", 12),
    _start("import of `open_broker`", "import of open_broker", "100", 35),
    Target("first token of a new process", "start", "process start to the first token", None, "", 250, unit="ms"),
    Target(
        "memory of an idle embedded broker",
        "start",
        "memory of an idle embedded broker",
        None,
        "69 to 89 MiB",
        60,
        unit="MiB",
    ),
    Target("warm call at 100,000 grants", "growth", "warm call, 100,000 grants", "warm call, 1,000 grants", "1", 1.2),
    Target("`open_broker` at 100,000", "growth", "open_broker, 100,000 grants", "open_broker, 1,000 grants", "1", 1.2),
    Target(
        "actions that one core assesses",
        "gateway",
        "valid",
        None,
        "",
        1_000_000,
        at_least=True,
        unit="a minute",
        member="a minute",
    ),
    Target("a call of an isolated tool", "tools", "isolated: a call", "isolated: a plain Python", "", 3.5),
    Target(
        "a turn in an agent process",
        "tools",
        "turn: an answer",
        "turn: an event taken and acknowledged",
        "",
        3,
    ),
    Target("`store.get` on PostgreSQL", "postgres", "postgres: store.get", "postgres: one select", "", 1.6),
    Target("`store.put` on PostgreSQL", "postgres", "postgres: store.put", "postgres: one update", "", 1.8),
    *(
        Target(
            f"`{POST}` on PostgreSQL, {count} of our processes",
            "workers",
            f"serve, {count} workers, PostgreSQL",
            "pgbench, 32 clients",
            "",
            0.4,
            at_least=True,
        )
        for count in (1, 2, 4)
    ),
    *(
        Target(
            f"`{POST}` with a feed on PostgreSQL, {count} of our processes",
            "workers",
            f"serve, {count} workers, PostgreSQL with feed",
            f"serve, {count} workers",
            "",
            0.7,
            at_least=True,
        )
        for count in (1, 2, 4)
    ),
    *(
        Target(
            f"warm calls on PostgreSQL, {count} of our processes",
            "scaling",
            f"PostgreSQL, {count} workers: warm token calls",
            f"pgbench, {count * 4} clients: warm token calls",
            before,
            0.6,
            at_least=True,
        )
        for count, before in ((1, "0.23"), (2, "0.23"), (4, "0.21"))
    ),
    Target("warm call at a million", "growth", "warm call, 1,000,000 grants", "warm call, 1,000 grants", "", 1.2),
    *(
        Target(
            f"{what} of a million, {place}",
            "million",
            f"{place}: {row}, 1,000,000 grants",
            None,
            before,
            most,
            unit=unit,
        )
        for place in ("files", "PostgreSQL")
        for what, row, before, most, unit in (
            ("page 1", "page 1 of the list", "68 s", 50, "ms of CPU"),
            ("next page", "next page of the list", "", 50, "ms of CPU"),
            ("search by subject", "search by subject", "", 50, "ms of CPU"),
            ("longest turn of the loop for a page", "page 1 of the list: the loop's longest turn", "2.8 s", 5, "ms"),
            ("longest turn for the next page", "next page of the list: the loop's longest turn", "", 5, "ms"),
            ("longest turn for a search", "search by subject: the loop's longest turn", "", 5, "ms"),
            ("longest turn for counts by state", "counts by state: the loop's longest turn", "", 5, "ms"),
            ("memory for a page", "page 1 of the list: memory", "1,200 MiB", 20, "MiB"),
            ("memory for the next page", "next page of the list: memory", "", 20, "MiB"),
            ("memory for a search", "search by subject: memory", "", 20, "MiB"),
            ("memory of doctor", "doctor: memory of the process", "3.1 GiB", 300, "MiB"),
            ("memory of export", "store export: memory of the process", "", 300, "MiB"),
            ("memory of reseal", "keys reseal: memory of the process", "", 300, "MiB"),
        )
    ),
)


def assessed(results: Results) -> list[tuple[Target, tuple[float, float, float] | None]]:
    return [(each, each.now(results)) for each in TABLE]
