"""Ask whether versions are the newest ones: the questions of many callers in one statement.

A warm token call asks this several times, and each statement costs more than the rest of the call. So the questions of
one turn of the loop share a statement, and those that come while it is under way gather for the next one. Each is
answered by a statement that began after it.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.postgres.connection_pool import NO_ANSWER, PATIENCE_SECONDS, ConnectionPool

ONE: Final = "select 1 from oauthbroker.entry where kind = %(kind)s and name = %(name)s and version = %(version)s"
_MANY: Final = """
select number from unnest(%(kinds)s::text[], %(names)s::bytea[], %(versions)s::bigint[])
    with ordinality as asked (kind, name, version, number)
join oauthbroker.entry using (kind, name, version)
"""
_MOST_STATEMENTS: Final = 2  # under way; the second one only beside one that is late
LATE_SECONDS: Final = 0.05  # a connection that hangs must not hold up all callers

Question = tuple[str, bytes, object]
"""Whether this version of the entry of a kind and name is the newest one."""
_Caller = asyncio.Future[list[bool] | Exception | None]  # None: the time for an answer is over
_Callers = dict[_Caller, tuple[Question, ...]]


class FreshnessChecks:
    """The questions of one process. Belongs to one event loop."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections, self._waiting = connections, _Callers()
        self._tasks, self._late = set[asyncio.Task[None]](), set[asyncio.Task[None]]()

    async def are_newest(self, *questions: Question) -> list[bool]:
        """Return whether each version is the stored one. Raises `storeUnavailable`, at the latest after the time that
        one statement may take: while the database is away, a question would wait for two of them."""
        loop = asyncio.get_running_loop()
        caller: _Caller = loop.create_future()
        self._waiting[caller] = questions
        self._begin()
        patience = loop.call_later(PATIENCE_SECONDS, _tell, caller, None)
        try:
            answer = await caller
        finally:
            patience.cancel()
            self._waiting.pop(caller, None)
        if isinstance(answer, list):
            return answer
        raise answer or BrokerError(Code.STORE_UNAVAILABLE, note=NO_ANSWER)

    def _begin(self) -> None:
        """Begin a statement for the questions that wait, unless one is under way that may still be in time."""
        if self._waiting and len(self._late) == len(self._tasks) < _MOST_STATEMENTS:
            task = asyncio.create_task(self._ask_all())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask_all(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (for mypy)
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            await self._ask(task, asked)
            await asyncio.sleep(0)  # those who got their answer may have the next question
        # The callback runs later: a question that comes before it would wait for a task that has ended.
        self._tasks.discard(task)

    async def _ask(self, task: asyncio.Task[None], asked: _Callers) -> None:
        late = asyncio.get_running_loop().call_later(LATE_SECONDS, self._is_late, task)
        try:
            newest = await self._newest(list(dict.fromkeys(chain.from_iterable(asked.values()))))
        except Exception as error:  # noqa: BLE001  (each caller gets it)
            for caller in asked:
                _tell(caller, error)
        else:
            for caller, questions in asked.items():
                _tell(caller, [each in newest for each in questions])
        finally:
            late.cancel()
            self._late.discard(task)
            for caller in asked:
                caller.cancel()  # nothing, unless this task was cancelled

    def _is_late(self, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        self._begin()

    async def _newest(self, asked: list[Question]) -> set[Question]:
        """Return the questions whose answer is yes. One alone is cheaper without arrays."""
        if len(asked) == 1:
            rows = await self._connections.read(ONE, dict(zip(("kind", "name", "version"), asked[0], strict=True)))
        else:
            columns = zip(("kinds", "names", "versions"), map(list, zip(*asked, strict=True)), strict=True)
            rows = await self._connections.read(_MANY, dict(columns))
        return {asked[number - 1] for (number,) in rows}


def _tell(caller: _Caller, answer: list[bool] | Exception | None) -> None:
    if not caller.done():
        caller.set_result(answer)
