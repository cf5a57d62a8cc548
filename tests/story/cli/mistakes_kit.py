"""How the table of mistakes is written: where a mistake is made, and the rows that only type, write or set a URL."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from oauthbroker.testing.authority import Authority
from tests.kit import postgres
from tests.kit.cli import APP, BROKER, Desk, Done, free_port
from tests.kit.served_api import Service
from tests.kit.shared_server import SharedServer

PASSWORD, DATABASE = "hunter2-of-the-database", "OAUTHBROKER_DATABASE_URL"
TURN_TOKEN = "oabt." + "l" * 22 + "." + "s" * 43
ISSUER = "https://idp.example"


class Stage(NamedTuple):
    """Where a mistake is made."""

    desk: Desk
    patch: pytest.MonkeyPatch
    request: pytest.FixtureRequest

    def app(self, *changes: tuple[str, str], name: str = "mail") -> None:
        text = APP.format(issuer=ISSUER)
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        self.desk.write(name, text)

    def broker(self, *changes: tuple[str, str], more: str = "") -> None:
        text = BROKER.format(base=self.desk.base, port=self.desk.port)
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        self.desk.write("broker", text + more)

    def ready(self) -> None:
        self.app()
        assert 0 == self.desk.type("init").code

    def database(self, url: str) -> None:
        self.app()
        self.broker(("store: {root: ../store}", f"store: {{root: ../store, url: {{valueFrom: {{env: {DATABASE}}}}}}}"))
        self.patch.setenv(DATABASE, url)

    def tool(self, url: str, token: str = TURN_TOKEN) -> None:
        self.patch.setenv("OAUTHBROKER_URL", url)
        self.patch.setenv("OAUTHBROKER_TURN_TOKEN", token)

    @property
    def server(self) -> SharedServer:
        found: SharedServer = self.request.getfixturevalue("server")
        return found

    @property
    def service(self) -> Service:
        found: Service = self.request.getfixturevalue("service")
        return found

    @property
    def postgres(self) -> postgres.Server:
        found: postgres.Server = self.request.getfixturevalue("postgres_server")
        return found


Make = Callable[[Stage], Done]
ROWS: dict[str, tuple[Make, tuple[str, ...]]] = {}


def row(name: str, *says: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        assert name not in ROWS
        ROWS[name] = make, says
        return make

    return add


@contextmanager
def tls_database(folder: Path, rule: str) -> Iterator[str]:
    """Run a PostgreSQL that lets in who comes over TLS and fits the rule. Give its URL, without a user."""
    authority, port = Authority(folder), free_port()
    authority.issue()
    with postgres.server("fsync=off", "listen_addresses=127.0.0.1", f"port={port}") as running:
        own = running.folder / "data" / "server.pem"
        shutil.copy(next(folder.glob("server-*.pem")), own)
        shutil.copy(authority.file, own.with_name("authority.pem"))
        for file in (own, own.with_name("authority.pem")):
            file.chmod(0o600)
            shutil.chown(file, own.parent.owner())
        files = {"ssl_cert_file": own, "ssl_key_file": own, "ssl_ca_file": own.with_name("authority.pem"), "ssl": "on"}
        own.with_name("pg_hba.conf").write_text(f"local all all trust\nhostssl all all all {rule}\n")
        running.stop()
        running.start(
            "fsync=off", "listen_addresses=127.0.0.1", f"port={port}", *(f"{k}={v}" for k, v in files.items())
        )
        yield f"127.0.0.1:{port}/postgres"


def typed(name: str, words: str, *says: str, stdin: str = "") -> None:
    """A command on a store that is in order."""

    def make(at: Stage) -> Done:
        at.ready()
        return at.desk.type(*words.split(), stdin=stdin)

    row(name, *says)(make)


def written(name: str, before: str, after: str, *says: str) -> None:
    """An app with this mistake."""

    def make(at: Stage) -> Done:
        at.app((before, after.replace("{{", "{").replace("}}", "}")))
        return at.desk.type("check")

    row(name, *says)(make)


def settings(name: str, before: str, after: str, *says: str, words: str = "check", more: str = "") -> None:
    """A Broker with this mistake."""

    def make(at: Stage) -> Done:
        values = {"port": at.desk.port, "base": at.desk.base}
        at.broker((before.format(**values), after.format(**values)), more=more.format(**values))
        return at.desk.type(*words.split())

    row(name, *says)(make)


def database(name: str, url: str, *says: str) -> None:
    """A database's URL with this mistake. `{port}` is one where nothing listens."""

    def make(at: Stage) -> Done:
        at.database(url.format(port=free_port(), password=PASSWORD))
        return at.desk.type("init")

    row(name, *says)(make)
