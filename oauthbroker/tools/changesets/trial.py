"""The trial of a revision before it is accepted: its agents are loaded as their processes would load them, in a process
of its own within the walls of isolated tools. Reading the files alone cannot tell whether their code starts."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from oauthbroker import BrokerError, check_config
from oauthbroker.plugins import read_resources
from oauthbroker.tools.isolation.containment import MIB, Access, CallLimits, Containment
from oauthbroker.tools.isolation.places import INTERPRETER, group_of

LIMITS: Final = CallLimits(seconds=60, memory=2048 * MIB)
_WORKER: Final = "oauthbroker.tools.changesets.trial_worker"


def bundle_problems(folder: Path, containment: Containment) -> Sequence[str]:
    """Return the problems of a bundle: those of its resources, or else those of loading its code in a sandbox. Without
    bubblewrap its code is not run. Blocks."""
    problems = check_config(folder)
    return problems or (asyncio.run(_loaded(folder, containment)) if containment.bubblewrap else [])


def left_out(before: Path, after: Path) -> list[str]:
    """Return the problems of a bundle whose swarms lack agents of the one before, so that their conversations would be
    refused: entry agents, and agents that may change the bundle. Folders without resources have none."""
    try:
        old, swarms = read_resources(before, "tools"), read_resources(after, "tools").of("Swarm")
    except BrokerError:
        return []
    return [
        f"Swarm/{swarm.name} lacks Agent/{ref.name}, whose conversations would be refused: list it in spec.agents"
        for swarm in old.of("Swarm").values()
        for ref in swarm.spec.agents
        if ref == swarm.spec.entry_agent or old.of("Agent")[ref.name].spec.changesets is not None
        if swarm.name not in swarms or ref not in swarms[swarm.name].spec.agents
    ]


async def _loaded(folder: Path, containment: Containment) -> list[str]:
    ours, theirs = socket.socketpair()
    with ours, theirs, _copied(folder, containment.user) as (copy, workdir):
        ours.setblocking(False)
        async with containment.running(
            [INTERPRETER, "-I", "-B", "-m", _WORKER, str(theirs.fileno()), str(copy)],
            workdir=workdir,
            limits=LIMITS,
            descriptors=[theirs.fileno()],
            access=Access(readable=[copy], network=True),  # as agents have it: extensions may look at servers
        ):
            theirs.close()
            return [each.replace(f"{copy}/", "") for each in await _reported(ours)]


@contextmanager
def _copied(folder: Path, user: int | None) -> Iterator[tuple[Path, Path]]:
    """Yield a copy of a bundle that the user can read, and an empty folder of theirs."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        copy, workdir = place / "bundle", place / "workdir"
        shutil.copytree(folder, copy, symlinks=True)
        workdir.mkdir()
        if user is not None:
            for each in (place, *place.rglob("*")):
                os.chown(each, user, group_of(user), follow_symlinks=False)
        yield copy, workdir


async def _reported(channel: socket.socket) -> list[str]:
    """Read the lines of the process: the parts that it loads, and at last all problems. If it never comes to that, the
    part that it was loading is the problem."""
    output, part = bytearray(), "the bundle"
    end = "ended the process that loaded it"
    try:
        async with asyncio.timeout(LIMITS.seconds):
            while len(output) <= LIMITS.output and (
                piece := await asyncio.get_running_loop().sock_recv(channel, 64 * 1024)
            ):
                output += piece
    except TimeoutError:
        end = f"did not load within {LIMITS.seconds:g} seconds"
    except ConnectionError:
        pass  # the process was killed
    for line in bytes(output).split(b"\n")[:-1]:
        match _message(line):
            case {"problems": list(problems)}:
                return [str(each) for each in problems]
            case {"loads": str(name)}:
                part = name
    return [f"{part} {end}"]


def _message(line: bytes) -> Any:
    """Return a message of the process, whose code may have written into the socket, too."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
