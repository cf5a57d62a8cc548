"""A pseudo-terminal with one command in it, whose screen is read and whose questions are answered."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60  # seconds


class Terminal:
    """Runs the command from its beginning to `close`. `screen` is all that it has shown."""

    def __init__(self, command: Sequence[str | Path], folder: Path, env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [str(word) for word in command], cwd=folder, env=dict(env),
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.screen = ""

    def until(self, text: str) -> None:
        """Read the screen until it shows this."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            assert self._read(0.2) is not False, self.screen

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode() + b"\n")

    def end(self) -> int:
        """Read to the end, and return the exit status."""
        while self._read(0.2) is not False:
            pass
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def _read(self, seconds: float) -> bool | None:
        """Return True for something, None for nothing yet, False when the command has left the terminal."""
        ready = select.poll()  # `select.select` knows no descriptor above 1023
        ready.register(self._ours, select.POLLIN)
        if not ready.poll(seconds * 1000):
            return None
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            data = b""
        self.screen += data.decode()
        return bool(data)


@contextmanager
def at_terminal(command: Sequence[str | Path], folder: Path, env: Mapping[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(command, folder, env)
    try:
        yield terminal
    finally:
        terminal.close()
