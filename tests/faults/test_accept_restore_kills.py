"""`oauthbroker store accept-restore` is killed at every change that it makes: the store stays closed, or is accepted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oauthbroker.cli import run
from oauthbroker.store.migration.raw import RawStore
from oauthbroker.store.posix.migration_marker import MigrationMarker, MigrationState
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing import Canaries
from oauthbroker.wiring.migration import raw_store
from tests.kit import postgres
from tests.kit.broker_process import CHANGING
from tests.kit.cli import BROKER, Desk

ENV, DATABASE = "BROKER_DATABASE_URL", "accepting"
MOST_CHANGES = 100  # far more than the command makes; the sweep ends by itself
ACCEPT = ("store", "accept-restore", "--yes")
KILLED, IN_WORDS = 70, "storeRolledBack"


class Waiting:
    """A store that waits to be accepted, and can be brought back to that state."""

    def __init__(self, desk: Desk, server: postgres.Server | None) -> None:
        self.desk, self._server = desk, server
        self.root, self._copy = desk.folder / "store", desk.folder / "copy"

    def raw(self) -> RawStore:
        return raw_store(f"env:{ENV}" if self._server is not None else str(self.root), os.environ)

    def import_mark(self) -> None:
        mark = MigrationMarker(
            move="archive", state=MigrationState.RESTORED, here="here", there="2026-01-01T00:00:00Z", at="now"
        )
        with closing(self.raw()) as store:
            store.set_mark(mark, expect=None)

    def note_later_age(self) -> None:
        """As if this host had seen later records."""
        with closing(self.raw()) as store:
            store_id = json.loads(store.keyring() or b"")["storeId"]
        note = self.root / "data" / "audit.seen"
        note.write_text(json.dumps({"storeId": store_id, "number": 9, "at": "2026-01-02T00:00:00Z"}))
        note.chmod(0o600)

    def keep(self) -> None:
        """Keep the state to go back to."""
        shutil.copytree(self.root, self._copy)
        if self._server is not None:
            self._server.empty_database(f"{DATABASE}_before", f"template {DATABASE}")

    def go_back(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._copy, self.root)
        if self._server is not None:
            self._server.empty_database(DATABASE, f"template {DATABASE}_before")

    def is_open(self) -> bool:
        done = self.desk.type("grants", "list")
        assert done.code == 0 or (2, IN_WORDS) == (done.code, done.err.partition(":")[0]), done
        return done.code == 0

    def is_audited(self) -> bool:
        return '"RestoreAccepted"' in self.desk.type("audit", "tail", "--json").out


def in_a_process(at: int) -> int:
    """Accept in a process that ends before the change with this number, as by SIGKILL. Return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            _end_at(at)
            os._exit(run([*ACCEPT]))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end_at(at: int) -> None:
    """Count the changes of the disk and the round trips to the database."""
    steps = iter(range(1_000_000))

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if next(steps) == at:
                os._exit(KILLED)
            return real(*given, **named)

        return call

    for name in CHANGING:
        is_static = isinstance(vars(Fs)[name], staticmethod)
        setattr(Fs, name, staticmethod(counted(getattr(Fs, name))) if is_static else counted(getattr(Fs, name)))
    psycopg.Connection.wait = counted(psycopg.Connection.wait)  # type: ignore[method-assign]


@pytest.fixture
def waiting(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    desk, server = Desk(tmp_path, canaries, monkeypatch, capsys), None
    if request.param == "database":
        server = request.getfixturevalue("postgres_server")
        server.empty_database(DATABASE)
        monkeypatch.setenv(ENV, server.url(DATABASE).reveal())
        text, url = BROKER.format(base=desk.base, port=desk.port), f"url: {{valueFrom: {{env: {ENV}}}}}"
        desk.write("broker", text.replace("{root: ../store}", f"{{root: ../store, {url}}}"))
    assert 0 == desk.type("init").code
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    assert 0 == desk.type("grants", "list").code
    yield Waiting(desk, server)
    if server is not None:
        for name in (DATABASE, f"{DATABASE}_before"):
            server.run(f"drop database if exists {name} with (force)")


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("how", [Waiting.import_mark, Waiting.note_later_age], ids=["imported", "set back"])
@pytest.mark.parametrize("waiting", ["files", "database"], indirect=True)
def test_a_restored_store_is_closed_or_accepted_after_a_kill_at_any_change(
    waiting: Waiting, how: Callable[[Waiting], None]
) -> None:
    how(waiting)
    assert not waiting.is_open()
    waiting.keep()
    seen = set()
    for number in range(MOST_CHANGES):
        code = in_a_process(number)
        seen.add((code, accepted := waiting.is_open()))
        assert waiting.is_audited() or not accepted, "the acceptance is in no log"
        if code == 0:
            break
        assert KILLED == code
        assert 0 == waiting.desk.type(*ACCEPT).code
        assert (True, True) == (waiting.is_open(), waiting.is_audited())
        waiting.go_back()
    assert (0, True) in seen
    assert (KILLED, False) in seen
    assert number >= 5, "each change is met"
