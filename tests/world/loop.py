"""An event loop in which time and turns are ours: the clock jumps to the next timer, and a seed says whose turn it is.

Each broker is a `Process`. As in reality, a process runs its own callbacks in the order in which they became ready, and
nothing orders two processes. A frozen or killed process gets no turn; what becomes ready for it waits.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random
from typing import Any

EPOCH = 1_900_000_000.0  # the wall time is so many seconds ahead of the monotonic clock
BEGIN = 1_000.0  # of the monotonic clock


class Process:
    """Whose turn it may be. `runs` is False while it is frozen, and for ever once it is killed."""

    def __init__(self, name: str) -> None:
        self.name, self.runs, self.killed = name, True, False
        self.ready = deque[Turn]()
        self.tasks = set[asyncio.Task[Any]]()  # or those of a killed process would be collected, and run to their end

    def __repr__(self) -> str:
        return self.name


_process: ContextVar[Process] = ContextVar("process")


class Turn:
    """A callback that waits for its time or its turn. It has what asyncio asks of a handle."""

    __slots__ = ("_when", "callback", "context", "given")

    def __init__(self, when: float, callback: Callable[..., object], given: Sequence[Any], context: Context) -> None:
        self._when, self.given, self.context = when, given, context
        self.callback: Callable[..., object] | None = callback

    def cancel(self) -> None:
        self.callback, self.given = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self._when


def current_process() -> Process:
    """Return the process whose code runs here."""
    return _process.get()


class NothingLeftError(Exception):
    """No callback and no timer is left, but the world waits for something."""


class WorldLoop(asyncio.BaseEventLoop):
    """Runs callbacks until the work given to `run_until_complete` is done. Opens no file, socket or thread."""

    _stopping: bool  # of BaseEventLoop

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self._time, self._dice, self._count = BEGIN, dice, count()
        self._timers = list[tuple[float, int, Turn]]()  # compared without a call
        self.outside = Process("outside")  # the database, the provider, people
        self.processes = [self.outside]
        self.faults = list[str]()
        self.set_exception_handler(self._note)
        self.set_task_factory(self._task)
        self._outside = copy_context()
        self._outside.run(_process.set, self.outside)

    def time(self) -> float:
        return self._time

    def begin(self, name: str, work: Callable[[], Any]) -> tuple[Process, asyncio.Task[Any]]:
        """Begin a process whose first task is this work."""
        process = Process(name)
        self.processes.append(process)
        context = copy_context()
        context.run(_process.set, process)
        return process, self.create_task(work(), context=context)

    def outside_later(self, seconds: float, call: Callable[..., object], *given: Any) -> None:
        """Call something that no process runs: it comes also while its asker is frozen, or dead."""
        when = self._time + seconds
        heapq.heappush(self._timers, (when, next(self._count), Turn(when, call, given, self._outside)))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *given: Any, context: Context | None = None
    ) -> Turn:
        """Call something later. Timers of one moment come in the order in which they were set."""
        turn = Turn(when, callback, given, context or copy_context())
        heapq.heappush(self._timers, (when, next(self._count), turn))
        return turn

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *given: Any, context: Context | None = None
    ) -> Turn:
        when = self._time + delay
        turn = Turn(when, callback, given, context or copy_context())
        heapq.heappush(self._timers, (when, next(self._count), turn))
        return turn

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *given: Any, context: Context | None = None
    ) -> Turn:
        turn = Turn(self._time, callback, given, context or copy_context())
        turn.context.get(_process, self.outside).ready.append(turn)
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

    def _task(self, _: asyncio.AbstractEventLoop, work: Any, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=self, context=context)
        tasks = (context.get(_process) if context is not None else None) or _process.get(self.outside)
        tasks.tasks.add(task)
        task.add_done_callback(tasks.tasks.discard)
        return task

    def _run_once(self) -> None:
        """Run turns until the loop is stopped."""
        processes, pick = self.processes, self._dice.randrange
        while not self._stopping:
            awake = [each for each in processes if each.ready and each.runs]
            if awake:
                self._run_turn(awake[pick(len(awake))] if len(awake) > 1 else awake[0])
            else:
                self._jump()

    def _run_turn(self, process: Process) -> None:
        """Run the ready callbacks of a process, until one of them freezes or kills it."""
        ready = process.ready
        for _ in range(len(ready)):
            if not process.runs:
                return
            turn = ready.popleft()
            if turn.callback is None:
                continue
            try:
                turn.context.run(turn.callback, *turn.given)
            except Exception as error:  # noqa: BLE001  (as any loop does)
                self.call_exception_handler({"message": f"{turn.callback} failed", "exception": error})

    def _jump(self) -> None:
        """Let the next timer be due, and all others of that moment."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        if not timers:
            raise NothingLeftError
        now = self._time = max(self._time, timers[0][0])
        while timers and timers[0][0] <= now:
            turn = heapq.heappop(timers)[2]
            if turn.callback is not None:
                turn.context.get(_process, self.outside).ready.append(turn)

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Note no generator: each world ends all its tasks."""

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults.append(f"{context['message']}: {context.get('exception')!r} of {context.get('future')!r}")

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread to wake."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there is no selector."""
