"""Processes of calls: their limits, and the walls between them and the rest of the machine, a user id of their own,
bubblewrap, both, or neither."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

_ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": "/nonexistent"}
_PATIENCE: Final = 8.0  # seconds: longer than the rounds of the supervisor
MIB: Final = 1024 * 1024
SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
_NEEDED: Final = (Path(sys.base_prefix), Path(sys.prefix), Path(__file__).parents[2])
_CAPABILITIES: Final = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_RESOURCE")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Limits of a call's processes. `memory` (of each process), `file_size` and `output` count bytes; `processes` holds
    only for a user id of its own, because the kernel counts all processes of a user."""

    seconds: float = 60.0
    cpu_seconds: int = 60
    memory: int = 1024 * MIB
    file_size: int = 64 * MIB
    open_files: int = 128
    processes: int = 64
    output: int = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """How processes are started. `user`: the user id that they run as, for a broker that is root. `bubblewrap`: the
    program, empty without it. `hidden`: files and folders that bubblewrap hides from them, such as the
    store's and the keys'."""

    user: int | None = None
    bubblewrap: str = ""
    hidden: Sequence[Path] = ()

    @property
    def told(self) -> str:
        """A sentence for operators."""
        user = "a user id of their own" if self.user is not None else "the user id of the agent"
        if self.bubblewrap:
            return f"Isolated tools run in bubblewrap, with {user}."
        if self.user is not None:
            return f"Isolated tools run with {user}, without bubblewrap: they see the files that it may read."
        return f"Isolated tools run with {user}, without bubblewrap: they can read its files and end its processes."

    @asynccontextmanager
    async def running(
        self,
        arguments: Sequence[str],
        *,
        workdir: Path,
        limits: CallLimits,
        descriptors: Sequence[int] = (),
        readable: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        output: bool = False,
    ) -> AsyncIterator[Process]:
        """Run a command, which begins with an absolute path, in `workdir`, with an environment that has no value of
        ours. All its processes end with the block. `readable`: folders beside those of Python and this package that it
        reads even if a hidden folder holds them. `writable`: folders that it writes beside `workdir`. `output`: its
        stdout, with stderr, is read by the caller; else both go nowhere."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self.command(arguments, limits, readable=readable, writable=[workdir, *writable]),
                stdin=DEVNULL,
                stdout=PIPE if output else DEVNULL,
                stderr=STDOUT if output else DEVNULL,
                env=_ENVIRONMENT,
                cwd=workdir,
                pass_fds=descriptors,
                start_new_session=True,
            )
        )
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:  # asyncio would kill the supervisor alone, and not the command below it
            await asyncio.shield(_end_started(starting))
            raise
        try:
            yield process
        finally:
            await asyncio.shield(_end(process))

    def command(
        self, arguments: Sequence[str], limits: CallLimits, *, writable: Sequence[Path], readable: Sequence[Path] = ()
    ) -> list[str]:
        """Return the command that runs `arguments` below the supervisor, in the first of the writable folders."""
        settings = json.dumps(asdict(limits) | {"user": self.user})
        supervised = [sys.executable, "-I", "-S", str(SUPERVISOR), settings, *arguments]
        return [*self._bubblewrap(writable, readable), *supervised] if self.bubblewrap else supervised

    def _bubblewrap(self, writable: Sequence[Path], readable: Sequence[Path]) -> list[str]:
        if any(folder.is_relative_to(each) for folder in self.hidden for each in writable):
            raise ValueError("the workdir of a tool has a folder in it that is hidden from tools")
        options = [self.bubblewrap, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc"]
        options += ["--unshare-uts", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
        for path in filter(Path.exists, self.hidden):
            options += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]
        shared = [*_NEEDED, *readable]
        for folder in dict.fromkeys(above for each in (*shared, *writable) for above in reversed(each.parents)):
            options += ["--perms", "0755", "--dir", str(folder)]
        for folder in shared:
            options += ["--ro-bind", str(folder), str(folder)]
        for folder in writable:
            options += ["--bind", str(folder), str(folder)]
        options += ["--chdir", str(writable[0])]
        if os.geteuid() == 0:
            options += ["--cap-drop", "ALL"]
        if self.user is None:
            return options
        return [*options, *(word for each in _CAPABILITIES for word in ("--cap-add", each))]


async def _end_started(starting: asyncio.Future[Process]) -> None:
    with suppress(OSError):  # it could not be started
        await _end(await starting)


async def _end(process: Process) -> None:
    """End the supervisor, which ends the others first; by force if it does not."""
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            while process.stdout is not None and await process.stdout.read(64 * 1024):
                pass  # asyncio counts a process as ended when its pipes are
            await process.wait()
            return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def detect_containment(*, user: int | None = None, hidden: Sequence[Path] = ()) -> Containment:
    """Return the strongest containment of this machine. `user` needs a broker that is root: raises ValueError else."""
    if user is not None and (os.geteuid() != 0 or user == 0):
        raise ValueError("a user id for isolated tools needs a runtime that is root, and an id that is not")
    program = shutil.which("bwrap") or ""
    found = Containment(user=user, bubblewrap=program, hidden=hidden)
    if program and not _starts(found):
        return Containment(user=user, hidden=hidden)
    return found


def _starts(containment: Containment) -> bool:
    """Return whether bubblewrap works here: a kernel or a container may forbid namespaces."""
    with tempfile.TemporaryDirectory() as workdir:
        command = containment.command(["/bin/true"], CallLimits(), writable=[Path(workdir)])
        try:
            return not subprocess.run(command, capture_output=True, timeout=20, check=False).returncode  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return False
