"""What callers of a pool meet while the database accepts no connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.store.postgres import pools as module
from oauthbroker.store.postgres.connect_failures import SILENT
from oauthbroker.store.postgres.pools import Pools


@pytest.fixture
async def pools(tmp_path: Path) -> AsyncIterator[Pools]:
    """Pools of a database that has no server."""
    pools = Pools(Secret(f"postgresql:///nothing?host={tmp_path}"), patience=60)
    yield pools
    await pools.close()


async def taken(pools: Pools) -> None:
    async with pools.connection():
        pass


async def is_at_once(pools: Pools) -> bool:
    """Return whether a call fails without a wait for the database."""
    call = asyncio.ensure_future(taken(pools))
    for _ in range(10):
        await asyncio.sleep(0)
    is_over = call.done()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    return is_over


async def test_calls_fail_with_the_cause_once_the_database_is_known_to_be_away(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    async with asyncio.timeout(30):  # less than they would wait for a connection
        failures = await asyncio.gather(*(taken(pools) for _ in range(3)), return_exceptions=True)
    assert all("No such file" in str(each) for each in failures), failures
    assert await is_at_once(pools)


async def test_calls_fail_with_the_cause_of_now_after_another_one_has_begun_the_outage(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes = ["connection refused", "connection refused", "the database system is starting up"]
    newest_known = asyncio.Event()

    async def refused() -> psycopg.Error:
        if len(causes) > 1:
            return psycopg.OperationalError(causes.pop(0))
        newest_known.set()
        return psycopg.OperationalError(causes[0])

    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    monkeypatch.setattr(module, "PROBE_SECONDS", 0)
    monkeypatch.setattr(pools, "_refused", refused)
    pools.suspect()
    async with asyncio.timeout(30):
        await newest_known.wait()
    await asyncio.sleep(0)
    with pytest.raises(psycopg.OperationalError, match="starting up"):
        await taken(pools)


async def test_a_statement_is_asked_to_end_on_a_server_that_answered_a_connection_though_the_last_one_got_lost(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes, ended = [SILENT, "connection timeout expired"], asyncio.Event()

    class Waiting:
        async def cancel_safe(self, *, timeout: float) -> None:
            ended.set()

        def fileno(self) -> int:
            raise psycopg.OperationalError("the connection is closed")

    async def refused() -> psycopg.Error:
        return psycopg.OperationalError(causes.pop(0) if len(causes) > 1 else causes[0])

    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    monkeypatch.setattr(module, "PROBE_SECONDS", 0)
    monkeypatch.setattr(pools, "_refused", refused)
    in_use: Any = {Waiting(): 0.0}
    monkeypatch.setattr(pools, "_in_use", in_use)
    pools.suspect()
    async with asyncio.timeout(5):
        await ended.wait()


async def test_a_server_that_is_full_takes_no_connection_away_from_a_slow_statement(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def full() -> psycopg.Error:
        nonlocal asked
        asked += 1
        return psycopg.OperationalError("FATAL:  sorry, too many clients already")

    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    monkeypatch.setattr(pools, "_refused", full)
    before = pools._pool
    pools.suspect()
    assert pools._probe is not None
    await pools._probe
    assert (1, before, None) == (asked, pools._pool, pools._away)


async def test_calls_wait_for_a_database_that_may_only_be_restarting(pools: Pools) -> None:
    pools.suspect()
    async with asyncio.timeout(30):
        await pools._looked.wait()  # the first attempt to connect has failed
    assert not await is_at_once(pools)


async def test_a_pool_that_takes_over_after_an_outage_tells_who_waits_that_the_database_is_back(pools: Pools) -> None:
    told = [pools.back.listen()]
    await pools._take_over(was_away=False)
    told.append(pools.back.listen())
    await pools._take_over(was_away=True)
    told.append(pools.back.listen())
    assert (True, False) == (told[0] is told[1], told[1] is told[2])
