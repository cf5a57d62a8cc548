"""Go on with the runs that wait for a user, and with those that a killed process left. The database says which runs
those are. The events of the broker only say when to look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.journal import WAITING
from oauthbroker.flowtools.running.ports import AGENT
from oauthbroker.flowtools.running.working import FlowOf
from oauthbroker.plugins import on_thread

_LOG: Final = logging.getLogger("oauthbroker.flowtools")
LOOK_SECONDS: Final = 30.0
_AT_ONCE: Final = 16  # runs of one process
_AT_A_LOOK: Final = 100
_SETTLES: Final = 10  # looks at a run that is about to wait while its consent comes


@asynccontextmanager
async def resuming(
    broker: Broker, runs: FlowRuns, flow_of: FlowOf, *, seconds: float = LOOK_SECONDS, pool: Executor | None = None
) -> AsyncIterator[None]:
    """Go on with runs while the block runs: those that are due, and waiting ones whose authorization has ended.
    `flow_of` returns the flow of a run, or None for a run that is not ours. Work is in threads, of `pool` if it is
    given. `seconds` is the time between two looks; an event makes it look at once. Several processes may do this on one
    database. The end of the block waits for the runs under way: their requests need the broker. Raises `agentForwarded`
    if the events are."""
    resumer = _Resumer(broker, runs, flow_of, seconds=seconds, pool=pool)
    async with broker.on_granted(AGENT, resumer.on_granted), doing(resumer.work()):
        yield


@asynccontextmanager
async def doing(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do work while the block runs. The end of the block cancels it, and waits for its end."""
    task = asyncio.create_task(work)
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
        self._under_way = set[str]()

    async def on_granted(self, event: Any) -> None:
        """Let the run of an authorization that has ended go on, or fail, and look at once. The event is settled when
        that is written. One that is lost is no loss: the run asks at its deadline."""
        said = event.to_json()
        run, session = said["instanceKey"], said["payload"].get("authSessionId", "")
        if said["type"] == "auth.granted":
            for _ in range(_SETTLES):
                if not await on_thread(lambda: self._runs.consented(run), pool=self._pool):
                    break
                await asyncio.sleep(0.5)
        elif said["type"] not in {"auth.revoked", "auth.expiring"}:
            why = said["payload"].get("code", Code.STATE_EXPIRED.value)
            await on_thread(lambda: self._runs.refused(run, session, why), pool=self._pool)
        self._look.set()

    async def work(self) -> None:
        async with asyncio.TaskGroup() as group:
            while not self._broker.life.stopping:
                self._look.clear()
                if not await self._begin(group):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._look.wait(), self._seconds)

    async def _begin(self, group: asyncio.TaskGroup) -> bool:
        """Begin with the runs that are due. Return whether there are more of them."""
        try:
            due = await on_thread(lambda: self._runs.due(_AT_A_LOOK), pool=self._pool)
        except Exception as error:  # noqa: BLE001  (of the database: the next look comes)
            _LOG.error("no look for runs: %s", type(error).__name__)
            return False
        new = [(run, state) for run, state in due if run not in self._under_way]
        for run, state in new:
            await self._free.acquire()
            self._under_way.add(run)
            group.create_task(self._go_on(run, state))
        return bool(new) and len(due) == _AT_A_LOOK

    async def _go_on(self, run: str, state: str) -> None:
        try:
            if state == WAITING:
                await self._ask(run)
            await on_thread(lambda: self._runs.work(run, self._flow_of), pool=self._pool)
        except Exception as error:  # noqa: BLE001  (of one run: the others go on)
            word = error.code.value if isinstance(error, BrokerError) else type(error).__name__
            level = logging.DEBUG if word == Code.STORE_LOCKED.value else logging.ERROR  # it goes on at the next look
            _LOG.log(level, "the run %s did not go on: %s", run, word)
        finally:
            self._free.release()
            self._under_way.discard(run)

    async def _ask(self, run: str) -> None:
        """Ask at the deadline of a waiting run whether its user has consented: its event may be lost."""
        session = await on_thread(lambda: self._runs.session(run), pool=self._pool)
        if not session:
            return
        outcome = await self._broker.wait(session, timeout=0)
        if outcome.status == "completed":
            await on_thread(lambda: self._runs.consented(run), pool=self._pool)
        elif outcome.code is not None:
            why = outcome.code.value
            await on_thread(lambda: self._runs.refused(run, session, why), pool=self._pool)
