"""PostgreSQL keeps the contract of stores."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.store.format.port import Key, Store
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.contact import LEASE_SECONDS, grace_of
from oauthbroker.store.postgres.feed import Feed
from tests.contract.store_contract import Open, StoreContract, bodies, hold_briefly, outcome
from tests.contract.store_processes import ProcessContract
from tests.kit import postgres
from tests.kit.waiting import until

_SESSIONS = """
select count(*) from pg_stat_activity where datname = current_database() and application_name = 'oauthbroker'
"""


async def _away(*_: Any) -> Any:
    raise BrokerError(Code.STORE_UNAVAILABLE)


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
        tag, skipped = store.tag("grants", "who", "a"), list[Key]()
        await store.put(key, b"one", expect=0, tags=[tag])
        postgres_server.run("update oauthbroker.entry set generation = 7", "contract")
        assert Code.RECORD_CORRUPT.value == await outcome(store.get(key))
        assert [] == await bodies(store, "grants")
        assert ([], [key]) == ([each async for each in store.find(tag, skipped=skipped)], skipped)
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

    @pytest.mark.slow
    async def test_a_lapsed_lease_is_left_alone_until_the_contact_has_been_steady_for_a_grace(
        self, postgres_server: postgres.Server, url: Secret, tmp_path: Path, opened: list[Store]
    ) -> None:
        """Its holder may have been cut off with all others. A free one is taken at once."""
        store = postgres.open_postgres_store(url, tmp_path, lease_seconds=3)
        opened.append(store)
        lapsed, free = store.key("provider", "a"), store.key("provider", "b")
        postgres_server.run(
            f"insert into oauthbroker.lease values ('provider-{lapsed.name}', 'another', now() - interval '1 hour')",  # noqa: S608
            "contract",
        )
        began = time.monotonic()
        assert "won" == await outcome(hold_briefly(store, free))
        assert "storeLocked" == await outcome(hold_briefly(store, lapsed))
        async with store.lease(lapsed, wait=20) as held:
            assert await held.holds()
        assert time.monotonic() - began >= grace_of(3)

    async def test_a_row_that_a_process_could_not_remove_is_its_own_and_no_other_process_takes_it(
        self, url: Secret, tmp_path: Path, opened: list[Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = (postgres.open_postgres_store(url, tmp_path) for _ in range(2))
        opened += [one, two]
        pair, write = one.key("pair", "a"), one.connections.write

        async def away(statement: str, *given: Any) -> Any:
            if statement.startswith("delete from oauthbroker.lease"):
                raise BrokerError(Code.STORE_UNAVAILABLE)
            return await write(statement, *given)

        with monkeypatch.context() as patch:
            patch.setattr(one.connections, "write", away)
            assert "won" == await outcome(hold_briefly(one, pair))
        assert "storeLocked" == await outcome(hold_briefly(two, pair))
        assert "won" == await outcome(hold_briefly(one, pair))
        assert "won" == await outcome(hold_briefly(two, pair))

    async def test_a_lease_that_the_database_has_lost_is_taken_again_by_its_holder(
        self, postgres_server: postgres.Server, url: Secret, tmp_path: Path, opened: list[Store]
    ) -> None:
        one, two = (postgres.open_postgres_store(url, tmp_path, lease_seconds=1.5) for _ in range(2))
        opened += [one, two]
        pair = one.key("pair", "a")
        async with one.lease(pair, wait=0) as held:
            postgres_server.run("delete from oauthbroker.lease", "contract")
            assert not await held.holds()
            await until(held.holds)
            assert "storeLocked" == await outcome(hold_briefly(two, pair))

    @pytest.mark.slow
    async def test_a_version_that_this_process_wrote_is_confirmed_while_the_database_is_away(
        self, url: Secret, tmp_path: Path, opened: list[Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As the token that was refreshed a moment before: its answer was the word of the database."""
        store = postgres.open_postgres_store(url, tmp_path, degraded_seconds=30.0)
        opened.append(store)
        key = store.key("grants", "a")
        first = await store.put(key, b"first", expect=0)
        second = await store.put(key, b"second", expect=first.generation)
        with monkeypatch.context() as away:
            away.setattr(store.connections, "write", _away)
            assert await store.is_current(second)
            with pytest.raises(BrokerError) as refused:
                await store.is_current(first)
            assert Code.STORE_UNAVAILABLE is refused.value.code
            with pytest.raises(BrokerError):
                await store.put(key, b"third", expect=second.generation)
            with pytest.raises(BrokerError):
                await store.is_current(second)  # the lost answer may have been a newer version

    async def test_on_another_timeline_no_lease_holds_until_the_grace_is_over_and_older_versions_are_in_doubt(
        self, postgres_server: postgres.Server, url: Secret, tmp_path: Path, opened: list[Store], key: Key
    ) -> None:
        """All hosts agree on it, also new ones: the database keeps the time and the first version."""
        one, two = (postgres.open_postgres_store(url, tmp_path, lease_seconds=6) for _ in range(2))
        opened += [one, two]
        before, history = await one.put(key, b"before", expect=0), await one.history()
        lease = one.key("provider", "a")
        async with one.lease(lease, wait=0) as held:
            assert (True, False) == (await held.holds(), await one.outlived(before))
            postgres_server.run(
                "update oauthbroker.feature set name = 'timeline 0000ABCD 0' where name ~ 'timeline'", "contract"
            )
            changed = time.monotonic()
            assert not await held.holds()
            assert (history, history) == (await one.history(), await two.history()), "the name of the timeline"
            after = await two.put(key, b"after", expect=1)
            for store in (one, two):
                assert (True, False) == (await store.outlived(before), await store.outlived(after))
            assert isinstance(after.stamp, int)
            assert isinstance(before.stamp, int)
            assert after.stamp - before.stamp > 50_000, "no lost version comes again"
            await until(held.holds)
            assert time.monotonic() - changed >= grace_of(6) - 0.5
        assert "won" == await outcome(hold_briefly(two, lease))

    async def test_a_database_that_tells_no_timeline_loses_nothing(
        self, url: Secret, tmp_path: Path, opened: list[Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the storage keeps the log, and not a standby."""
        monkeypatch.setattr("oauthbroker.store.postgres.timeline._LOOK", "select pg_no_such_function()")
        store = postgres.open_postgres_store(url, tmp_path)
        opened.append(store)
        async with store.lease(store.key("provider", "a"), wait=0) as held:
            assert await held.holds()
            assert await store.history() == await store.history()

    async def test_a_holder_extends_its_lease_as_soon_as_the_database_is_back(
        self, postgres_server: postgres.Server, url: Secret, tmp_path: Path, opened: list[Store]
    ) -> None:
        store = postgres.open_postgres_store(url, tmp_path)
        opened.append(store)
        async with store.lease(store.key("provider", "a"), wait=0) as held:
            postgres_server.run("update oauthbroker.lease set until = now() - interval '1 second'", "contract")
            assert not await held.holds()
            store.back.notify()
            async with asyncio.timeout(LEASE_SECONDS / 4):  # by itself it would be a third
                await until(held.holds)

    @pytest.mark.slow
    async def test_a_database_that_is_back_is_used_within_a_second_and_by_holders_of_leases_first(
        self,
        postgres_server: postgres.Server,
        url: Secret,
        tmp_path: Path,
        opened: list[Store],
        key: Key,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        store, order = postgres.open_postgres_store(url, tmp_path), list[str]()
        opened.append(store)
        signal = store.back.listen()

        async def work(name: str) -> float:
            while True:
                try:
                    await store.get(key)
                except BrokerError:
                    await asyncio.sleep(0)
                else:
                    order.append(name)
                    return time.monotonic()

        async with store.lease(store.key("provider", "a"), wait=0):
            holder = asyncio.create_task(work("holder"))  # it has the lease, as the task that began it
            await holder
            postgres_server.stop("immediate")
            holder = asyncio.create_task(work("holder"))
            others = [asyncio.create_task(work("other"), context=Context()) for _ in range(20)]
            await asyncio.sleep(1.5)
            await asyncio.to_thread(postgres_server.start, "fsync=off", "full_page_writes=off")
            back = time.monotonic()
            done = await asyncio.gather(holder, *others)
        assert ["holder", "holder", *["other"] * 20] == order
        assert signal.is_set()
        assert max(done) - back < 3
        warned = [each for each in caplog.records if each.levelname == "WARNING" and "oauthbroker-pool" in each.message]
        assert len(warned) < 2
