"""Write once for all changes that wait for a lock at the same time: a group commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Generic, TypeVar

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.lifecycle import UnderWay, to_its_end

T = TypeVar("T")
Opened = Callable[[], AbstractAsyncContextManager[T]]


class _Turn(Generic[T]):
    """A caller's part of a batch: it begins with the opened state, and ends when the caller's body has ended."""

    __slots__ = ("began", "ended")

    def __init__(self) -> None:
        self.began: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()


@dataclass(slots=True, eq=False)
class _Batch(Generic[T]):
    work: asyncio.Task[None] = field(init=False)
    turns: list[_Turn[T]] = field(default_factory=list)


class SharedChanges(Generic[T]):
    """A change that comes alone is made at once. Those that come meanwhile are a batch: it takes more changes while it
    waits for its lock, and none once it has it. Belongs to one event loop."""

    def __init__(self) -> None:
        self._alone = set[Hashable]()
        self._waiting: dict[Hashable, _Batch[T]] = {}
        self._under_way = UnderWay()

    @asynccontextmanager
    async def change(self, key: Hashable, opened: Opened[T]) -> AsyncIterator[T]:
        """Change the state in the body, after the earlier changes of its batch.

        `opened` takes the lock, gives the state, and writes it to the end: that of the first one of a batch is for all.
        Returns when the batch is written, also to a caller that is cancelled. Raises what `opened` raises. What a body
        of a batch has changed before it raises is written with the rest.
        """
        batch = self._waiting.get(key)
        if batch is None and key not in self._alone:
            self._alone.add(key)
            try:
                async with opened() as state:
                    yield state
            finally:
                self._alone.discard(key)
            return
        if batch is None:
            batch = self._waiting[key] = _Batch()
            batch.work = self._under_way.begin(self._run(key, opened, batch))
        turn = _Turn[T]()
        batch.turns.append(turn)
        try:
            yield await turn.began
        except BaseException:
            turn.ended.set()
            if not turn.began.cancelled():
                with suppress(Exception):  # raised to the others
                    await to_its_end(batch.work)
            elif all(each.began.cancelled() for each in batch.turns):  # no caller waits for the lock
                self._close(key, batch)
                batch.work.cancel()
            raise
        turn.ended.set()
        await to_its_end(batch.work)

    async def _run(self, key: Hashable, opened: Opened[T], batch: _Batch[T]) -> None:
        try:
            async with opened() as state:
                self._close(key, batch)
                for turn in batch.turns:
                    if not turn.began.cancelled():
                        turn.began.set_result(state)
                        await turn.ended.wait()
        except BaseException as error:
            self._close(key, batch)
            for turn in batch.turns:
                if turn.began.done():
                    continue
                if isinstance(error, Exception):
                    turn.began.set_exception(error)
                else:
                    turn.began.cancel()
            raise

    def _close(self, key: Hashable, batch: _Batch[T]) -> None:
        """Close the batch for other changes."""
        if self._waiting.get(key) is batch:
            del self._waiting[key]
