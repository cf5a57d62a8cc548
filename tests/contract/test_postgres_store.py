"""PostgreSQL keeps the contract of stores."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from random import Random

import psycopg
import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.store.port import Key, Store
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.feed import Feed
from tests.contract.store_contract import Open, StoreContract, bodies, hold_briefly, outcome
from tests.contract.store_processes import ProcessContract
from tests.kit import postgres

_SESSIONS = """
select count(*) from pg_stat_activity where datname = current_database() and application_name = 'oauthbroker'
"""


@pytest.fixture(scope="module")
def database(postgres_server: postgres.Server) -> str:
    postgres_server.new_database("contract")
    return "contract"


@pytest.fixture
def url(postgres_server: postgres.Server, database: str) -> Secret:
    postgres_server.empty(database)
    return postgres_server.url(database)


class TestPostgres(ProcessContract, StoreContract):
    @pytest.fixture
    def open_store(self, url: Secret, tmp_path: Path) -> Open:
        return lambda: postgres.open_postgres_store(url, tmp_path)

    @pytest.fixture
    def place(self, url: Secret, tmp_path: Path) -> list[str]:
        return [str(tmp_path), url.reveal()]

    async def test_a_host_that_was_frozen_knows_that_its_lease_is_lost_and_its_commit_still_wins(
        self, url: Secret, tmp_path: Path, opened: list[Store]
    ) -> None:
        """The lease decides only who may send: the frozen host may have the only copy of a rotated token."""
        frozen = postgres.open_postgres_store(url, tmp_path, lease_seconds=0.3)
        opened.append(frozen)
        key, pair = frozen.key("grants", "a"), frozen.key("pair", "a")
        taken, go_on = threading.Event(), threading.Event()

        async def next_host() -> None:
            store = postgres.open_postgres_store(url, tmp_path, lease_seconds=0.3)
            async with store.lease(pair, wait=20) as other:
                assert await other.holds()
                taken.set()
                await asyncio.to_thread(go_on.wait, 20)
            await store.close()

        await frozen.put(key, b"intent of the frozen host", expect=0)
        async with frozen.lease(pair, wait=0) as held:
            assert (False, True) == (held.lost, await held.holds())
            running = asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(next_host()))
            assert taken.wait(20)  # as SIGSTOP: nothing of this process runs meanwhile
            assert (True, False) == (held.lost, await held.holds())
            await frozen.put(key, b"rotated", expect=1)
            go_on.set()
            await running
        assert "won" == await outcome(hold_briefly(frozen, pair))

    async def test_a_feed_that_is_closed_while_it_connects_leaves_no_session(self, url: Secret) -> None:
        """Else a cut-over says that a broker still uses the database."""
        gc.disable()
        try:
            for moments in range(40):
                feed = Feed(url)
                feed.begin()
                await asyncio.sleep(moments / 4000)
                await feed.close()
            with psycopg.connect(url.reveal(), autocommit=True) as connection:
                for _ in range(600):
                    row = connection.execute(_SESSIONS).fetchone()
                    if row == (0,):
                        break
                    await asyncio.sleep(0.1)
            assert (0,) == row
        finally:
            gc.enable()

    async def test_a_caller_that_is_cancelled_while_it_waits_for_a_connection_ends(self, url: Secret) -> None:
        """Else a task of the background goes on, and the broker never closes."""
        pool, dice = ConnectionPool(url), Random(1)
        for _ in range(60):
            tasks = [asyncio.create_task(pool.read("select pg_sleep(0.001)")) for _ in range(20)]
            await asyncio.sleep(dice.uniform(0, 0.004))
            cancelled = [task for task in tasks if task.cancel()]
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in cancelled)
        await pool.close()

    async def test_a_lease_that_is_held_longer_than_its_time_is_kept(
        self, url: Secret, tmp_path: Path, opened: list[Store]
    ) -> None:
        one, two = (postgres.open_postgres_store(url, tmp_path, lease_seconds=0.6) for _ in range(2))
        opened += [one, two]
        pair = one.key("pair", "a")
        async with one.lease(pair, wait=0) as held:
            for _ in range(4):
                await asyncio.sleep(0.3)
                assert "storeLocked" == await outcome(hold_briefly(two, pair))
            assert not held.lost

    async def test_a_generation_that_was_changed_in_the_database_is_damage(
        self, postgres_server: postgres.Server, store: Store, key: Key
    ) -> None:
        await store.put(key, b"one", expect=0)
        postgres_server.run("update oauthbroker.entry set generation = 7", "contract")
        assert Code.RECORD_CORRUPT.value == await outcome(store.get(key))
        assert [] == await bodies(store, "grants")
        assert 1 == (await store.put(key, b"anew", expect=0)).generation

    async def test_an_entry_that_was_moved_in_the_database_is_refused(
        self, postgres_server: postgres.Server, store: Store, key: Key
    ) -> None:
        await store.put(key, b"one", expect=0)
        other = store.key("grants", "another")
        moved = f"update oauthbroker.entry set name = '\\x{other.name}'"  # noqa: S608  (our own digits)
        postgres_server.run(moved, "contract")
        assert Code.RECORD_MISPLACED.value == await outcome(store.get(other))
        await store.set_aside(other)
        assert None is await store.get(other)
