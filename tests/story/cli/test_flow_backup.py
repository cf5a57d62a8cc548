"""The database of flows is backed up beside the store, and restored elsewhere: runs go on, and nothing is charged twice."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyrage
import pytest
import sqlalchemy as sa

from oauthbroker.flowtools.cli import data_commands
from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running import approvals, journal
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.ports import Effect, Ports
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.testing import Canaries
from tests.kit import postgres
from tests.kit.cli import Desk, serving
from tests.unit.flowtools.entity_kit import sqlite_url
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, World, log, policy

pytestmark = [pytest.mark.rule("run-backup"), pytest.mark.slow]
STAFF = Actor(id="ada", roles=frozenset({"staff"}))


class Died(BaseException):
    """The process ends here."""


class Bank:
    """A provider that takes keys: one charge for each. It outlives both hosts. `dies`: the caller dies behind it."""

    takes_keys = True

    def __init__(self, book: Path, *, dies: bool = False) -> None:
        self.book, self.dies = book, dies

    @property
    def payments(self) -> dict[str, float]:
        lines = [json.loads(line) for line in self.book.read_text().splitlines()] if self.book.exists() else []
        return dict(reversed(lines))

    def send(self, effect: Effect) -> Any:
        with self.book.open("a") as book:
            book.write(json.dumps([effect.key, effect.fields["amount"]]) + "\n")
        if self.dies:
            os._exit(9)
        return {"paymentId": effect.key}


class Hosts:
    """Two hosts with a database each, and the way to copy the first one into the second."""

    def __init__(self, desk: Desk, server: postgres.Server | None) -> None:
        self.desk, self.server, self.book = desk, server, desk.folder / "book"
        for name in ("one", "two"):
            (desk.folder / name).mkdir()
            if server is not None:
                server.run(f"DROP DATABASE IF EXISTS flows_{name}")
                server.run(f"CREATE DATABASE flows_{name}")

    def url(self, name: str) -> str:
        return sqlite_url(self.desk.folder / name) if self.server is None else self.server.url(f"flows_{name}").reveal()

    def opened(self, name: str, *, dies: bool = False) -> World:
        """A process on the database of a host."""
        large = policy(name="large", action="escalate", condition="amount > 500", message="too large")
        ports = Ports(payments={"bank": Bank(self.book, dies=dies)})
        return World(self.url(name), ports=ports, policies=[large])

    def killed_behind_a_charge(self, key: str, amount: float) -> None:
        """Call in a process that is killed between the charge and its answer. Its lease ends."""
        pid = os.fork()
        if pid == 0:
            call(self.opened("one", dies=True), key, amount)
            os._exit(1)
        assert 9 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        database = Database(self.url("one"))
        with database.transaction() as connection:
            left = sa.update(journal.RUN).where(journal.RUN.c.state == "running")
            connection.execute(left.values(due=database.now(connection)))
        database.engine.dispose()

    def back_up(self) -> None:
        if self.server is None:
            self._typed("backup", "one")
        else:
            self._run("pg_dump", "--format=custom", "--file=copy.dump", "one")

    def restore(self) -> None:
        if self.server is None:
            self._typed("restore", "two")
        else:
            self._run("pg_restore", "--exit-on-error", "copy.dump", "--dbname", "two")

    def _typed(self, command: str, name: str) -> None:
        done = self.desk.type("flow", command, "copy.db", "--database", self.url(name))
        assert 0 == done.code, done

    def _run(self, program: str, *words: str) -> None:
        """Run a program that `flow backup` names for PostgreSQL."""
        assert self.server is not None
        done = self.desk.type("flow", "backup", "copy.db", "--database", self.url("one"))
        assert f"{program} {words[0]}" in done.err, "as the refusal says"
        *given, name = words
        path = self.server.bin / program
        subprocess.run([path, *given, self.url(name)], check=True, cwd=self.desk.folder, timeout=60)


@pytest.fixture(params=["sqlite", "postgresql"])
def hosts(request: pytest.FixtureRequest, desk: Desk) -> Hosts:
    return Hosts(desk, request.getfixturevalue("postgres_server") if request.param == "postgresql" else None)


def shop(world: World) -> ReadyFlow:
    pay = ("payment", {"provider": "bank", "fields": {"amount": "input.n"}})
    nodes = {"t": BEGIN, "l": log("order"), "c": COMMIT, "p": pay}
    return world.flow(nodes, chain(*nodes), idempotencyKey="input.id", policies=["large", "paymentRollback"])


def call(world: World, key: str, amount: float) -> RunResult:
    return world.runs.call(shop(world), {"id": key, "n": amount}, STAFF)


def test_after_a_restore_runs_go_on_and_nothing_is_charged_twice(hosts: Hosts) -> None:
    bank, old = Bank(hosts.book), hosts.opened("one")
    done = call(old, "done", 10)
    asks = call(old, "asks", 900)
    assert ("succeeded", "escalated") == (done.state, asks.state)
    hosts.killed_behind_a_charge("cut", 20)
    hosts.back_up()
    assert "succeeded" == call(old, "cut", 20).state, "the old host went on for a while"
    assert "succeeded" == call(old, "late", 30).state, "the copy knows nothing of this call"
    charged = bank.payments
    old.database.engine.dispose()

    hosts.restore()
    new = hosts.opened("two")
    assert (done.run, done.output) == ((again := call(new, "done", 10)).run, again.output)
    assert ["succeeded", "succeeded"] == [call(new, "cut", 20).state, call(new, "late", 30).state]
    assert charged == bank.payments, "each key is charged once"
    approvals.approve(new.database, str(asks.run), by="Bo", account="bo", audit=new.entries)
    assert "succeeded" == call(new, "asks", 900).state
    assert [10, 20, 30, 900] == sorted(bank.payments.values())
    assert ["order"] * 4 == new.texts()
    new.database.engine.dispose()


def test_a_copy_is_of_one_moment_while_others_write_and_only_its_owner_reads_it(desk: Desk) -> None:
    world = Hosts(desk, None).opened("one")
    flow = world.flow({"t": BEGIN, "a": log("a"), "b": log("b"), "c": COMMIT}, chain("t", "a", "b", "c"))
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            world.runs.call(flow, {"id": "x"}, STAFF)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(10):
            assert 0 == desk.type("flow", "backup", f"{number}.db", "--database", sqlite_url(desk.folder / "one")).code
    finally:
        over.set()
        writer.join()
    world.database.engine.dispose()
    for number in range(10):
        with closing(sqlite3.connect(f"{number}.db")) as copy:
            rows = copy.execute("SELECT text, count(*) FROM entity_log GROUP BY text").fetchall()
            steps = copy.execute("SELECT node, count(*) FROM flow_step WHERE node IN ('a', 'b') GROUP BY node")
            assert rows == steps.fetchall(), "the rows of each run, and its steps"
        assert 0o600 == stat.S_IMODE(Path(f"{number}.db").stat().st_mode)


def test_no_file_is_overwritten_and_a_copy_that_was_cut_off_leaves_none(desk: Desk, monkeypatch: Any) -> None:
    Hosts(desk, None).opened("one").database.engine.dispose()
    url = sqlite_url(desk.folder / "one")
    assert 0 == desk.type("flow", "backup", "copy.db", "--database", url).code
    (desk.folder / "other.db-wal").write_bytes(b"of another database")
    (desk.folder / "text.db").write_text("no database")
    for words, said in (
        (("backup", "copy.db", "--database", url), "copy.db exists"),
        (("restore", "copy.db", "--database", url), "flows.db exists"),
        (("restore", "copy.db", "--database", "sqlite:///other.db"), "other.db-wal exists"),
        (("restore", "text.db", "--database", "sqlite:///new.db"), "no readable database of flows"),
        (("backup", "new.db", "--database", "sqlite:///none.db"), "no readable database of flows"),
        (("backup", "no/such/folder.db", "--database", url), "No such file or directory"),
    ):
        done = desk.type("flow", *words)
        assert (2, True, 1) == (done.code, said in done.err, len(done.err.splitlines())), done
    assert not Path("new.db").exists()
    with monkeypatch.context() as patch:
        patch.setattr(data_commands, "_sync", lambda _: (_ for _ in ()).throw(Died()))
        with pytest.raises(Died):
            data_commands.copy_sqlite(desk.folder / "one" / "flows.db", desk.folder / "cut.db")
    (desk.folder / ".cut.db.tmp").write_bytes(b"of a copy that was killed")
    assert 0 == desk.type("flow", "backup", "cut.db", "--database", url).code
    assert [] == list(desk.folder.glob(".*.tmp"))


def test_a_database_in_postgresql_is_refused_with_the_commands_that_copy_it(desk: Desk) -> None:
    for command in ("backup", "restore"):
        done = desk.type("flow", command, "copy.db", "--database", "postgresql://user:secret@host/flows")
        assert (2, True, False) == (done.code, "pg_dump" in done.err and "pg_restore" in done.err, "secret" in done.err)


@contextmanager
def at(desk: Desk, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """The same desk in another folder."""
    moved = Desk.__new__(Desk)
    vars(moved).update(vars(desk), folder=folder)
    with patch.context() as context:
        context.chdir(folder)
        yield moved


def posted(port: int, tool: str, key: str, body: dict[str, Any]) -> tuple[int, Any, str | None]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as line:
        line.request("POST", f"/v1/flowtools/tools/{tool}", json.dumps(body), headers)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers["flow-run"]


def test_store_and_database_are_restored_together_in_another_folder_and_served(
    desk: Desk, canaries: Canaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key goes its own way, as docs/how-to/backup-and-restore.md says."""
    identity = pyrage.x25519.Identity.generate()
    (desk.folder / "identity.txt").write_text(f"{identity}\n")
    (desk.folder / "identity.txt").chmod(0o600)
    canaries.excuse(desk.folder / "identity.txt")
    for name in ("one", "two"):
        assert 0 == desk.type("flow", "new", name).code
        broker = desk.folder / name / "config" / "broker.yaml"
        broker.write_text(broker.read_text().replace("spec:\n", f"spec:\n  listen: {{port: {desk.port}}}\n", 1))
        canaries.excuse(desk.folder / name / "keys" / "broker.kek")
    small, large = {"number": "A-1", "total": 40}, {"number": "A-2", "total": 900}
    with at(desk, desk.folder / "one", monkeypatch) as here:
        assert 0 == here.type("init").code
        key = here.type("api-keys", "create", "shop", "--role", "runtime").out.splitlines()[0]
        for tool in ("createOrder", "payOrder"):
            done = here.type("flow", "deploy", f"tools/{tool}.json", "--config", "config", "--policy", "policies")
            assert 0 == done.code, done
        with serving(here):
            assert {200} == {posted(desk.port, "createOrder", key, order)[0] for order in (small, large)}
            paid = posted(desk.port, "payOrder", key, {"number": "A-1"})
            asks = posted(desk.port, "payOrder", key, {"number": "A-2"})
            assert (200, 202, "escalated") == (paid[0], asks[0], asks[1]["state"])
            exported = here.type("store", "export", "../store.age", "--recipient", str(identity.to_public()), "--json")
            assert (0, True) == (exported.code, "oauthbroker flow backup" in json.loads(exported.out)["apart"][0])
            assert 0 == here.type("flow", "backup", "../flows.db", "--config", "config").code
    shutil.copytree(desk.folder / "one" / "keys", desk.folder / "two" / "keys")
    shutil.move(desk.folder / "one", desk.folder / "lost")
    with at(desk, desk.folder / "two", monkeypatch) as there:
        assert 0 == there.type("store", "import", "../store.age", "--identity", "../identity.txt").code
        assert 0 == there.type("store", "accept-restore", "--yes").code
        assert 0 == there.type("flow", "restore", "../flows.db", "--config", "config").code
        with serving(there):
            assert paid == posted(desk.port, "payOrder", key, {"number": "A-1"})
            assert asks == posted(desk.port, "payOrder", key, {"number": "A-2"})
            database = f"sqlite:///{desk.folder / 'two' / 'store-flows.db'}"
            approved = there.type("flow", "approve", str(asks[2]), "--by", "Bo", "--database", database)
            assert 0 == approved.code, approved
            ended = posted(desk.port, "payOrder", key, {"number": "A-2"})
            assert (200, asks[2]) == (ended[0], ended[2])
