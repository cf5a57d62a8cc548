"""Fork the broker's processes from a Python that has imported it: a start costs a tenth of a fresh interpreter's.

Within `warm_starts()`, `subprocess` and `asyncio` start `python -c MAIN ...`, also with code before it that changes a
module, `python -m oauthbroker ...` and the modules and files of tests/ so. All other commands, and these with a setting that an interpreter reads while it starts, start as
always; `cold_starts()` says so for all. The process is a child of the test like any other, with its own descriptors,
environment, umask and folder; /proc shows the command line of the Python it came from.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MAIN = "from oauthbroker.cli import main; main()"
MODULES = ("oauthbroker", "tests.")
MOST_BYTES = 200_000
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_READ_AT_START = ("LANG", "LC_ALL", "LC_CTYPE")
_PLAIN: Mapping[str, Any] = {
    "executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "startupinfo": None, "shell": False,
    "restore_signals": True, "gid": None, "gids": None, "uid": None, "umask": -1, "process_group": -1,
}  # fmt: skip
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_cold = [False]


class WarmPython:
    """A Python that has imported the broker and forks when asked. It begins with the first order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._listener: socket.socket | None = None

    def fork(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """Return the process identifier of a new child of this process."""
        with self._lock:
            self._listener = self._listener or self._begin()
            _adopt_orphans(True)
            try:
                socket.send_fds(self._listener, [json.dumps(order).encode()], descriptors)
                return int(self._listener.recv(100))
            finally:
                _adopt_orphans(False)

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: os.environ[name] for name in ("PATH", *_READ_AT_START) if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.warm_python_main", str(theirs.fileno())], cwd=ROOT,
            env=env | {"PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "NO_COLOR": "1"}, pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self._stack.callback(process.wait)
        self._stack.callback(ours.close)  # first: it ends at the end of its orders
        return ours

    def close(self) -> None:
        self._stack.close()


def _adopt_orphans(adopts: bool) -> None:
    """Make the child of a process that has ended meanwhile our own, so that we wait for it as for any other."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0)


def _order(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what to run, or None for a start that must be a fresh interpreter's."""
    args, env = asked["args"], dict(os.environ if asked["env"] is None else asked["env"])
    if _cold[0] or not isinstance(args, list | tuple) or len(args) < 2 or args[0] != sys.executable:
        return None
    how, what, *words = [*([] if args[1] in {"-c", "-m"} else [""]), *map(os.fspath, args[1:])]
    is_plain = all(asked.get(name, plain) in (plain, None) for name, plain in _PLAIN.items())
    if not (_is_ours(how, what) and is_plain and _starts_alike(env)):
        return None
    order: dict[str, Any] = {"how": how, "what": what, "words": words, "env": env}
    order |= {"cwd": os.fspath(asked["cwd"] or Path.cwd()), "umask": _umask()}
    order["own_session"] = bool(asked.get("start_new_session"))
    return order if len(json.dumps(order)) < MOST_BYTES else None


def _umask() -> int:
    """Return the mask of this process. os.umask() would change it for other threads."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)


def _is_ours(how: str, what: str) -> bool:
    if how:
        return what.endswith(MAIN) if how == "-c" else what.startswith(MODULES)
    return what.endswith(".py") and ROOT / "tests" in Path(what).parents


def _starts_alike(env: Mapping[str, str]) -> bool:
    """Tell whether an interpreter would start as the warm one did."""
    ours = {name for name in env if name.startswith(("PYTHON", "LD_"))} - {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    at_home = env.get("PYTHONPATH", str(ROOT)).split(os.pathsep)[0] == str(ROOT)
    at_home &= env.get("PYTHONWARNINGS", "ignore") == "ignore"
    return at_home and ours <= {"PYTHONWARNINGS"} and all(env.get(n) == os.environ.get(n) for n in _READ_AT_START)


@contextmanager
def warm_starts() -> Iterator[None]:
    """Fork the broker's processes of this block."""
    warm, fresh = WarmPython(), subprocess.Popen._execute_child  # type: ignore[attr-defined]
    terms = inspect.signature(fresh)

    def execute(self: Any, *given: Any) -> None:
        asked = terms.bind(self, *given).arguments
        order = _order(asked)
        if order is None:
            fresh(self, *given)
            return
        ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        self.pid = warm.fork(order, [number if end == -1 else end for number, end in enumerate(ends)])
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", execute)
        try:
            yield
        finally:
            warm.close()


@contextmanager
def cold_starts() -> Iterator[None]:
    """Start fresh interpreters, for a test that looks at the process itself."""
    before, _cold[0] = _cold[0], True
    try:
        yield
    finally:
        _cold[0] = before
