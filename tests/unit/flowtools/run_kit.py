"""Runs for tests: a world with orders and a log, and adapters that remember the effects."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.entities.rows import Rows
from oauthbroker.flowtools.risk.audit_types import TYPES, FlowCalled, FlowCallRefused, RunDecided, RunStopped
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import ENDED, RUN
from oauthbroker.flowtools.running.ports import Effect, Ports
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.policies import Policy, load_policy
from oauthbroker.flowtools.specification.spec import load_tool
from tests.unit.flowtools.entity_kit import ORDER, database_with, entity_of, sqlite_url
from tests.unit.flowtools.kit import written

STAFF = Actor(id="s1", roles=frozenset({"staff"}))
UUID = "6f9619ff-8b86-4011-b42d-00cf4fc964ff"
OTHER = "6f9619ff-8b86-4011-b42d-00cf4fc96400"
LOG: dict[str, Any] = {"name": "Log", "fields": {"text": {"type": "string", "required": True}}}
BEGIN, COMMIT = ("transaction", {"operation": "begin"}), ("transaction", {"operation": "commit"})
INPUT = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string"}, "n": {"type": "number"}, "amount": {"type": "number"}},
}


class Remembering:
    """An adapter that remembers effects. `answers` are returned, or raised, one for each call; then `ok`."""

    def __init__(self, *answers: Any, takes_keys: bool = False) -> None:
        self.takes_keys, self.answers = takes_keys, list(answers)
        self.sent: list[Effect] = []

    def send(self, effect: Effect) -> Any:
        self.sent.append(effect)
        answer = self.answers.pop(0) if self.answers else {"ok": True}
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Entries:
    """The audit log of runs: in memory, or in a file that other processes write, too. `refuses`: it takes no entry."""

    def __init__(self, file: Path | None = None) -> None:
        self.kept, self.refuses, self._file = list[Any](), False, file

    def __call__(self, entry: Any) -> None:
        if self.refuses:
            raise BrokerError(Code.STORE_UNAVAILABLE, note="the audit log cannot be written")
        if self._file is None:
            self.kept.append(entry)
            return
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([type(entry).__name__, vars(entry)]) + "\n")

    def __iter__(self) -> Iterator[Any]:
        types = {each.__name__: each for each in TYPES}
        text = self._file.read_text("utf-8") if self._file is not None and self._file.exists() else ""
        yield from (types[name](**members) for name, members in map(json.loads, text.splitlines()))
        yield from self.kept

    def of(self, *types: type) -> list[Any]:
        return [each for each in self if isinstance(each, types)]

    def ends(self, run: str) -> list[str]:
        """Return the ends of a run."""
        return [each.state for each in self.of(RunStopped) if each.run == run and each.state in ENDED]


class World:
    """A database with orders and a log, and runs on it."""

    def __init__(self, url: str, *documents: dict[str, Any], **more: Any) -> None:
        documents = documents or (ORDER, LOG)
        self.database = database_with(url, *documents)
        self.entities = {each["name"]: entity_of(each) for each in documents}
        self.mail, self.sms, self.shop = Remembering(), Remembering(), Remembering(takes_keys=True)
        self.waits: list[float] = []
        self.policies: list[Policy] = more.pop("policies", [])
        given: dict[str, Any] = {
            "ports": Ports(email=self.mail, sms=self.sms, payments={"stripe": self.shop}),
            "sleep": self.waits.append,
            "audit": Entries(),
            **more,
        }
        self.entries: Entries = given["audit"]
        self.runs = FlowRuns(self.database, self.entities.values(), **given)

    def ready(self, document: dict[str, Any]) -> ReadyFlow:
        return self.runs.ready(load_tool(json.dumps(document).encode(), "tool.json"), self.policies)

    def flow(self, nodes: dict[str, Any], edges: list[tuple[str, ...]], **more: Any) -> ReadyFlow:
        start = more.pop("start", next(iter(nodes)))
        return self.ready(written(nodes, edges, start, **{"input": INPUT, "idempotencyKey": None, **more}))

    def add(self, name: str, row_id: str, **fields: Any) -> None:
        with self.database.transaction() as connection:
            Rows(connection, self.entities, STAFF).create(name, fields, row_id)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return all rows: a read without a limit of its own returns the first thousand by id."""
        with self.database.transaction() as connection:
            rows = Rows(connection, self.entities, Actor(id="a", roles=frozenset({"staff"})))
            return rows.read(name, {}, sys.maxsize)

    def texts(self) -> list[str]:
        return sorted(row["text"] for row in self.rows("Log"))

    def unended(self) -> list[str]:
        """Return the ids of the runs that have not ended."""
        with self.database.transaction() as connection:
            return [each.id for each in connection.execute(RUN.select().where(RUN.c.due.is_not(None)))]

    def audit(self) -> list[tuple[Any, ...]]:
        """Return how calls, runs and decisions ended: tool, who, outcome, code."""
        callers = {each.run: each.caller or each.actor for each in self.entries.of(FlowCalled)}
        found = list[tuple[Any, ...]]()
        for each in self.entries.of(FlowCallRefused, RunStopped, RunDecided):
            match each:
                case FlowCallRefused():
                    found.append((each.tool, each.caller or each.actor, "refused", each.code))
                case RunStopped():
                    found.append((each.tool, callers.get(each.run), each.state, each.code))
                case RunDecided():
                    found.append((each.tool, f"{each.by} (account {each.actor})", each.decision, None))
        return found


def log(text: str) -> tuple[str, dict[str, Any]]:
    """A node that writes a line."""
    return ("write", {"entity": "Log", "operation": "create", "fields": {"text": f"'{text}'"}})


def policy(**more: Any) -> Policy:
    base = {
        "name": "p",
        "version": 1,
        "description": "d",
        "type": "custom",
        "condition": "amount > 5",
        "action": "block",
    }
    return load_policy(json.dumps({**base, **more}).encode(), "p.json")


def world_in(folder: Path, *documents: dict[str, Any], **more: Any) -> World:
    return World(sqlite_url(folder), *documents, **more)
