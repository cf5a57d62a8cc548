"""The agent processes of an orchestrator: at most one for each instance, started when an event comes, with a pause
after crashes in a row, and ended when idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from oauthbroker.tools.orchestration.agent_process import AgentProcess
from oauthbroker.tools.orchestration.instances import Instance
from oauthbroker.tools.orchestration.ipc import IpcRefused, PeerGone, Serve
from oauthbroker.tools.orchestration.plan import SwarmPlan

MOST_IDLE: Final = 32  # processes that wait for their next event
TURN_SECONDS: Final = 3600.0
CONFIGURE_SECONDS: Final = 60.0
START_FAILED: Final = "E_AGENT_START"
CRASHES: Final = 5  # in a row, from which on a pause comes before the next start
MOST_PAUSE_MS: Final = 300_000
_DOUBLINGS: Final = 9  # 1000 * 2^9 is above the most


class StartFailed(IpcRefused):
    """A process could not load the code of its agent. `crashes`: how many ended in a row; 0 if it said why."""

    def __init__(self, error: Exception, crashes: int) -> None:
        refused = isinstance(error, IpcRefused)
        fault = f"the process ended while it loaded the agent, or took longer than {CONFIGURE_SECONDS:g} seconds"
        super().__init__(START_FAILED, str(error) if refused else fault)
        self.crashes = 0 if refused else crashes


def pause_ms(crashes: int) -> int:
    """Return the pause before a start after so many crashes in a row: min(1000 * 2^(n-1), 300000), n counted from the
    fifth."""
    if crashes < CRASHES:
        return 0
    return int(min(1000 * 2 ** min(crashes - CRASHES, _DOUBLINGS), MOST_PAUSE_MS))


class ProcessSlot:
    """The place of one instance's process. Its holder runs one turn."""

    def __init__(self, instance: Instance, workdir: Path, log: Callable[[str], None]) -> None:
        self.instance, self.workdir = instance, workdir
        self.turns = asyncio.Lock()
        self._crashes = 0  # in a row
        self._plan: SwarmPlan | None = None  # of the process
        self._log = log
        self._process: AgentProcess | None = None
        self._serve: Serve | None = None
        self._goes_on: dict[str, Serve] = {}  # by the handles of work that outlives its turn

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    @property
    def is_idle(self) -> bool:
        """Return whether no turn and no other work is under way."""
        return not (self.turns.locked() or self._goes_on)

    async def run_turn(self, config: Mapping[str, Any], serve: Serve, turn: Mapping[str, Any]) -> Any:
        """Run a turn in the process, which is started first if there is none. Raises IpcRefused and PeerGone."""
        self._serve = serve
        try:
            async with asyncio.timeout(TURN_SECONDS):
                process = await self._running(config)
                outcome = await process.ask("turn.begin", turn)
        except IpcRefused:
            raise
        except BaseException as error:
            self._crashes += 1
            await self.kill()
            if isinstance(error, TimeoutError):
                raise PeerGone from None
            raise
        finally:
            self._serve = None
        self._crashes = 0
        return outcome

    async def _running(self, config: Mapping[str, Any]) -> AgentProcess:
        if self._process is not None and not self._process.is_alive:
            await self.kill()
        if self._process is None:
            await asyncio.sleep(pause_ms(self._crashes) / 1000)
            self._process = await AgentProcess.start(self.instance.name, self.workdir, self._served, self._log)
            try:
                async with asyncio.timeout(CONFIGURE_SECONDS):
                    await self._process.ask("agent.configure", {**config, "workdir": str(self.workdir)})
            except (IpcRefused, PeerGone, TimeoutError) as error:
                await self.kill()
                self._crashes += not isinstance(error, IpcRefused)
                raise StartFailed(error, self._crashes) from None
        return self._process

    async def _served(self, kind: str, asked: dict[str, Any]) -> Any:
        handle = str(asked.get("handle"))
        serve = self._goes_on.pop(handle, None) if kind == "journal.complete" else self._serve
        if serve is None:
            raise IpcRefused("E_IPC", "no turn is under way")
        answer = await serve(kind, asked)
        if kind == "journal.submit":
            self._goes_on[handle] = serve
        return answer

    async def follow(self, plan: SwarmPlan) -> None:
        """Use a plan from now on: a process of another one is ended."""
        if self._plan is not plan:
            await self.kill()
        self._plan = plan

    async def kill(self) -> None:
        """End the process and all its work."""
        self._goes_on.clear()
        process, self._process = self._process, None
        if process is not None:
            await process.kill()

    async def stop(self, grace_seconds: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop(grace_seconds)


class Processes:
    """The slots of all instances. `workspaces` is the folder of their working directories."""

    def __init__(self, workspaces: Path, log: logging.Logger, scrub: Callable[[str], str]) -> None:
        self._workspaces, self._logger, self._scrub = workspaces, log, scrub
        self._slots: dict[Instance, ProcessSlot] = {}

    @asynccontextmanager
    async def held(self, instance: Instance, cwd: str | None = None) -> AsyncIterator[ProcessSlot]:
        """Hold the slot of an instance for one turn. The next turn of the instance waits. `cwd` is the working
        directory of an instance that was spawned with one."""
        slot = self._slots.pop(instance, None) or self._slot(instance, cwd)
        self._slots[instance] = slot  # the newest is the last
        async with slot.turns:
            yield slot
        await self._end_idle()

    async def stop(self, grace_seconds: float) -> None:
        """End all processes at once, each after the turn under way or the grace period."""
        await asyncio.gather(*(slot.stop(grace_seconds) for slot in self._slots.values()))

    async def _end_idle(self) -> None:
        idle = [slot for slot in self._slots.values() if slot.is_idle]
        ended: list[Awaitable[None]] = []
        for slot in idle[:-MOST_IDLE]:
            del self._slots[slot.instance]
            ended.append(slot.kill())
        await asyncio.gather(*ended)

    def _slot(self, instance: Instance, cwd: str | None) -> ProcessSlot:
        workdir = None if cwd is None else Path(cwd)
        if workdir is None or not workdir.is_dir():
            workdir = self._workspaces / instance.agent / instance.digest
            workdir.mkdir(mode=0o700, parents=True, exist_ok=True)

        def log(text: str) -> None:
            self._logger.info("%s printed: %s", instance.agent, self._scrub(text).rstrip())

        return ProcessSlot(instance, workdir, log)
