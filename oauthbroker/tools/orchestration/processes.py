"""The agent processes of an orchestrator: one for each instance, with a pause after crashes in a row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from oauthbroker.tools.orchestration.agent_output import AgentOutput
from oauthbroker.tools.orchestration.agent_user import AgentProcess, AgentUser
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
    """Return the pause before a start after so many crashes in a row: min(1000 * 2^(n-1), 300000), n from the fifth."""
    if crashes < CRASHES:
        return 0
    return int(min(1000 * 2 ** min(crashes - CRASHES, _DOUBLINGS), MOST_PAUSE_MS))


class ProcessSlot:
    """The place of one instance's process. Its holder runs one turn."""

    def __init__(self, instance: Instance, workdir: Path, *, user: AgentUser, output: AgentOutput) -> None:
        self.instance, self.workdir = instance, workdir
        self._user = user
        self.turns = asyncio.Lock()
        self.users = 0  # turns under way and turns that wait
        self._crashes = 0  # in a row
        self._plan: SwarmPlan | None = None  # of the process
        self._output = output
        self._process: AgentProcess | None = None
        self._serve: Serve | None = None
        self._goes_on: dict[str, Serve] = {}  # by the handles of work that outlives its turn

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    @property
    def is_idle(self) -> bool:
        """Return whether no work is under way, and no turn waits: the lock is free for a moment between two."""
        return not (self.users or self._goes_on)

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
            process = self._process = await self._started(config)
            try:
                async with asyncio.timeout(CONFIGURE_SECONDS):
                    own = {"workdir": str(self.workdir), "hidden": self._user.hidden(config)}
                    await process.ask("agent.configure", {**config, **own})
            except (IpcRefused, PeerGone, TimeoutError) as error:
                await self.kill()
                self._crashes += not isinstance(error, IpcRefused)
                raise StartFailed(error, self._crashes) from None
            return process  # `stop` may have taken it from its place meanwhile
        return self._process

    async def _started(self, config: Mapping[str, Any]) -> AgentProcess:
        def command(arguments: Sequence[str], descriptor: int) -> list[str]:
            return self._user.command(arguments, config, (self.workdir, descriptor))

        return await AgentProcess.start(self.instance.name, self.workdir, command, self._served, self._output)

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
    def __init__(self, user: AgentUser, log: logging.Logger, scrub: Callable[[str], str]) -> None:
        self._user, self._logger, self._scrub = user, log, scrub
        self._slots: dict[Instance, ProcessSlot] = {}

    @asynccontextmanager
    async def held(self, instance: Instance, cwd: str | None = None) -> AsyncIterator[ProcessSlot]:
        """Hold the slot of an instance for one turn. `cwd`: the folder with which it was spawned."""
        slot = self._slots.pop(instance, None) or self._slot(instance, cwd)
        self._slots[instance] = slot  # the newest is the last
        slot.users += 1
        try:
            async with slot.turns:
                yield slot
        finally:
            slot.users -= 1
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
        if workdir is None or not workdir.is_dir() or workdir.resolve() != workdir:  # a link may have taken its place
            workdir = self._user.workspaces / instance.agent / instance.digest
            if not workdir.is_dir():
                workdir.mkdir(mode=0o700, parents=True)
                self._user.give(workdir)
        output = AgentOutput(instance.name, self._logger, self._scrub)
        return ProcessSlot(instance, workdir, user=self._user, output=output)
