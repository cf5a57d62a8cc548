"""The parent of several workers: opens the sockets, starts and restarts workers, forwards signals, ends last.

Workers are fresh interpreters: this process runs a loop with threads, and a fork would inherit locked locks. Each
hardens itself and reads its key itself: the parent never opens the store.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import oauthbroker
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.refused import CRASHED, REFUSED, TEMPORARY, Refused, RefusedForNow
from oauthbroker.observability.library_log import calm_libraries
from oauthbroker.observability.logging import Log
from oauthbroker.serving.listeners import Listeners
from oauthbroker.serving.signals import AGAIN, on_signals
from oauthbroker.workers.post import Post

ATTEMPTS = 5
STEADY_SECONDS = 30.0  # a worker that lived this long did not fail at its start
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


@dataclass(slots=True, kw_only=True)
class WorkerSlot:
    """One worker's slot: its process, and the number of failed starts in a row."""

    number: int
    process: asyncio.subprocess.Process | None = None
    ready: bool = False
    reload_when_ready: bool = False
    failures: int = 0
    last_status: int = 0

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


@dataclass(slots=True, kw_only=True)
class Parent:
    """Runs `workers` processes on the same listeners. `pauses`: the first and the longest pause before a restart;
    `on_serving` is called once the first worker serves."""

    config: Path
    listeners: Listeners
    workers: int
    clock: Clock
    log: Log
    pauses: tuple[float, float] = (FIRST_PAUSE, LONGEST_PAUSE)
    on_serving: Callable[[], None] = lambda: None
    _places: list[WorkerSlot] = field(init=False)
    _ending: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _serving: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _gave_up: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._places = [WorkerSlot(number=number) for number in range(1, self.workers + 1)]

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT. Returns 0 if every worker ended well. Raises Refused if none can start."""
        with on_signals(self._end, self._reload), calm_libraries(self.log), _metrics_folder() as metrics:
            first = asyncio.create_task(self._tend(self._places[0], metrics))
            await _either(first, self._serving.wait())  # all would refuse the same setting: it is reported once
            await asyncio.gather(first, *(self._tend(place, metrics) for place in self._places[1:]))
        if self._gave_up is not None:
            raise (RefusedForNow if self._gave_up == TEMPORARY else Refused)(
                f"The workers end as soon as they begin (status {self._gave_up}). Fix the errors above and start again."
            )
        return CRASHED if any(place.last_status for place in self._places) else 0

    def _end(self) -> None:
        """Forward the signal. The workers treat the first and the next ones as a single process does."""
        self._ending.set()
        self.listeners.close()
        for place in self._places:
            place.send(signal.SIGTERM)

    def _reload(self) -> None:
        """Forward SIGHUP. A worker that is still starting would die of it, so it gets the signal once it serves."""
        for place in self._places:
            if place.ready:
                place.send(AGAIN)
            else:
                place.reload_when_ready = True

    async def _tend(self, place: WorkerSlot, metrics: str) -> None:
        while not self._ending.is_set():
            began = self.clock.monotonic()
            status = await self._live(place, metrics)
            was_ready, place.ready = place.ready, False
            if self._ending.is_set():
                place.last_status = status if was_ready else 0
                return
            lived = self.clock.monotonic() - began
            place.failures = 1 if was_ready and lived >= STEADY_SECONDS else place.failures + 1
            if self._is_hopeless(place, status):
                self._gave_up = status
                self._end()
                return
            pause = min(self.pauses[0] * 2 ** (place.failures - 1), self.pauses[1]) * self.clock.jitter(0.8, 1.2)
            self.log.error("a worker ended", worker=place.number, status=status, again_in=round(pause, 1))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)

    async def _live(self, place: WorkerSlot, metrics: str) -> int:
        """Run one process from start to end; returns its status, negative for a signal."""
        read, write = os.pipe()
        post = Post(
            number=place.number,
            of=self.workers,
            parent=os.getpid(),
            ready=write,
            fds=self.listeners.to_fds(),
            metrics_folder=metrics,
        )
        try:
            place.process = await asyncio.create_subprocess_exec(
                *self._command(post),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(write, *chain.from_iterable(post.fds.values())),
                process_group=0,  # we forward Ctrl-C ourselves
            )
        except OSError:
            return CRASHED
        finally:
            os.close(write)
            watching = asyncio.create_task(self._watch(place, read))
        if self._ending.is_set():  # shutdown began while it was starting
            place.send(signal.SIGTERM)
        status = await place.process.wait()
        await watching
        return status

    async def _watch(self, place: WorkerSlot, read: int) -> None:
        """Wait until the worker reports that it serves, or has died."""
        loop, reported = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(read, reported.set)
        try:
            await reported.wait()
        finally:
            loop.remove_reader(read)
        place.ready = bool(os.read(read, 1))
        os.close(read)
        if not place.ready:
            return
        if not self._serving.is_set():
            self._serving.set()
            self.on_serving()
        if place.reload_when_ready:
            place.reload_when_ready = False
            place.send(AGAIN)

    def _command(self, post: Post) -> list[str]:
        """Return the command for the same interpreter and code. Modules are imported from the working folder only if
        we are."""
        here = Path(oauthbroker.__file__).resolve().parents[1] == Path.cwd()
        flags = [] if here else ["-P"]
        words = ["serve", "--config", str(self.config), "--worker-post", post.to_text()]
        return [sys.executable, *flags, "-m", "oauthbroker", *words]

    def _is_hopeless(self, place: WorkerSlot, status: int) -> bool:
        """Tell whether no worker can start: the very first was refused, or one has failed too often at its start."""
        if any(each.ready for each in self._places):
            return False
        return place.failures >= ATTEMPTS or (status in {REFUSED, TEMPORARY} and not self._serving.is_set())


async def _either(task: asyncio.Task[None], other: Coroutine[Any, Any, Any]) -> None:
    """Wait until the task or the other one is done."""
    waiting = asyncio.create_task(other)
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@contextmanager
def _metrics_folder() -> Iterator[str]:
    """Create a private folder for the workers' counts, so that each can report the sum. Raises Refused."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="oauthbroker-", ignore_cleanup_errors=True)
    except OSError:
        raise Refused(
            "There is no folder for temporary files, and several workers need one. Set TMPDIR to one."
        ) from None
    with folder as name:
        yield name
