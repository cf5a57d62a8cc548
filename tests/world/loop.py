"""An event loop in which time and turns are ours: the clock jumps to the next timer, and a seed says whose turn it is.

Each broker is a `Process`. As in reality, a process runs its own callbacks in the order in which they became ready, and
nothing orders two processes. A frozen or killed process gets no turn; what becomes ready for it waits.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from operator import attrgetter
from random import Random
from typing import Any

EPOCH = 1_900_000_000.0  # the wall time is so many seconds ahead of the monotonic clock
BEGIN = 1_000.0  # of the monotonic clock


class Process:
    """Whose turn it may be. `runs` is False while it is frozen, and for ever once it is killed."""

    def __init__(self, name: str) -> None:
        self.name, self.runs, self.killed = name, True, False
        self.number = 0  # in the order of their begin
        self.ready, self.waits = deque[Turn](), False  # `waits` while it is among those that wait for a turn
        self.tasks = set[asyncio.Task[Any]]()  # or those of a killed process would be collected, and run to their end

    def __repr__(self) -> str:
        return self.name


_process: ContextVar[Process] = ContextVar("process")
_number = attrgetter("number")


class Turn(list[Any]):
    """A callback that waits for its time or its turn, its arguments, and its context. asyncio takes it for a handle. It is a
    list, because no code of Python runs to make one."""

    __slots__ = ()

    def cancel(self) -> None:
        self[0] = None

    def cancelled(self) -> bool:
        return self[0] is None


def current_process() -> Process:
    """Return the process whose code runs here."""
    return _process.get()


class NothingLeftError(Exception):
    """No callback and no timer is left, but the world waits for something."""


class WorldLoop(asyncio.BaseEventLoop):
    """Runs callbacks until the work given to `run_until_complete` is done. Opens no file, socket or thread."""

    _stopping: bool  # of BaseEventLoop
    get_debug: Any = bool  # false, without a call of Python: each future and task asks

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self._time, self._dice, self._count = BEGIN, dice, count()
        self._timers = list[tuple[float, int, Turn]]()  # compared without a call
        self.outside = Process("outside")  # the database, the provider, people
        self.processes = [self.outside]
        self._waiting = list[Process]()  # those with ready callbacks
        self.faults = list[str]()
        self.create_future: Callable[[], asyncio.Future[Any]] = partial(asyncio.Future, loop=self)
        self.set_exception_handler(self._note)
        self._outside = copy_context()
        self._outside.run(_process.set, self.outside)

    def time(self) -> float:
        return self._time

    def begin(self, name: str, work: Callable[[], Any]) -> tuple[Process, asyncio.Task[Any]]:
        """Begin a process whose first task is this work."""
        process = Process(name)
        process.number = len(self.processes)
        self.processes.append(process)
        context = copy_context()
        context.run(_process.set, process)
        return process, self.create_task(work(), context=context)

    def outside_later(self, seconds: float, call: Callable[..., object], *given: Any) -> None:
        """Call something that no process runs: it comes also while its asker is frozen, or dead."""
        turn = Turn((call, given, self._outside))
        heapq.heappush(self._timers, (self._time + seconds, next(self._count), turn))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *given: Any, context: Context | None = None
    ) -> Turn:
        """Call something later. Timers of one moment come in the order in which they were set."""
        turn = Turn((callback, given, context or copy_context()))
        heapq.heappush(self._timers, (when, next(self._count), turn))
        return turn

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *given: Any, context: Context | None = None
    ) -> Turn:
        turn = Turn((callback, given, context or copy_context()))
        heapq.heappush(self._timers, (self._time + delay, next(self._count), turn))
        return turn

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *given: Any, context: Context | None = None
    ) -> Turn:
        if context is None:
            context = copy_context()
        turn = Turn((callback, given, context))
        process = context.get(_process, self.outside)
        process.ready.append(turn)
        if not process.waits:
            process.waits = True
            self._waiting.append(process)
        return turn

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run work for a thread inline, at a later moment."""
        answer = self.create_future()

        def run() -> None:
            if answer.done():
                return
            try:
                answer.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  (its asker gets it)
                answer.set_exception(error)

        self.call_later(self._dice.uniform(0.0001, 0.005), run)
        return answer

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        process = (context.get(_process) if context is not None else None) or _process.get(self.outside)
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
        return task

    def _run_once(self) -> None:
        """Run turns until the loop is stopped."""
        sys.set_asyncgen_hooks(firstiter=None)  # no generator is noted: each world ends all its tasks
        waiting = self._waiting
        while not self._stopping:
            process = self._picked() if len(waiting) > 1 else waiting[0] if waiting else None
            if process is None or not process.runs:
                self._jump()
                continue
            ready = process.ready
            for _ in range(len(ready)):
                callback, given, context = ready.popleft()
                if callback is None:
                    continue
                try:
                    context.run(callback, *given)
                except Exception as error:  # noqa: BLE001  (as any loop does)
                    self.call_exception_handler({"message": f"{callback} failed", "exception": error})
                if not process.runs:  # the callback has frozen or killed it
                    break
            if not ready:
                process.waits = False
                waiting.remove(process)

    def _picked(self) -> Process | None:
        """Let the seed say which of several processes runs next."""
        awake = [each for each in self._waiting if each.runs]
        if len(awake) < 2:
            return awake[0] if awake else None
        awake.sort(key=_number)
        return awake[self._dice.randrange(len(awake))]

    def _jump(self) -> None:
        """Let the next timer be due, and all others of that moment."""
        timers, pop, waiting, now = self._timers, heapq.heappop, self._waiting, None
        while timers and (now is None or timers[0][0] <= now):
            when, _, turn = pop(timers)
            if turn[0] is None:
                continue
            if now is None:
                now = self._time = max(self._time, when)
            process = turn[2].get(_process, self.outside)
            process.ready.append(turn)
            if not process.waits:
                process.waits = True
                waiting.append(process)
        if now is None:
            raise NothingLeftError

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults.append(f"{context['message']}: {context.get('exception')!r} of {context.get('future')!r}")

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread to wake."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there is no selector."""
