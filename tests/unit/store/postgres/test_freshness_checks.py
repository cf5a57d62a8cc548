"""Many callers ask whether their version is the newest; few statements answer them."""

from __future__ import annotations

import asyncio
import gc
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


async def is_newest(checks: FreshnessChecks, version: int) -> bool:
    (answer,) = await checks.are_newest(("grants", b"name", version))
    return answer


async def steps() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def asked(checks: FreshnessChecks, *versions: int) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(is_newest(checks, version)) for version in versions]


async def test_the_questions_of_one_turn_of_the_loop_share_a_statement(checks, database):
    database.go_on.set()
    assert [True, False, True] == await asyncio.gather(*asked(checks, 1, 2, 3 - 2))
    assert [2] == database.statements, "the same question of two callers is asked once"


async def test_questions_that_come_while_a_statement_is_under_way_share_the_next_one(checks, database):
    first = asked(checks, 1)
    await steps()
    later = asked(checks, 2, 1, 3)
    await steps()
    assert [1] == database.statements
    database.go_on.set()
    assert [True, False, True, False] == await asyncio.gather(*first, *later)
    assert [1, 3] == database.statements


async def test_callers_that_ask_again_and_again_share_each_statement(checks, database):
    """They began in two turns of the loop. After the first answers they go on together."""
    database.go_on.set()

    async def ten_times(version: int) -> None:
        for _ in range(10):
            await is_newest(checks, version)

    early = asyncio.create_task(ten_times(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.gather(early, ten_times(2))
    assert len(database.statements) <= 12


async def test_one_statement_answers_all_questions_of_a_call(checks, database):
    database.go_on.set()
    assert [True, False] == await checks.are_newest(("turns", b"turn", 1), ("grants", b"grant", 2))
    assert [2] == database.statements


async def test_a_statement_that_is_late_holds_up_no_question(checks, database, monkeypatch):
    monkeypatch.setattr(freshness_checks, "LATE_SECONDS", 0)
    asked(checks, 1)
    await steps()
    behind = asked(checks, 2)
    await steps()
    assert [1, 1] == database.statements
    third = asked(checks, 3)
    await steps()
    assert [1, 1] == database.statements, "there are two at the most"
    database.go_on.set()
    assert [False, False] == await asyncio.gather(*behind, *third)


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
    monkeypatch.setattr(freshness_checks, "LATE_SECONDS", 0)
    for version in (1, 1):
        asked(checks, version)
        await steps()
    assert [1, 1] == database.statements
    async with asyncio.timeout(30):
        with pytest.raises(BrokerError) as late:
            await is_newest(checks, 1)
    assert Code.STORE_UNAVAILABLE is late.value.code
    database.go_on.set()
    assert await is_newest(checks, 1), "a caller that has left holds up no other one"


async def test_a_failure_is_that_of_each_question_of_the_statement_and_of_no_later_one(checks, database):
    database.failure = AWAY
    database.go_on.set()
    answers = await asyncio.gather(*asked(checks, 1, 1), return_exceptions=True)
    assert [AWAY, AWAY] == answers
    database.failure = None
    assert await is_newest(checks, 1)


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


async def test_a_question_that_comes_as_a_statement_ends_is_answered(checks, database):
    first = asked(checks, 1)
    await steps()
    database.go_on.set()
    for turns in range(8):
        await asyncio.gather(*first)
        for _ in range(turns):
            await asyncio.sleep(0)
        first = asked(checks, 1)
    assert [True] == await asyncio.wait_for(asyncio.gather(*first), 10)


async def test_a_call_whose_second_answer_failed_too_leaves_no_failure_unread(checks, database, caplog):
    database.failure = AWAY
    database.go_on.set()
    with pytest.raises(BrokerError):
        await checks.are_newest(("turns", b"turn", 1), ("grants", b"grant", 2))
    gc.collect()
    assert "never retrieved" not in caplog.text
