"""A private PostgreSQL server for tests: its own folder and socket, no TCP port, ended with the block."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.keys.keyring import FileKek
from oauthbroker.store.keys.rotation import LEASE_KIND
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.contact import LEASE_SECONDS
from oauthbroker.store.postgres.feed import Feed
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.schema import KeyringTable, migrate
from tests.kit.installed import memory

LACKS = "PostgreSQL 13 or newer, and PgBouncer (packages postgresql and pgbouncer)"
TABLES = ("keyring", "entry", "tag", "lease", "queued", "feature", "set_aside", "process")
_ACCOUNT = "postgres"
_PATIENCE = 60.0  # seconds for a standby to catch up
_RELOAD = 0.5  # seconds until all sessions have read a changed setting


def binaries() -> Path | None:
    """The folder of the newest server, which distributions keep off the PATH; None if it or the pooler is missing."""
    if _pgbouncer() is None:
        return None
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _pgbouncer() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@dataclass(frozen=True)
class Server:
    """A running server."""

    folder: Path
    bin: Path

    def url(self, database: str = "postgres") -> Secret:
        return Secret(f"postgresql://{_ACCOUNT}@/{database}?host={self.folder}")

    def run(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database).reveal(), autocommit=True) as connection:
            connection.execute(statement)

    def empty_database(self, name: str, more: str = "") -> Secret:
        """Make a database in place of one of that name that another test left: all tests of a worker share the server.
        `more` are words of the statement."""
        self.run(f'drop database if exists "{name}" with (force)')
        self.run(f'create database "{name}" {more}')
        return self.url(name)

    def new_database(self, name: str) -> Secret:
        """Make a database that has the tables of a store."""
        migrate(self.empty_database(name))
        return self.url(name)

    def empty(self, database: str) -> None:
        """Remove all that a store has written, its keyring too."""
        self.run(f"truncate {', '.join(f'oauthbroker.{table}' for table in TABLES)}", database)

    @contextmanager
    def standby(self) -> Iterator[Server]:
        """Run a copy that follows this server and only answers reads."""
        with tempfile.TemporaryDirectory(prefix="pg", dir=memory()) as name:
            folder = Path(name)
            if os.geteuid() == 0:
                shutil.chown(folder, _ACCOUNT)
            copy: list[str | Path] = [self.bin / "pg_basebackup", "-R", "-c", "fast", "-h", self.folder]
            subprocess.run([*copy, "-U", _ACCOUNT, "-D", folder / "data"], check=True, timeout=120, **_account())
            standby = Server(folder, self.bin)
            standby.start("fsync=off")
            try:
                yield standby
            finally:
                standby.stop("immediate")

    @contextmanager
    def small_disk(self) -> Iterator[Path]:
        """Mount a file system of 4 MiB that the server may write to. Needs root."""
        folder = self.folder / "small"
        folder.mkdir()
        options = f"size=4m,mode=0700,uid={pwd.getpwnam(_ACCOUNT).pw_uid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True, timeout=60)
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True, timeout=60)

    @property
    def runs(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    def stop(self, how: str = "fast") -> None:
        self._control("stop", "-m", how)

    def promote(self) -> None:
        self._control("promote")

    def start(self, *settings: str) -> None:
        words = [f"-c {each}" for each in ("listen_addresses=''", f"unix_socket_directories={self.folder}", *settings)]
        self._control("start", "-l", str(self.folder / "log"), "-o", " ".join(words))

    def _control(self, verb: str, *words: str) -> None:
        command = [str(self.bin / "pg_ctl"), verb, "-w", "-D", str(self.folder / "data"), *words]
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL, **_account())


@contextmanager
def server(*settings: str, on_disk: bool = False) -> Iterator[Server]:
    """Run a server. Without `settings` it does not sync its disk: nothing here is to survive the machine. A measurement
    that counts syncs needs it `on_disk`, not in memory."""
    found = binaries()
    assert found is not None, LACKS
    with tempfile.TemporaryDirectory(prefix="pg", dir=None if on_disk else memory()) as name:
        running = _initialised(Path(name), found)
        running.start(*(settings or ("fsync=off", "full_page_writes=off")))
        try:
            yield running
        finally:
            running.stop("immediate")


def _initialised(folder: Path, found: Path) -> Server:
    if os.geteuid() == 0:
        shutil.chown(folder, _ACCOUNT)
    words: list[str | Path] = [
        found / "initdb",
        "-D",
        folder / "data",
        "-U",
        _ACCOUNT,
        *["-A", "trust", "-E", "UTF8", "--no-sync"],
    ]
    subprocess.run(words, check=True, timeout=120, stdout=subprocess.DEVNULL, **_account())
    return Server(folder, found)


class Replicated:
    """A primary and its synchronous standby, at two ports of one address. Root makes them, for an account without
    rights."""

    def __init__(self, primary: Server, standby: Server, *, address: str, ports: tuple[int, int]) -> None:
        self._primary, self._standby, self._address = primary, standby, address
        self._ports = dict(zip((primary, standby), ports, strict=True))

    def url(self, database: str) -> Secret:
        """Return the URL of the primary, also after a failover."""
        places = ",".join(f"{self._address}:{port}" for port in self._ports.values())
        return Secret(f"postgresql://{_ACCOUNT}@{places}/{database}?target_session_attrs=read-write")

    def run(self, *statements: str) -> None:
        """Run statements on the primary."""
        url = f"postgresql://{_ACCOUNT}@{self._address}:{self._ports[self._primary]}/postgres"
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def start(self) -> None:
        """Start the primary, and a new standby of it."""
        self._start(self._primary)
        self._replicate()

    def restart(self) -> None:
        """End the primary as a crash does, and start it again."""
        self._primary.stop("immediate")
        self._start(self._primary)

    def fall_behind(self) -> None:
        """Go on without the standby, which is stopped: it gets no transaction from now on."""
        self.run("alter system set synchronous_standby_names = ''", "select pg_reload_conf()")
        time.sleep(_RELOAD)
        self._standby.stop("fast")

    def end(self) -> None:
        """End the primary as a crash does."""
        self._primary.stop("immediate")

    def take_over(self) -> None:
        """Start the standby that has fallen behind, in the place of the primary that has ended."""
        self._primary, self._standby = self._standby, self._primary
        self._start(self._primary)
        self._primary.promote()

    def fail_over(self) -> None:
        """End the primary as a crash does, then let the standby take over. The old one becomes a new standby."""
        self.end()
        self._primary, self._standby = self._standby, self._primary
        self._primary.promote()
        self.run("alter system set synchronous_standby_names = ''", "select pg_reload_conf()")
        self._replicate()

    def stop(self) -> None:
        for each in (self._standby, self._primary):
            if each.runs:
                each.stop("immediate")

    def _start(self, server: Server) -> None:
        port = self._ports[server]
        server.start(f"listen_addresses={self._address}", f"port={port}", "fsync=off", "max_connections=200")

    def _replicate(self) -> None:
        data = self._standby.folder / "data"
        if data.exists():
            shutil.rmtree(data)
        place = ["-h", self._address, "-p", str(self._ports[self._primary]), "-U", _ACCOUNT]
        words: list[str | Path] = [
            self._standby.bin / "pg_basebackup",
            "-D",
            data,
            "-R",
            "-c",
            "fast",
            "--no-sync",
            *place,
        ]
        subprocess.run(words, check=True, timeout=120, stdout=subprocess.DEVNULL, **_account())
        self._start(self._standby)
        self.run("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
        self._catch_up()

    def _catch_up(self) -> None:
        """Wait until the standby has all that the primary has acknowledged without it: the next failover would lose it."""
        url = f"postgresql://{_ACCOUNT}@{self._address}:{self._ports[self._primary]}/postgres"
        caught_up = (
            "select bool_or(sync_state = 'sync' and state = 'streaming' and flush_lsn >= %s::pg_lsn) "
            "from pg_stat_replication"
        )
        until = time.monotonic() + _PATIENCE
        with psycopg.connect(url, autocommit=True) as connection:
            while connection.execute("select sync_state from pg_stat_replication").fetchall() != [("sync",)]:
                _check_patience(until)
            written = connection.execute("select pg_current_wal_insert_lsn()").fetchone()
            while connection.execute(caught_up, written).fetchone() != (True,):
                _check_patience(until)


def _check_patience(until: float) -> None:
    if time.monotonic() > until:
        raise TimeoutError("the standby does not catch up")
    time.sleep(0.02)


@contextmanager
def replicated(address: str, ports: tuple[int, int], trusted: str) -> Iterator[Replicated]:
    """Run a primary and a synchronous standby. `trusted` are lines of `pg_hba.conf`."""
    found = binaries()
    assert found is not None, LACKS
    with tempfile.TemporaryDirectory(prefix="pg", dir=memory()) as name:
        shutil.chown(name, _ACCOUNT)
        folders = Path(name) / "one", Path(name) / "two"
        for folder in folders:
            folder.mkdir()
            shutil.chown(folder, _ACCOUNT)
        primary = _initialised(folders[0], found)
        with (primary.folder / "data" / "pg_hba.conf").open("a") as rights:
            rights.write(trusted)
        both = Replicated(primary, Server(folders[1], found), address=address, ports=ports)
        both.start()
        try:
            yield both
        finally:
            both.stop()


def keyring_table(url: Secret, folder: Path) -> KeyringTable:
    """Return the keyring of a store in a database, for all keys in a folder."""
    return KeyringTable(url, *(FileKek.open(path) for path in sorted(folder.glob("*.kek"))))


def open_postgres_store(
    url: Secret,
    folder: Path,
    *,
    lease_seconds: float = LEASE_SECONDS,
    feed: Feed | None = None,
    degraded_seconds: float = 0.0,
    kind: type[PostgresStore] = PostgresStore,
) -> PostgresStore:
    """Open the store of a database, sealed under the keys of `folder`; key and keyring are created the first time."""
    if not any(folder.glob("*.kek")):
        FileKek.create(folder / "test.kek")
    home = keyring_table(url, folder)
    with suppress(BrokerError):  # another host was first
        home.create()
    ring = home.load()
    return kind(
        ConnectionPool(url),
        ring,
        kinds=KINDS,
        lease_kinds=(*LEASES, LEASE_KIND),
        lease_seconds=lease_seconds,
        feed=feed,
        degraded_seconds=degraded_seconds,
    )


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    return {"user": _ACCOUNT, "group": _ACCOUNT, "extra_groups": [], "cwd": "/"} if os.geteuid() == 0 else {}


@contextmanager
def pooler(server: Server, database: str) -> Iterator[Secret]:
    """Run PgBouncer in transaction mode with two connections to the server. Yields the URL of the database."""
    program = _pgbouncer()
    assert program is not None, LACKS
    folder = server.folder / "pooler"
    folder.mkdir()
    (folder / "users").write_text(f'"{_ACCOUNT}" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={server.folder}\n[pgbouncer]\nunix_socket_dir = {folder}\nlisten_addr =\n"
        f"pool_mode = transaction\ndefault_pool_size = 2\nauth_type = trust\nauth_file = {folder}/users\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    if os.geteuid() == 0:
        shutil.chown(folder, _ACCOUNT)
    process = subprocess.Popen([program, "-q", str(folder / "ini")], stderr=subprocess.DEVNULL, **_account())
    try:
        for _ in range(500):
            if (folder / ".s.PGSQL.6432").exists():
                break
            time.sleep(0.02)
        yield Secret(f"postgresql://{_ACCOUNT}@/{database}?host={folder}&port=6432")
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)
