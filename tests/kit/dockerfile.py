"""A Dockerfile read and replayed in a folder, for machines without a container engine.

What a replay shows: that the steps succeed in their order on the pinned packages, what ends up in the last layer, and
that the program runs there as a user without rights on a tree it cannot write. It does not show the base image.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ABSOLUTE = re.compile(r"(?<![\w./-])/(?=\w)")  # a path of the image, in a command or a value


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: `RUN`, and what follows it, with continuation lines joined."""

    op: str
    text: str

    @property
    def words(self) -> list[str]:
        """The exec form's list, else the words."""
        return json.loads(self.text) if self.text.startswith("[") else self.text.split()


@dataclass(slots=True)
class Stage:
    base: str
    name: str
    steps: list[Step] = field(default_factory=list)


def parse(text: str) -> list[Stage]:
    """The stages in order. ARGs before the first FROM are filled in."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    defaults: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(str.strip, joined.splitlines()):
        op, _, rest = line.strip().partition(" ")
        match op.upper():
            case "ARG" if not stages:
                name, _, value = rest.partition("=")
                defaults[name] = value
            case "FROM":
                base, _, name = re.sub(r"\$\{(\w+)\}", lambda m: defaults[m[1]], rest).partition(" AS ")
                stages.append(Stage(base, name or "final"))
            case known:
                stages[-1].steps.append(Step(known, " ".join(rest.split())))
    return stages


class Replay:
    """Replays stages under one folder `root`, which plays `/` for the stage at hand."""

    def __init__(self, context: Path, work: Path, python: str) -> None:
        self.context = context
        self.root = work / "root"
        self.python = python
        self.done: dict[str, Path] = {}
        self.ignore = (context / ".dockerignore").read_text("utf-8").splitlines()

    def run(self, stage: Stage) -> None:
        if self.root.exists():
            raise RuntimeError("set the last stage aside first")
        self.cwd, self.user, self.check = "/", "0:0", Step("NONE", "")
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        # what the base image brings: a Python with pip under /usr/local
        subprocess.run([self.python, "-m", "venv", str(self.root / "usr/local")], check=True)
        (self.root / "tmp").mkdir()
        self.env = {"PATH": f"{self.root}/usr/local/bin:/usr/bin:/bin"}
        for step in stage.steps:
            getattr(self, f"do_{step.op.lower()}")(step)

    def set_aside(self, name: str) -> None:
        """Ends a stage; `COPY --from=<name>` finds it from now on, and its paths are free for the next."""
        self.done[name] = self.root.rename(self.root.with_name(f"root.{name}"))

    def inside(self, path: str) -> Path:
        """An image path as a path of this machine."""
        return self.root / os.path.normpath(f"{self.cwd}/{path}" if not path.startswith("/") else path).lstrip("/")

    def mapped(self, text: str) -> str:
        return ABSOLUTE.sub(lambda _: f"{self.root}/", text)

    def do_workdir(self, step: Step) -> None:
        self.cwd = "/" + self.inside(step.text).relative_to(self.root).as_posix()
        self.inside(".").mkdir(parents=True, exist_ok=True)

    def do_env(self, step: Step) -> None:
        for pair in step.words:
            name, _, value = pair.partition("=")
            self.env[name] = re.sub(r"\$(\w+)", lambda m: self.env[m[1]], self.mapped(value))

    def do_copy(self, step: Step) -> None:
        *sources, target = [word for word in step.words if not word.startswith("--")]
        origin = next((word.partition("=")[2] for word in step.words if word.startswith("--from=")), None)
        for source in sources:
            at = self.done[origin] / source.lstrip("/") if origin else self.context / source
            to = self.inside(target)
            if at.is_dir():
                shutil.copytree(at, to, symlinks=True, dirs_exist_ok=True, ignore=None if origin else self._ignored)
            else:
                to = to / at.name if target.endswith("/") or to.is_dir() else to
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(at, to)

    def do_run(self, step: Step) -> None:
        """In bash, with image paths mapped. Never with a tool of this machine in place of the image's."""
        command = self.mapped(step.text)
        if os.getuid():
            command = re.sub(r"\b10001:10001\b", f"{os.getuid()}:{os.getgid()}", command)
        outside = {
            name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}
        }
        done = subprocess.run(
            ["bash", "-euc", f'[[ "$(command -v python)" == {self.root}/* ]]; {command}'],
            cwd=self.inside("."), env={**outside, **self.env}, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"RUN {step.text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def do_user(self, step: Step) -> None:
        self.user = step.text

    def do_expose(self, step: Step) -> None:
        self.port = int(step.text)

    def do_healthcheck(self, step: Step) -> None:
        self.check = Step("CMD", step.text.partition("CMD ")[2])

    def do_entrypoint(self, step: Step) -> None:
        self.entrypoint = step.words

    def do_cmd(self, step: Step) -> None:
        self.command = step.words

    def _ignored(self, folder: str, names: list[str]) -> set[str]:
        """What .dockerignore's `**/name` lines leave out; its `!name` lines are checked by a test."""
        patterns = [line[3:] for line in self.ignore if line.startswith("**/")]
        return {name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)}


def open_to_all(path: Path) -> bool:
    """Whether a user without rights may read and run the files there."""
    real = path.resolve()
    return bool(real.stat().st_mode & 0o005) and all(parent.stat().st_mode & 0o001 for parent in real.parents)


def shared_python() -> str | None:
    """A Python 3.11 or newer that every user of this machine may run; the interpreter of a root shell often is not."""
    for candidate in (
        Path(sys.base_prefix) / "bin" / "python3",
        *map(Path, ("/usr/local/bin/python3", "/usr/bin/python3")),
    ):
        if candidate.exists() and open_to_all(candidate) and _fits(candidate):
            return str(candidate)
    return None


def _fits(python: Path) -> bool:
    probe = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([str(python), "-c", probe], check=False, capture_output=True).returncode == 0
