"""Compile the TypeScript client once for all tests: its folder belongs to every worker of a run."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit import installed

HOME = installed.TYPESCRIPT_HOME
BUILD = HOME / "build"
PATIENCE = 240.0
_PAUSE = 0.05


async def node(*arguments: str, **env: str) -> str:
    """Run Node in the client's folder. Return its output; fail with that, if Node fails."""
    process = await asyncio.create_subprocess_exec(
        str(installed.node()), *arguments, cwd=HOME, env={**_plain_environment(), **env},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert 0 == process.returncode, said.decode()
    return said.decode()


async def compiled(project: str, made: Path | None = None, sources: Mapping[str, str] | None = None) -> None:
    """Compile a project without a word from the compiler, `sources` in its folder first.

    A project is not compiled again as long as its sources are the same and `made` is there: another worker may be running
    its output.
    """
    async with _alone(BUILD / "lock"):
        for name, text in (sources or {}).items():
            _written(HOME / project / name, text)
        stamp, digest = BUILD / "compiled" / project.replace("/", "-"), _digest(HOME / project)
        is_made = made is None or made.exists()
        if is_made and stamp.exists() and stamp.read_text("ascii") == digest:
            return
        assert "" == await node("node_modules/typescript/bin/tsc", "-p", project)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest, "ascii")


async def client_built() -> None:
    """Make what other packages import."""
    await compiled("tsconfig.build.json", HOME / "dist" / "index.js")


def _written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _digest(project: Path) -> str:
    """Name everything that the compiler reads, by content."""
    folders = [HOME / "src", HOME / "test", *([project] if project.is_dir() else [])]
    files = [path for folder in folders for path in folder.glob("*.ts")]
    files += [*HOME.glob("*.json"), *(project.glob("*.json") if project.is_dir() else [])]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(HOME)}\0{path.read_text('utf-8')}\0".encode())
    return digest.hexdigest()


@asynccontextmanager
async def _alone(lock: Path) -> AsyncIterator[None]:
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        async with asyncio.timeout(PATIENCE):
            while not _taken(held.fileno()):
                await asyncio.sleep(_PAUSE)
        yield


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _plain_environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("OAUTHBROKER_", "PERSON_"))}
