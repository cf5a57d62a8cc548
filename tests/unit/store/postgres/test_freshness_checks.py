"""Many callers ask whether their version is the newest; few statements answer them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.postgres import freshness_checks
from oauthbroker.store.postgres.freshness_checks import FreshnessChecks

AWAY = BrokerError(Code.STORE_UNAVAILABLE)


class Database:
    """Answers statements when it is told to. Version 1 of each name is the newest."""

    def __init__(self) -> None:
        self.statements: list[int] = []  # of so many questions
        self.go_on = asyncio.Event()
        self.failure: BrokerError | None = None

    async def read(self, statement: str, values: dict[str, Any]) -> list[tuple[int]]:
        versions = values["versions"] if "versions" in values else [values["version"]]
        self.statements.append(len(versions))
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        return [(number,) for number, version in enumerate(versions, 1) if version == 1]


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def checks(database: Database) -> FreshnessChecks:
    return FreshnessChecks(database)  # type: ignore[arg-type]  # it only reads


def asked(checks: FreshnessChecks, *versions: int) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(checks.is_newest("grants", b"name", version)) for version in versions]


async def test_questions_that_come_while_statements_are_under_way_share_the_next_one(checks, database):
    first = asked(checks, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asked(checks, 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = asked(checks, 1, 2, 1, 1, 2)
    await asyncio.sleep(0)
    assert [1, 1] == database.statements
    database.go_on.set()
    assert [True, False, True, False, True, True, False] == await asyncio.gather(*first, *second, *later)
    assert [1, 1, 5] == database.statements


async def test_a_statement_answers_no_question_that_came_after_it_began(checks, database):
    early = asked(checks, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [1] == database.statements
    database.go_on.set()
    assert [True, True] == await asyncio.gather(*early, *asked(checks, 1))
    assert [1, 1] == database.statements


async def test_a_question_waits_no_longer_than_one_statement_may_take(checks, database, monkeypatch):
    """Two statements hang, each for as long as it may. The questions behind them begin to wait when they come."""
    monkeypatch.setattr(freshness_checks, "PATIENCE_SECONDS", 0.05)
    for version in (1, 1):
        asked(checks, version)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [1, 1] == database.statements
    async with asyncio.timeout(30):
        with pytest.raises(BrokerError) as late:
            await checks.is_newest("grants", b"name", 1)
    assert Code.STORE_UNAVAILABLE is late.value.code
    database.go_on.set()
    assert await checks.is_newest("grants", b"name", 1), "a caller that has left holds up no other one"


async def test_a_failure_is_that_of_each_question_of_the_statement_and_of_no_later_one(checks, database):
    database.failure = AWAY
    database.go_on.set()
    answers = await asyncio.gather(*asked(checks, 1, 1), return_exceptions=True)
    assert [AWAY, AWAY] == answers
    database.failure = None
    assert await checks.is_newest("grants", b"name", 1)


async def test_a_caller_that_leaves_disturbs_no_other(checks, database):
    leaving, staying = asked(checks, 1, 1)
    await asyncio.sleep(0)
    leaving.cancel()
    database.go_on.set()
    assert await staying
    assert leaving.cancelled()


async def test_an_end_of_the_loop_leaves_no_caller_waiting(checks, database):
    (waiting,) = asked(checks, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in checks._tasks:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_question_that_comes_as_both_statements_end_is_answered(checks, database):
    async def twice() -> list[bool]:
        return [await checks.is_newest("grants", b"name", version) for version in (1, 2)]

    first = asyncio.create_task(twice())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (second,) = asked(checks, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [1, 1] == database.statements
    database.go_on.set()
    assert ([True, False], True) == tuple(await asyncio.wait_for(asyncio.gather(first, second), 30))
