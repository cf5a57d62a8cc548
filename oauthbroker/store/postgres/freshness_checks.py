"""Ask whether versions are the newest ones: the questions of many callers in one statement.

A warm token call asks this several times, and each statement costs more than the rest of the call. While a statement is
under way, the questions that come gather for the next one. So each is answered by a statement that began after it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.postgres.connection_pool import NO_ANSWER, PATIENCE_SECONDS, ConnectionPool

ONE: Final = "select 1 from oauthbroker.entry where kind = %(kind)s and name = %(name)s and version = %(version)s"
_MANY: Final = """
select number from unnest(%(kinds)s::text[], %(names)s::bytea[], %(versions)s::bigint[])
    with ordinality as asked (kind, name, version, number)
join oauthbroker.entry using (kind, name, version)
"""
_MOST_STATEMENTS: Final = 2  # under way; a second one, so that a connection that hangs does not hold up all callers


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionCheck:
    kind: str
    name: bytes
    version: object
    answer: asyncio.Future[bool]


class FreshnessChecks:
    """The questions of one process. Belongs to one event loop."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._waiting: list[_VersionCheck] = []
        self._tasks = set[asyncio.Task[None]]()

    async def is_newest(self, kind: str, name: bytes, version: object) -> bool:
        """Return whether the stored version of an entry is this one. Raises `storeUnavailable`, at the latest after the
        time that one statement may take: while the database is away, a question would wait for two of them."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        question = _VersionCheck(kind=kind, name=name, version=version, answer=answer)
        self._waiting.append(question)
        if len(self._tasks) < _MOST_STATEMENTS:
            task = asyncio.create_task(self._ask_all())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await answer
        except TimeoutError:
            raise BrokerError(Code.STORE_UNAVAILABLE, note=NO_ANSWER) from None

    async def _ask_all(self) -> None:
        while self._waiting:
            asked, self._waiting = [each for each in self._waiting if not each.answer.done()], []
            try:
                newest = await self._newest(asked)
            except Exception as error:  # noqa: BLE001  (each caller gets it)
                for each in asked:
                    if not each.answer.done():
                        each.answer.set_exception(error)
            else:
                for number, each in enumerate(asked, 1):
                    if not each.answer.done():
                        each.answer.set_result(number in newest)
            finally:
                for each in asked:
                    each.answer.cancel()  # nothing, unless this task was cancelled
        # The callback runs later: a question that comes before it would wait for a task that has ended.
        self._tasks.discard(asyncio.current_task())

    async def _newest(self, asked: list[_VersionCheck]) -> set[int]:
        """Return the numbers, from 1, of the questions whose answer is yes. One alone is cheaper without arrays."""
        if len(asked) == 1:
            only = asked[0]
            row = {"kind": only.kind, "name": only.name, "version": only.version}
            return {row[0] for row in await self._connections.read(ONE, row)}
        columns = {
            "kinds": [each.kind for each in asked],
            "names": [each.name for each in asked],
            "versions": [each.version for each in asked],
        }
        return {row[0] for row in await self._connections.read(_MANY, columns)} if asked else set()
