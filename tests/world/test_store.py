"""The database of a world keeps the contract of stores: the real PostgreSQL keeps the same one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.seal import SealPlace, seal
from oauthbroker.store.keys.rotation import LEASE_KIND
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.postgres_store import PostgresStore
from tests.contract.store_contract import Open, StoreContract
from tests.world.database import Database
from tests.world.driver import driving
from tests.world.keys import KeyringRow
from tests.world.tables import PLAYERS, Tables, UnknownStatementError, play, plays
from tests.world.world import unseal_once


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database(Tables(time.time), Random(1))
    with driving(database):
        yield database


class TestWorldDatabase(StoreContract):
    @pytest.fixture
    def open_store(self, database: Database) -> Open:
        home, hosts = KeyringRow(database, "host"), count()
        with suppress(BrokerError):
            home.create()
        return lambda: PostgresStore(
            ConnectionPool(Secret(f"world://host{next(hosts)}")),
            home.load(),
            kinds=KINDS,
            lease_kinds=(*LEASES, LEASE_KIND),
        )


def test_a_record_is_opened_once_with_its_seed_at_its_place_and_nowhere_else() -> None:
    opened, seeds, place = unseal_once(), {b"k" * 16: b"s" * 32}, SealPlace("a store", "grants", "a" * 64)
    record = seal(b"k" * 16, b"s" * 32, place, 1, b"a body")
    assert (1, b"a body") == opened(seeds, place, record)
    assert opened(seeds, place, record) is opened(seeds, place, record)
    others = (
        (seeds, place._replace(name="b" * 64)),
        (seeds, place._replace(kind="sessions")),
        ({b"k" * 16: b"t" * 32}, place),
    )
    for given in others:
        with pytest.raises(BrokerError):
            opened(*given, record)
    with pytest.raises(BrokerError):
        opened(seeds, place, record[:-1] + bytes([record[-1] ^ 1]))


def test_a_statement_that_no_player_knows_is_refused() -> None:
    with pytest.raises(UnknownStatementError):
        play(Tables(time.time), "select 1", {})


def test_a_player_is_refused_beside_a_text_that_it_was_not_written_for() -> None:
    statement = next(iter(PLAYERS))
    with pytest.raises(UnknownStatementError, match="another one"):
        plays(statement + " limit 1", "00000000")
