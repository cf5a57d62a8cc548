"""An agent process as the orchestrator holds it, and the user of all of them, with the files that they see."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from oauthbroker import Broker
from oauthbroker.tools.isolation.containment import NO_SANDBOX, Containment, detect_containment, ends_well, opened
from oauthbroker.tools.isolation.places import INTERPRETER, group_of
from oauthbroker.tools.orchestration.agent_output import AgentOutput
from oauthbroker.tools.orchestration.ipc import MOST_LINE, Peer, PeerGone, Serve
from oauthbroker.tools.orchestration.plan import SwarmPlan

_UNIX: Final = "unix:"
MODULE: Final = "oauthbroker.tools.orchestration.agent_worker"
ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
Commands = Callable[[Sequence[str], int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUser:
    """Starts processes as the user. `workspaces`: the folder of all working directories, of which a process sees its
    own alone. `changesets`: the folder of worktrees, if there is one. `address`: that of the broker's API."""

    containment: Containment
    workspaces: Path
    changesets: Path | None
    address: str

    def command(self, arguments: Sequence[str], config: Mapping[str, Any], workdir: tuple[Path, int]) -> list[str]:
        """Return the command of an agent process with its configuration. `workdir`: with a descriptor."""
        readable = [Path(config["folder"])]
        if self.address.startswith(_UNIX):
            readable.append(Path(self.address.removeprefix(_UNIX)))
        writable: dict[Path, int | None] = {} if self.changesets is None else {self.changesets: None}
        containment = replace(self.containment, hidden=[Path(each) for each in self.hidden(config)])
        return containment.agent_command(arguments, readable=readable, writable=writable | dict([workdir]))

    def hidden(self, config: Mapping[str, Any]) -> list[str]:
        """Return what no tool sees beside its own folders: secret places, and the folders of other instances."""
        folders = [self.workspaces] if self.changesets is None else [self.workspaces, self.changesets]
        return [*config["hidden"], *map(str, folders)]

    def give(self, folder: Path) -> None:
        """Give a folder of the runtime, and all in it, to the user. Call it before any tool sees the folder."""
        if (user := self.containment.user) is not None:
            for each in _all_in(folder):
                os.chown(each, user, group_of(user), follow_symlinks=False)

    def show(self, folder: Path, *, entered: Path) -> None:
        """Let the group of the user read a folder of the runtime, and all in it, and pass through another one."""
        if (user := self.containment.user) is not None:
            for each in (entered, *_all_in(folder)):
                os.chown(each, -1, group_of(user))
                each.chmod(each.stat().st_mode | (0o010 if each == entered else 0o050 if each.is_dir() else 0o040))


def _all_in(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def agents_containment(broker: Broker, user: int | None, plans: Iterable[SwarmPlan] = ()) -> Containment:
    """Return how agent processes are started. Raises ValueError for a runtime that is root without a user, for a user
    that cannot run Python or needs no token at the broker's socket, and for isolated tools without a sandbox."""
    found = Containment() if user is None and os.geteuid() != 0 else detect_containment(user=user)
    runs_as = os.geteuid() if found.user is None else found.user
    listener = broker.bundle.settings.api_socket
    if listener is not None and any(each.uid == runs_as for each in listener.callers):
        raise ValueError(
            f"spec.api.socket.callers admits the user id {runs_as}, which agents and tools would have: each could ask"
            " for any user's tokens. Run the agents as another user, or remove the id there and use an API key"
        )
    if found.user is not None and not _runs_python(found):
        raise ValueError(
            f"the user id {found.user} cannot run {INTERPRETER}: install bubblewrap, which shows it this Python, or"
            " let that user read it"
        )
    if any(map(_needs_sandbox, plans)) and not detect_containment(user=user).bubblewrap:
        raise ValueError(NO_SANDBOX)
    return found


def _needs_sandbox(plan: SwarmPlan) -> bool:
    return any(
        not agent["weakIsolation"] and any("isolation" in tool for tool in agent["tools"].values())
        for agent in plan.agents.values()
    )


def _runs_python(containment: Containment) -> bool:
    return ends_well(containment.agent_command([INTERPRETER, "-I", "-S", "-c", ""]))


class AgentProcess:
    """A process in a process group of its own: started, asked, shut down, killed."""

    def __init__(self, process: asyncio.subprocess.Process, peer: Peer, reading: asyncio.Future[Any]) -> None:
        self._process, self._peer, self._reading = process, peer, reading

    @classmethod
    async def start(
        cls, name: str, workdir: Path, command: Commands, serve: Serve, output: AgentOutput
    ) -> AgentProcess:
        """Start a process, whose output is not buffered. Its environment has no variable of ours. `command` returns how
        the worker is run, from its arguments and the descriptor of `workdir`, no part of which may be a symbolic link.
        Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            with opened([workdir]) as folders:
                here = folders[workdir]
                process = await asyncio.create_subprocess_exec(
                    *command([INTERPRETER, "-I", "-u", "-m", MODULE, str(theirs.fileno())], here),
                    pass_fds=(theirs.fileno(), here),
                    start_new_session=True,
                    env=ENVIRONMENT,
                    cwd=f"/proc/self/fd/{here}",
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            streams = await asyncio.open_unix_connection(sock=ours, limit=MOST_LINE)
        except BaseException:
            ours.close()
            _kill_group(process)
            raise
        peer = Peer(streams, "orchestrator", name)
        assert process.stdout is not None  # noqa: S101  (a pipe was asked for)
        reading = asyncio.gather(peer.run(serve), output.read(process.stdout))
        return cls(process, peer, reading)

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None and not self._reading.done()

    async def ask(self, kind: str, payload: Mapping[str, Any]) -> Any:
        """Ask the process. Raises IpcRefused, and PeerGone if it ends before it answers."""
        return await self._peer.ask(kind, payload)

    async def stop(self, grace_seconds: float) -> None:
        """End the process after the turn under way, and after the grace period kill its group."""
        with suppress(PeerGone, TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._peer.shut_down()
                await self._peer.shutdown_acknowledged.wait()
        await self.kill()

    async def kill(self) -> None:
        """Kill the process group and wait for its end. Idempotent."""
        _kill_group(self._process)
        await self._process.wait()
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
