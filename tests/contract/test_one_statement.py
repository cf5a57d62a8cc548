"""One statement on a connection of PostgreSQL, prepared where it runs again and again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from unittest.mock import AsyncMock

import psycopg
import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.store.postgres import connection_pool
from oauthbroker.store.postgres.connection_pool import NO_ANSWER, NO_TABLES, ConnectionPool
from oauthbroker.store.postgres.one_statement import rows_of
from oauthbroker.store.postgres.pools import TERMS
from tests.kit import postgres

DATABASE = "statements"
DOUBLED = "select %(number)s * 2, pg_backend_pid()"
COUNT = "select count(*) from oauthbroker.entry"
WAITING = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
OURS = "select pid from pg_stat_activity where datname = current_database()"


@pytest.fixture(scope="module")
def url(postgres_server: postgres.Server) -> Secret:
    return postgres_server.new_database(DATABASE)


@pytest.fixture
async def connection(url: Secret) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(url.reveal(), **TERMS) as made:
        yield made


@pytest.fixture
async def pool(url: Secret) -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool(url)
    yield made
    await made.close()


async def prepared(connection: psycopg.AsyncConnection) -> list[str]:
    rows = await rows_of(connection, "select statement from pg_prepared_statements", {})
    return [statement for (statement,) in rows]


async def test_a_statement_is_prepared_on_a_connection_that_runs_it_again_and_again(connection):
    found = [(await rows_of(connection, DOUBLED, {"number": number}))[0][0] for number in range(2)]
    assert [] == await prepared(connection)
    found += [(await rows_of(connection, DOUBLED, {"number": number}))[0][0] for number in range(2, 9)]
    assert [0, 2, 4, 6, 8, 10, 12, 14, 16] == found
    assert ["select $1 * 2, pg_backend_pid()"] == await prepared(connection)


async def test_a_prepared_statement_takes_values_of_every_size(connection):
    for _ in range(5):
        assert 14 == (await rows_of(connection, DOUBLED, {"number": 7}))[0][0]
        assert 2 * 10**12 == (await rows_of(connection, DOUBLED, {"number": 10**12}))[0][0]


async def test_a_statement_that_fails_says_why_each_time(connection):
    for _ in range(6):
        with pytest.raises(psycopg.errors.UndefinedTable):
            await rows_of(connection, "select true from nowhere", {})


async def test_a_statement_that_is_cancelled_while_it_is_prepared_does_not_run(connection, url):
    async with await psycopg.AsyncConnection.connect(url.reveal(), **TERMS) as other:
        await other.execute("create table busy ()")
        for _ in range(2):
            await rows_of(connection, "select from busy", {})
        async with other.transaction():
            await other.execute("lock table busy in access exclusive mode")
            third = asyncio.ensure_future(rows_of(connection, "select from busy", {}))
            while not await (await other.execute(WAITING)).fetchall():
                await asyncio.sleep(0.01)
            await connection.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                await asyncio.wait_for(third, 5)
            assert not await (await other.execute(WAITING)).fetchall()


async def test_a_pooler_that_gives_each_statement_another_session_loses_none(postgres_server, url):
    with postgres.pooler(postgres_server, DATABASE) as pooled:
        async with AsyncExitStack() as stack:

            async def connected() -> psycopg.AsyncConnection:
                return await stack.enter_async_context(await psycopg.AsyncConnection.connect(pooled.reveal(), **TERMS))

            one, *others = await connected(), await connected(), await connected()
            first = [await rows_of(one, DOUBLED, {"number": number}) for number in range(6)][-1]
            for other in others:  # of two transactions each holds one of the pooler's two sessions
                await rows_of(other, "begin", {})
            for other in others:
                if (await rows_of(other, DOUBLED, {"number": 1}))[0][1] != first[0][1]:
                    await rows_of(other, "rollback", {})
            for number in range(6):
                ((doubled, session),) = await rows_of(one, DOUBLED, {"number": number})
                assert (number * 2, True) == (doubled, session != first[0][1])


async def test_a_session_that_has_forgotten_its_prepared_statements_answers_nevertheless(connection):
    for number in range(6):
        await rows_of(connection, DOUBLED, {"number": number})
    await connection.execute("deallocate all")
    assert 14 == (await rows_of(connection, DOUBLED, {"number": 7}))[0][0]
    for number in range(6):
        await rows_of(connection, DOUBLED, {"number": number})
    assert [] == await prepared(connection), "nothing is prepared behind such a pooler any more"


async def test_a_prepared_statement_finds_no_table_of_a_store_that_has_moved(postgres_server, pool):
    for _ in range(9):
        assert [(0,)] == await pool.read(COUNT)
    postgres_server.run("alter schema oauthbroker rename to oauthbroker_closed", DATABASE)
    try:
        with pytest.raises(BrokerError) as refused:
            await pool.read(COUNT)
    finally:
        postgres_server.run("alter schema oauthbroker_closed rename to oauthbroker", DATABASE)
    assert (Code.STORE_UNAVAILABLE, NO_TABLES) == (refused.value.code, refused.value.note)
    assert [(0,)] == await pool.read(COUNT)


async def test_a_statement_ends_when_its_time_is_over_and_disturbs_no_other(pool, monkeypatch):
    monkeypatch.setattr(connection_pool, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(connection_pool, "LOOK_SECONDS", 0.05)
    slow = asyncio.create_task(pool.write("select pg_sleep(20)"))
    async with asyncio.timeout(15):
        while not slow.done():
            assert [(0,)] == await pool.read(COUNT)
            await asyncio.sleep(0.05)
    with pytest.raises(BrokerError) as late:
        await slow
    assert NO_ANSWER == late.value.note
    assert [(0,)] == await pool.read(COUNT)


async def test_a_slow_statement_has_another_connection_tried_once_in_a_while_not_at_each_look(pool, monkeypatch):
    monkeypatch.setattr(connection_pool, "SLOW_SECONDS", 1.0)
    monkeypatch.setattr(connection_pool, "LOOK_SECONDS", 0.02)
    tried = AsyncMock(return_value=None)
    monkeypatch.setattr(pool._pools, "_refused", tried)
    await asyncio.gather(*(pool.write("select pg_sleep(1.5)") for _ in range(3)))
    assert 1 == tried.await_count


async def test_a_statement_whose_server_process_stands_still_is_cut_soon_after_its_time_is_over(pool, monkeypatch):
    """The driver would wait ten more seconds for the server to end it."""
    for name, seconds in {"PATIENCE_SECONDS": 0.5, "SLOW_SECONDS": 0.5, "LOOK_SECONDS": 0.05}.items():
        monkeypatch.setattr(connection_pool, name, seconds)
    monkeypatch.setattr(pool._pools, "_patience", 0.0)
    await asyncio.gather(*(pool.read(COUNT) for _ in range(20)))
    stopped = [process for (process,) in await pool.read(OURS)]
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(BrokerError):
            await pool.write(COUNT)
        assert 4 > time.monotonic() - began
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)
