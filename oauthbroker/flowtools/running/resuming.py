"""Go on with the runs that wait for a user, and with those that a killed process left.

The database says which runs those are. The events of the broker only say when to look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.failures import RefusedConsent
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.running.ports import AGENT

if TYPE_CHECKING:
    from oauthbroker import Broker

_LOG: Final = logging.getLogger("oauthbroker.flowtools")
LOOK_SECONDS: Final = 30.0
_SETTLES: Final = 10.0  # seconds from an event to the end of its session, which is written after it
_AT_ONCE: Final = 16  # runs of one process
FlowOf = Callable[[RunRecord], ReadyFlow | None]
T = TypeVar("T")


@asynccontextmanager
async def resuming(
    broker: Broker,
    runs: FlowRuns,
    flow_of: FlowOf,
    *,
    seconds: float = LOOK_SECONDS,
    pool: Executor | None = None,
) -> AsyncIterator[None]:
    """Go on with runs while the block runs: parked ones whose authorization has ended, and abandoned ones.

    `flow_of` returns the flow of a run, or None for a run that is not ours. It and the runs work in threads, of `pool`
    if it is given. `seconds` is the time between two looks; an event makes it look at once. Several processes may do
    this on one database. The end of the block waits for the runs that are under way: their requests need the broker.
    Raises `agentForwarded` if the configuration forwards the events of `flowtools`.
    """
    resumer = _Resumer(broker, runs, flow_of, seconds=seconds, pool=pool)
    async with broker.on_granted(AGENT, resumer.told):
        task = asyncio.create_task(resumer.work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _Resumer:
    def __init__(
        self, broker: Broker, runs: FlowRuns, flow_of: FlowOf, *, seconds: float, pool: Executor | None
    ) -> None:
        self._broker, self._runs, self._flow_of, self._seconds, self._pool = broker, runs, flow_of, seconds, pool
        self._look, self._free = asyncio.Event(), asyncio.Semaphore(_AT_ONCE)
        self._under_way, self._told = set[str](), set[str]()

    async def told(self, event: Any) -> None:
        """Look at once: an authorization has ended."""
        self._told.add(event.to_json()["payload"].get("authSessionId", ""))
        self._look.set()

    async def work(self) -> None:
        async with asyncio.TaskGroup() as group:
            while not self._broker.life.stopping:
                self._look.clear()
                told, self._told = self._told, set()
                try:
                    for run, session in await to_its_end(self._runs.left, self._pool):
                        if run.id not in self._under_way:
                            self._under_way.add(run.id)
                            group.create_task(self._go_on(run, session, _SETTLES if session in told else 0.0))
                except Exception as error:  # noqa: BLE001  (of the database: the next look comes)
                    _LOG.error("no look for runs: %s", type(error).__name__)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._look.wait(), self._seconds)

    async def _go_on(self, run: RunRecord, session: str, patience: float) -> None:
        try:
            async with self._free:
                refused = None
                if session:
                    outcome = await self._broker.wait(session, timeout=patience)
                    if outcome.status == "pending":
                        return
                    if outcome.status != "completed":
                        refused = RefusedConsent(session=session, why=(outcome.code or Code.STATE_EXPIRED).value)
                await to_its_end(lambda: self._resume(run, refused), self._pool)
        except Exception as error:  # noqa: BLE001  (of one run: the others go on)
            word = error.code.value if isinstance(error, BrokerError) else type(error).__name__
            level = logging.DEBUG if word == Code.STORE_LOCKED.value else logging.ERROR  # it goes on at the next look
            _LOG.log(level, "the run %s did not go on: %s", run.id, word)
        finally:
            self._under_way.discard(run.id)

    def _resume(self, run: RunRecord, refused: RefusedConsent | None) -> None:
        flow = self._flow_of(run)
        if flow is not None:
            self._runs.resume(flow, run.id, refused=refused)


async def to_its_end(work: Callable[[], T], pool: Executor | None = None) -> T:
    """Run work on a thread, of `pool` if it is given, and wait for its end also when the caller is cancelled: a run
    still uses the broker."""
    thread = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise
