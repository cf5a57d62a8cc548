"""An agent process as the orchestrator holds it: started in a process group of its own, asked, shut down, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from oauthbroker.tools.isolation.containment import opened
from oauthbroker.tools.orchestration.agent_output import AgentOutput
from oauthbroker.tools.orchestration.ipc import MOST_LINE, Peer, PeerGone, Serve

MODULE: Final = "oauthbroker.tools.orchestration.agent_worker"
ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
Commands = Callable[[Sequence[str], int], Sequence[str]]


class AgentProcess:
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
                    *command([sys.executable, "-I", "-u", "-m", MODULE, str(theirs.fileno())], here),
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
