"""Processes of calls: their limits, and the walls between them and the rest of the machine: a sandbox of bubblewrap,
and a user id of their own where the runtime is root."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from oauthbroker.tools.isolation import places
from oauthbroker.tools.isolation.places import Mounts, Paths
from oauthbroker.tools.isolation.seccomp import filter_program

_ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": "/nonexistent"}
_PATIENCE: Final = 8.0  # seconds: longer than the END_SECONDS of the supervisor
MIB: Final = 1024 * 1024
SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
AS_USER: Final = Path(__file__).with_name("as_user.py")
_INSIDE: Final = "1000"  # the user and group id of a tool in its own user namespace
_CAPABILITIES: Final = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_RESOURCE")
_PYTHON: Final = (places.INTERPRETER, "-I", "-S")
ROOT_NEEDS_USER: Final = (
    "this runtime is root, and tools would be root too: name a user of their own, as in `tools run --user oauthtools`"
    " or `user=4711` in a program, or run it as another user"
)

NO_SANDBOX: Final = (
    "a tool with `isolation: process` needs a sandbox, and bubblewrap cannot make one here: install a bwrap that knows"
    " `--bind-fd`, and allow user namespaces; for development on one machine write weaken: [toolIsolation] in the"
    " Broker resource"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Limits of a call's processes. `memory` (of each process), `file_size` (of each file, and of each folder that the
    sandbox keeps in memory) and `output` count bytes; `processes` holds in a sandbox, or for a user id of its own."""

    seconds: float = 60.0
    cpu_seconds: int = 60
    memory: int = 1024 * MIB
    file_size: int = 64 * MIB
    open_files: int = 128
    processes: int = 64
    output: int = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a call may use of the machine beside Python and this package. `readable` and `writable`: folders. `sockets`:
    files of Unix sockets. `network`: the machine's own network, else none."""

    readable: Sequence[Path] = ()
    writable: Sequence[Path] = ()
    sockets: Sequence[Path] = ()
    network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """How processes are started. `user`: the user id that they run as, for a runtime that is root. `bubblewrap`: the
    program, empty without a sandbox. `hidden`: files and folders that no sandbox shows, such as the store's and the
    keys'."""

    user: int | None = None
    bubblewrap: str = ""
    hidden: Paths = ()

    @property
    def summary(self) -> str:
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
        access: Access = Access(),
        descriptors: Sequence[int] = (),
        output: bool = False,
    ) -> AsyncIterator[Process]:
        """Run a command, which begins with an absolute path, in `workdir`, with an environment that has no value of
        ours. All its processes end with the block. `output`: its stdout, with stderr, is read by the caller; else both
        go nowhere. Raises OSError, also if a part of `workdir` is a symbolic link, and ValueError."""
        with opened([workdir, *(access.writable if self.bubblewrap else ())]) as folders, _filter() as seccomp:
            sandbox = self.sandbox(folders, access, limits, seccomp).values() if self.bubblewrap else ()
            command = self.command([*(word for line in sandbox for word in line), *arguments], limits, folders, access)
            starting = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *command,
                    stdin=DEVNULL,
                    stdout=PIPE if output else DEVNULL,
                    stderr=STDOUT if output else DEVNULL,
                    env=_ENVIRONMENT,
                    cwd=f"/proc/self/fd/{folders[workdir]}",
                    pass_fds=[*descriptors, *folders.values(), *([seccomp] if self.bubblewrap else [])],
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
        self, arguments: Sequence[str], limits: CallLimits, folders: Mapping[Path, int], access: Access
    ) -> list[str]:
        """Return the command that runs `arguments` below the supervisor. It stays outside of the sandbox, where a tool
        can neither end nor trace it."""
        user, group = (-1, -1) if self.user is None else (self.user, places.group_of(self.user))
        processes = -1 if self.user is None or self.bubblewrap else limits.processes  # in a sandbox the worker does it
        most = (limits.memory, limits.cpu_seconds, limits.file_size, limits.open_files, processes)
        supervised = [*_PYTHON, str(SUPERVISOR), *map(str, (*most, user, group)), *arguments]
        if self.user is None or not self.bubblewrap:
            return supervised
        readable = [*access.readable, *access.sockets]
        mounts = places.agent_mounts(self.user, readable=readable, writable=dict.fromkeys(folders), hidden=[])
        return [*self._as_root(mounts), *supervised]

    def agent_command(
        self, arguments: Sequence[str], *, readable: Paths = (), writable: Mapping[Path, int | None] | None = None
    ) -> list[str]:
        """Return the command that runs an agent process, which begins with an absolute path: as the user, and with the
        machine as that user sees it."""
        if self.user is None:
            return [*arguments]
        become = [*_PYTHON, str(AS_USER), str(self.user), str(places.group_of(self.user)), *arguments]
        if not self.bubblewrap:
            return become
        mounts = places.agent_mounts(self.user, readable=readable, writable=writable or {}, hidden=self.hidden)
        return [*self._as_root(mounts), *become]

    def sandbox(
        self, folders: Mapping[Path, int], access: Access, limits: CallLimits, seccomp: int
    ) -> dict[str, list[str]]:
        """Return the options of a sandbox by what each is for. It is built from nothing."""
        lines = {
            "program": [self.bubblewrap],
            "user namespace": ["--unshare-user", "--uid", _INSIDE, "--gid", _INSIDE],
            "processes": ["--unshare-pid"],
            "shared memory": ["--unshare-ipc"],
            "host name": ["--unshare-uts", "--hostname", "sandbox"],
            "network": [] if access.network else ["--unshare-net"],
            "session": ["--new-session"],
            "end": ["--die-with-parent"],
            "system calls": ["--seccomp", str(seccomp)] if filter_program() else [],
        }
        size = limits.file_size
        mounts = places.sandbox_mounts(access.readable, access.sockets, writable=folders, hidden=self.hidden, size=size)
        lines |= {f"mount {path}": options for path, options in mounts.items()}
        last = [path for path, words in mounts.items() if words == places.empty_folder(path)]  # they have mounts now
        return lines | {f"read-only {path}": ["--remount-ro", str(path)] for path in (*last, "/dev", "/")}

    def _as_root(self, mounts: Mounts) -> list[str]:
        """Return how root starts a program that becomes another user, with these mounts."""
        given = [word for each in _CAPABILITIES for word in ("--cap-add", each)]
        options = [word for each in mounts.values() for word in each]
        return [self.bubblewrap, "--die-with-parent", *options, "--cap-drop", "ALL", *given, "--"]


@contextmanager
def opened(folders: Sequence[Path]) -> Iterator[dict[Path, int]]:
    """Open folders, none of which is reached by a symbolic link. Raises OSError."""
    with ExitStack() as open_ones:
        found = dict[Path, int]()
        for each in folders:
            found[each] = places.opened_folder(each)
            open_ones.callback(os.close, found[each])
        yield found


@contextmanager
def _filter() -> Iterator[int]:
    """Yield a file in memory with the filter of system calls."""
    descriptor = os.memfd_create("filter")
    try:
        os.write(descriptor, filter_program())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


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
    """Return the strongest containment of this machine. Raises ValueError for a runtime that is root and names no
    `user`, or names one although it is not."""
    if os.geteuid() == 0 and not user:
        raise ValueError(ROOT_NEEDS_USER)
    if user is not None and os.geteuid() != 0:
        raise ValueError("a user id for tools needs a runtime that is root")
    found = Containment(user=user, bubblewrap=shutil.which("bwrap") or "", hidden=hidden)
    if found.bubblewrap and not _starts(found):
        return Containment(user=user, hidden=hidden)
    return found


def _starts(containment: Containment) -> bool:
    """Return whether bubblewrap works here: a kernel or a container may forbid namespaces."""
    place = Path(tempfile.gettempdir()).resolve()
    limits = CallLimits()
    with opened([place]) as folders, _filter() as seccomp:
        lines = replace(containment, hidden=()).sandbox(folders, Access(), limits, seccomp)
        words = [word for line in lines.values() for word in line]
        command = containment.command([*words, "/bin/true"], limits, folders, Access())
        return ends_well(command, [*folders.values(), seccomp])


def ends_well(command: Sequence[str], descriptors: Sequence[int] = ()) -> bool:
    """Run a command of ours that has nothing to do. Return whether it could be started and has ended well."""
    try:
        ran = subprocess.run(command, capture_output=True, pass_fds=descriptors, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0
