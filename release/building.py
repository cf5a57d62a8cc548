"""Build wheel and sdist from the tracked files, so that the same commit gives the same bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.prefix) / "release" / "bin"  # requirements/release.txt, apart from what the tests see


@dataclass(frozen=True, slots=True)
class Built:
    """The packages of one build."""

    wheel: Path
    sdist: Path

    @property
    def digests(self) -> dict[str, str]:
        return {path.name: digest(path) for path in (self.wheel, self.sdist)}


def ran(*words: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None, seconds: float = 600) -> str:
    """Run a program and return its stdout. Raises RuntimeError with the end of its output."""
    done = subprocess.run(  # noqa: S603  (words of ours)
        [str(word) for word in words], check=False, cwd=cwd, env=env, capture_output=True, text=True,
        timeout=seconds, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        command = " ".join(str(word) for word in words[:4])
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tracked(root: Path = ROOT) -> list[str]:
    """Return the files that git tracks, and new ones that it does not ignore."""
    listed = ran("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=root)
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def copied(names: Iterable[str], to: Path, root: Path = ROOT) -> Path:
    """Copy these files. Nothing else of the working folder can get into a package."""
    for name in names:
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, target)
    return to


def commit_time(root: Path = ROOT) -> str:
    """Return the time of the newest commit, in seconds."""
    return ran("git", "log", "-1", "--format=%ct", cwd=root).strip()


def build(source: Path, to: Path, epoch: str, *only: str) -> Built:
    """Build the packages of this folder, `only` with `-t wheel` one of them."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONDONTWRITEBYTECODE": "1"}
    ran(sys.executable, "-m", "hatchling", "build", *only, "-d", to, cwd=source, env=env)
    wheel, sdist = sorted(to.glob("*.whl")), sorted(to.glob("*.tar.gz"))
    return Built(wheel[0] if wheel else to, sdist[0] if sdist else to)


def unpacked(sdist: Path, to: Path) -> Path:
    """Unpack the sdist; return its one folder."""
    shutil.unpack_archive(sdist, to, filter="data")
    [folder] = to.iterdir()
    return folder


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Return the names of files whose bytes are not the same."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
