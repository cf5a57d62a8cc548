"""PostgreSQL crashes at every round trip of a change of keys: the store opens afterwards, reads all, and finishes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.keyring import SeedState
from oauthbroker.store.keys.rotation import LEASE_KIND, KeyRotation
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.schema import KeyringTable
from tests.kit import postgres

DATABASE = "rotating"
MOST_TRIPS = 400  # far more than the change makes; the sweep ends by itself
RECOVERY_SECONDS = 60
PARTS = 24  # of the sweep: each takes every so manyth round trip
BODIES = {("grants", "a"): b"one", ("grants", "b"): b"two", ("sessions", "c"): b"three"}


class Crashing:
    """Kills the server process of a connection at the `at`-th round trip: PostgreSQL ends all others and recovers."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.at, self.trips, self.after, self.fired = -1, 0, False, False
        sync, other = psycopg.Connection.wait, psycopg.AsyncConnection.wait

        def wait(connection: Any, *given: Any, **named: Any) -> Any:
            due = self._is_due(connection, after=False)
            result = sync(connection, *given, **named)
            self._kill(connection, due)
            return result

        async def wait_async(connection: Any, *given: Any, **named: Any) -> Any:
            due = self._is_due(connection, after=False)
            result = await other(connection, *given, **named)
            self._kill(connection, due)
            return result

        patch.setattr(psycopg.Connection, "wait", wait)
        patch.setattr(psycopg.AsyncConnection, "wait", wait_async)

    def arm(self, at: int, *, after: bool) -> None:
        self.at, self.trips, self.after, self.fired = at, 0, after, False

    def disarm(self) -> None:
        self.at = -1

    def _is_due(self, connection: Any, *, after: bool) -> bool:
        """Count a round trip. Kill before it if that is due; return whether to kill after it."""
        due, self.trips = self.trips == self.at, self.trips + 1
        self._kill(connection, due and not self.after)
        return due and self.after

    def _kill(self, connection: Any, due: bool) -> None:
        if due:
            self.fired = True
            os.kill(connection.pgconn.backend_pid, signal.SIGKILL)


class Place:
    """A database with a few records, and two keys that open it."""

    def __init__(self, server: postgres.Server, folder: Path) -> None:
        self.server, self.url = server, server.new_database(DATABASE)
        self.keks = FileKek.create(folder / "old.kek"), FileKek.create(folder / "new.kek")

    async def fill(self) -> None:
        self.server.empty(DATABASE)
        KeyringTable(self.url, self.keks[0]).create()
        rotation = self.opened(self.keks[:1])
        for (kind, name), body in BODIES.items():
            await rotation.store.put(rotation.store.key(kind, name), body, expect=0)
        await rotation.store.close()

    def opened(self, keks: tuple[FileKek, ...] | None = None) -> KeyRotation:
        home = KeyringTable(self.url, *(keks or self.keks))
        ring = home.load()
        store = PostgresStore(
            ConnectionPool(self.url), ring, kinds=KINDS, lease_kinds=(*LEASES, LEASE_KIND), lease_seconds=3.0
        )
        return KeyRotation(store, home, SystemClock())

    def recovered(self, witness: psycopg.Connection) -> None:
        """Wait until the server has ended this connection and answers again, and end what the dead process held: a
        minute has passed for it. A server process answers for a moment after another one was killed."""
        until = time.monotonic() + RECOVERY_SECONDS
        with suppress(psycopg.OperationalError):
            while True:
                witness.execute("select 1")
                assert time.monotonic() < until
                time.sleep(0.02)
        while True:
            try:
                self.server.run("truncate oauthbroker.lease, oauthbroker.process", DATABASE)
                return
            except psycopg.OperationalError:
                assert time.monotonic() < until
                time.sleep(0.02)


async def change_everything(rotation: KeyRotation) -> None:
    try:
        assert await rotation.rotate(wait=10)
        entry = await rotation.store.get(rotation.store.key("grants", "b"))
        assert entry is not None
        await rotation.store.put(entry.key, b"two", expect=entry.generation)
        assert (await rotation.reseal()).done
        await rotation.rewrap()
        assert 0 == await rotation.retire()
    finally:
        await rotation.store.close()


async def contents(rotation: KeyRotation) -> dict[tuple[str, str], bytes]:
    found = {}
    for kind, name in BODIES:
        entry = await rotation.store.get(rotation.store.key(kind, name))
        assert entry is not None
        found[kind, name] = entry.body
    return found


async def finish(place: Place) -> None:
    """Open what a crash left, read it all, and bring the change to its end."""
    rotation = place.opened()
    assert BODIES == await contents(rotation)
    assert (await rotation.reseal()).done
    assert 0 == await rotation.retire()
    assert BODIES == await contents(rotation)
    assert () == rotation.ring.old_seeds
    await change_everything(rotation)
    last = place.opened()
    assert BODIES == await contents(last)
    assert SeedState.ACTIVE is last.ring.seeds[-1].state
    await last.store.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """On a server of its own, which crashes."""
    with postgres.server() as server:
        yield Place(server, tmp_path)


@pytest.mark.case("70")
@pytest.mark.slow
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "sweep",
    [(part, after) for part in range(PARTS) for after in (False, True)],
    ids=lambda sweep: f"{sweep[0]}-{'after' if sweep[1] else 'before'}",
)
async def test_a_change_of_keys_whose_database_crashes_at_any_round_trip_loses_no_record(
    place: Place, monkeypatch: pytest.MonkeyPatch, sweep: tuple[int, bool]
) -> None:
    part, after = sweep
    crashing = Crashing(monkeypatch)
    fired = 0
    for number in range(part, MOST_TRIPS, PARTS):
        await place.fill()
        rotation = place.opened()
        with psycopg.connect(place.url.reveal(), autocommit=True) as witness:
            crashing.arm(number, after=after)
            try:
                await change_everything(rotation)
            except BrokerError as error:
                assert Code.STORE_UNAVAILABLE is error.code  # noqa: PT017
            crashing.disarm()
            if not crashing.fired:
                break
            place.recovered(witness)
        fired += 1
        await finish(place)
    assert not crashing.fired
    assert fired > 1
