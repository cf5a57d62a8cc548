"""What a tool with `isolation: process` does not get past, and that each line of its sandbox keeps it from something."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.config.reading.files import configuration_files
from oauthbroker.tools.isolation.containment import MIB, Access, CallLimits, Containment, detect_containment
from oauthbroker.tools.isolation.process_tool import ProcessTool
from oauthbroker.tools.types.failures import ToolFailure
from tests.kit.agent_bundle import USER, given
from tests.kit.processes import running_here
from tests.unit.tools.contexts import context

SANDBOX = detect_containment(user=USER)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SANDBOX.bubblewrap, reason="needs bubblewrap that may make namespaces"),
]
CANARY = "canary-of-the-machine"
LIMITS = CallLimits(seconds=30, memory=512 * MIB, file_size=8 * MIB, processes=20)
SEGMENT = 0x0A17B0C5  # the key of a System V segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A bundle with an entry beside its configuration, its store and the workspaces, and what else a machine has."""

    bundle: Path
    hidden: list[Path]
    attempt: dict[str, Any]

    @property
    def entry(self) -> Path:
        return self.bundle / "escape_tool.py"

    @property
    def workdir(self) -> Path:
        return self.bundle / "workspaces" / "planner" / "alice"

    def tool(self, containment: Containment, **more: Any) -> ProcessTool:
        return ProcessTool(entry=self.entry, containment=containment, limits=LIMITS, **more)

    async def escapes(self, containment: Containment) -> dict[str, str]:
        got: dict[str, str] = await self.tool(containment).call("escape", context(workdir=self.workdir), self.attempt)
        return got


def _files(bundle: Path) -> tuple[list[Path], list[Path]]:
    """Write the files of the bundle. Return those with a secret, and the places to hide."""
    secrets = [bundle / each for each in ("broker.yaml", "more/app.yml", ".env", ".git/config", "store/grants/a")]
    secrets += [bundle / each for each in ("key.kek", "store-flows.db", "workspaces/planner/bob/notes")]
    for each in secrets:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text(CANARY)
    places = [bundle / each for each in ("store", "key.kek", "store-flows.db", "workspaces")]
    return secrets, [*places, *configuration_files(bundle, deep=True)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    bundle = tmp_path_factory.mktemp("bundle")
    bundle.chmod(0o755)
    shutil.copy(Path(__file__).with_name("escape_tool.py"), bundle)
    secrets, hidden = _files(bundle)
    workdir = bundle / "workspaces" / "planner" / "alice"
    workdir.mkdir(parents=True)
    shared, libc, key = Path("/dev/shm") / f"canary-{os.getpid()}", ctypes.CDLL(None), SEGMENT + os.getpid()
    with ExitStack() as stack:
        broker, abstract, server = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()
        for line, address in ((broker, str(bundle / "api.sock")), (abstract, f"\0{CANARY}-{key}"), (server, ("", 0))):
            stack.enter_context(line).bind(address)
            line.listen()
        (bundle / "api.sock").chmod(0o666)
        shared.write_text(CANARY)
        stack.callback(shared.unlink)
        segment = libc.shmget(key, 4096, 0o1666)
        stack.callback(libc.shmctl, segment, 0, None)  # IPC_RMID
        victim = subprocess.Popen(
            ["sleep", "300"], env={"SECRET": CANARY}, user=USER, extra_groups=[] if USER else None
        )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        given(workdir)
        attempt = {
            "canary": CANARY,
            "secrets": [*map(str, secrets), str(shared)],
            "socket": str(bundle / "api.sock"),
            "abstract": f"{CANARY}-{key}",
            "port": server.getsockname()[1],
            "victim": victim.pid,
            "entry": str(bundle / "escape_tool.py"),
            "segment": key,
            "shared": str(shared),
            "size": LIMITS.file_size,
            "processes": LIMITS.processes,
            "user": USER if USER is not None else os.getuid(),
        }
        yield Machine(bundle=bundle, hidden=[*hidden, bundle / "api.sock"], attempt=attempt)


async def test_a_tool_gets_nothing_of_the_machine(machine):
    assert {} == await machine.escapes(replace(SANDBOX, hidden=machine.hidden))
    made = machine.workdir / "file"
    assert (machine.attempt["user"], 0) == (made.stat().st_uid, made.stat().st_mode & 0o6000)


class Weaker(Containment):
    """A sandbox without one of its lines."""

    without = ""

    def sandbox(self, *given: Any) -> dict[str, list[str]]:
        lines = super().sandbox(*given)
        assert self.without in lines
        return {name: words for name, words in lines.items() if name != self.without}


def lines_of(machine: Machine) -> dict[str, list[str]]:
    access = Access(readable=[machine.bundle])
    containment = replace(SANDBOX, hidden=machine.hidden)
    return containment.sandbox({machine.workdir: 0}, access, LIMITS, 0)


async def holds(machine: Machine, containment: Containment) -> bool:
    """Return whether a sandbox works, shows all its paths and holds."""
    shown = [name.partition(" ")[2] for name in lines_of(machine) if name.startswith("mount ")]
    try:
        tool = machine.tool(containment)
        missing = await tool.call("missing", context(workdir=machine.workdir), {"shown": shown})
        return not missing and not await machine.escapes(containment) and await ends(machine, containment)
    except (ToolFailure, OSError):
        return False


async def ends(machine: Machine, containment: Containment) -> bool:
    """Return whether the processes of a call end with its supervisor. All of them name the bundle, and no other does."""
    tool = replace(machine.tool(containment), limits=replace(LIMITS, seconds=5))
    call = asyncio.create_task(tool.call("sleeps", context(workdir=machine.workdir), {}))
    supervisors: list[int] = []
    while not supervisors and not call.done():
        await asyncio.sleep(0.02)
        supervisors = [pid for pid in running_here(str(machine.bundle)) if _is_supervisor(pid)]
    await asyncio.sleep(0.3)
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(ToolFailure):
        await call
    for _ in range(100):
        if not (left := running_here(str(machine.bundle))):
            return True
        await asyncio.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return False


def _is_supervisor(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[:3] == [sys.executable.encode(), b"-I", b"-S"]


async def test_the_whole_sandbox_holds(machine):
    assert await holds(machine, replace(SANDBOX, hidden=machine.hidden))


async def test_each_line_of_the_sandbox_is_needed(machine):
    """Take each line away, one after another: the sandbox starts no tool, lacks something, or lets something out."""
    needless = []
    for name in (name for name, words in lines_of(machine).items() if words):
        without = type("Without", (Weaker,), {"without": name})
        weaker = without(user=SANDBOX.user, bubblewrap=SANDBOX.bubblewrap, hidden=machine.hidden)
        needless += [name] if await holds(machine, weaker) else []
    assert [] == needless
