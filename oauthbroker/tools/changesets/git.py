"""Git's command line on one repository, without its settings, hooks and network, and the one lock of a repository. No
command runs in a folder that an agent can write, and none reads one: contents pass through stdin and stdout. So nothing
that is planted there (attributes, filters, submodules, a `.git` file) is ever read by git."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SECONDS: Final = 60
_LOCK_SECONDS: Final = 60
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=false",
    "submodule.recurse=false",
    "protocol.allow=never",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.directory=*",
)
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": os.defpath,
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


class GitFailed(Exception):
    """A command of git failed. The message names the command, and nothing of its output."""


class Busy(Exception):
    """Another process held the lock for a minute."""


@dataclass(frozen=True, slots=True)
class Git:
    """A repository, by its git directory. Blocks: call it on a thread."""

    directory: Path

    def __call__(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a command and return its output. Raises GitFailed."""
        program = shutil.which("git")
        if program is None:
            raise GitFailed("git is not installed")
        settings = [word for each in _SETTINGS for word in ("-c", each)]
        command = [program, *settings, f"--git-dir={self.directory}", *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and every argument is ours
                command,
                input=stdin,
                env=_ENVIRONMENT,
                cwd=self.directory,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GitFailed(f"git {arguments[0]}: {type(error).__name__}") from None
        if done.returncode:
            raise GitFailed(f"git {arguments[0]} ended with {done.returncode}")
        return done.stdout

    def line(self, *arguments: str) -> str:
        """Run a command and return its output as text, without the newline at the end."""
        return self(*arguments).decode("utf-8").rstrip("\n")

    def lines(self, *arguments: str) -> list[str]:
        """Run a command with `-z` and return the parts of its output that NUL bytes end."""
        return [part.decode("utf-8", "surrogateescape") for part in self(*arguments).split(b"\0") if part]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the repository's lock, which the kernel frees when its holder dies. Raises Busy."""
        from filelock import FileLock, Timeout  # an agent's process starts without it

        lock = FileLock(self.directory / "changesets.lock", _LOCK_SECONDS, 0o600, poll_interval=0.02)
        try:
            lock.acquire()
        except Timeout:
            raise Busy("another process holds the lock of the bundle's repository: try again") from None
        try:
            yield
        finally:
            lock.release()
