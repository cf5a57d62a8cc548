"""Processes that measure beside this one: one JSON object a line goes in, and one comes back. `bench/answering.py` is
their side.

All of them live at once and take turns, so that a noisy minute of the machine meets each of them. A child that fails
raises `ChildFailed` with the last line of its output: its row says so, and the others go on.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
PATIENCE = 300.0


class ChildFailed(Exception):
    """The child ended, was silent for too long, or said that it cannot do this."""


class Child:
    """One process: `python -m <module> <arguments>`. `before` are words in front of the command."""

    def __init__(
        self, module: str, *arguments: str, python: str | Path = sys.executable, before: Sequence[str] = ()
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        try:
            self._process = subprocess.Popen(
                [*before, str(python), "-m", module, *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
            )
        except OSError as problem:
            self._errors.close()
            raise ChildFailed(f"{python} does not start: {problem.strerror}") from None
        self._heard = b""

    def tell(self, **request: Any) -> None:
        """Send a request, and do not wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise ChildFailed(self._last_words()) from None

    def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        assert self._process.stdout is not None
        until = time.monotonic() + PATIENCE
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise ChildFailed(f"no answer within {PATIENCE:.0f} s")
            said = os.read(self._process.stdout.fileno(), 65536)
            if not said:
                raise ChildFailed(self._last_words())
            self._heard += said
        line, _, self._heard = self._heard.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        if "failed" in found:
            raise ChildFailed(found["failed"])
        return found

    def ask(self, **request: Any) -> dict[str, Any]:
        self.tell(**request)
        return self.answer()

    def close(self) -> None:
        """End the process, at the latest after ten seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process.stdout.close()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "the process ended without a word"


@contextmanager
def child(
    module: str, *arguments: str, python: str | Path = sys.executable, before: Sequence[str] = ()
) -> Iterator[Child]:
    started = Child(module, *arguments, python=python, before=before)
    try:
        yield started
    finally:
        started.close()
