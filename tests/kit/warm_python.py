"""Fork the broker's processes from a Python that has imported it: a start costs a tenth of a fresh interpreter's.

Within `warm_starts()`, `subprocess` and `asyncio` start these so: `python -c MAIN ...`, also with code before it that
changes a module, `python -c` with code that begins with `WARM`, `python -m oauthbroker ...`, modules of tests/, and programs in files, also those of the environment of
an agent framework, whose imports are kept, too. A process that was forked starts its own so as well. All other commands,
and these with a setting that an interpreter or a package reads while it starts, start as always; `cold_starts()` says so
for all. The process is a child of the one that started it like any other, with its own descriptors, environment, umask
and folder; /proc shows the command line of the Python it came from.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MAIN = "from oauthbroker.cli import main; main()"
WARM = "# forked from a warm Python\n"
MODULES = ("oauthbroker", "tests.")
MOST_BYTES = 200_000
HIGH = 256  # no process has as many descriptors of its own
FORKS = "forks"  # the name of the child that forks for a process
CLONE = {"x86_64": 56, "aarch64": 220}  # the number of clone(2) of Linux
FLAGS = {"-u", "-P"}
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE")
_READ_AT_IMPORT = (
    *("OTEL_", "OPENAI_", "AZURE_", "LANGCHAIN_", "LANGSMITH_", "LANGGRAPH_", "GOOGLE_", "CLOUDSDK_"),
    *("PYDANTIC_", "DEFER_PYDANTIC_", "WEBSOCKETS_"),
)
_READ_AT_START = ("PYTHON", "LD_")
_READ_LATER = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHON_KEYRING_BACKEND"}
_PLAIN: Mapping[str, Any] = {
    "executable": None, "preexec_fn": None, "close_fds": True, "startupinfo": None, "shell": False,
    "restore_signals": True, "gid": None, "gids": None, "uid": None, "umask": -1,
}  # fmt: skip
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_TERMS = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_cold = [sys.platform != "linux" or os.uname().machine not in CLONE]


class WarmPython:
    """A Python that has imported the broker and forks when asked. It begins with the first order."""

    def __init__(self, python: str = sys.executable, orders: socket.socket | None = None) -> None:
        self.python, self._orders = python, orders
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """Return the process identifier of a new child of this process; 0 when the warm one has ended."""
        with self._lock, suppress(OSError):
            self._orders = self._orders or self._begin()
            socket.send_fds(self._orders, [json.dumps(order).encode()], descriptors)
            return int(self._orders.recv(100) or 0)
        return 0

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: os.environ[name] for name in ("PATH", *_LOCALE) if name in os.environ}
        with theirs, cold_starts():
            self._process = subprocess.Popen(
                [self.python, "-m", "tests.kit.warm_python_main", str(theirs.fileno())], cwd=ROOT,
                env=env | {"PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "NO_COLOR": "1"},
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        return ours

    def close(self) -> None:
        if self._orders and self._process:
            self._orders.close()  # it ends at the end of its orders
            self._process.wait()


def _order(asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what to run, or None for a start that must be a fresh interpreter's."""
    args, env = asked["args"], dict(os.environ if asked["env"] is None else asked["env"])
    if _cold[0] or not isinstance(args, list | tuple):
        return None
    python, *words = map(os.fspath, args)
    flags = [words.pop(0) for _ in FLAGS if words and words[0] in FLAGS]
    flags += ["-u"] if env.get("PYTHONUNBUFFERED") else []
    how, what, *words = [*([] if words[:1] in (["-c"], ["-m"]) else [""]), *words, ""]
    is_plain = all(asked.get(name, plain) in (plain, None) for name, plain in _PLAIN.items())
    if not (_is_ours(python, how, what) and is_plain and _starts_alike(env, program=not how)):
        return None
    order: dict[str, Any] = {"python": python, "how": how, "what": what, "words": words[:-1], "flags": flags}
    order |= {"env": env, "cwd": os.fspath(asked["cwd"] or Path.cwd()), "umask": _umask()}
    order |= {"ends": [0, 1, 2, *asked["pass_fds"]], "own_session": bool(asked["start_new_session"])}
    group = asked.get("process_group", -1)
    order["group"] = os.getpgrp() if group in (-1, None) else group
    order["limits"] = [(kind, resource.getrlimit(kind)) for kind in _LIMITS]
    order["ignored"] = [each for each in signal.valid_signals() if signal.getsignal(each) == signal.SIG_IGN]
    return order if len(json.dumps(order)) < MOST_BYTES else None


def _umask() -> int:
    """Return the mask of this process. os.umask() would change it for other threads."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)


def _is_ours(python: str, how: str, what: str) -> bool:
    if how:
        is_code_of_ours = what.endswith(MAIN) or what.startswith(WARM)
        return python == sys.executable and (is_code_of_ours if how == "-c" else what.startswith(MODULES))
    return what.endswith(".py") and (python == sys.executable or python.startswith(f"{ROOT}/.venv-"))


def _starts_alike(env: Mapping[str, str], *, program: bool) -> bool:
    """Tell whether an interpreter would start as the warm one did, and the packages of a program, too."""
    read = _READ_AT_START + (_READ_AT_IMPORT if program else ())
    ours = {name for name in env if name.startswith(read)} - _READ_LATER
    at_home = env.get("PYTHONPATH", str(ROOT)).split(os.pathsep)[0] == str(ROOT)
    at_home &= env.get("PYTHONWARNINGS", "ignore") == "ignore"
    return at_home and ours <= {"PYTHONWARNINGS"} and _locale(env) == _locale(os.environ)


def _locale(env: Mapping[str, str]) -> list[str]:
    """Return what an interpreter reads of its locale. Without one it takes C.UTF-8 (PEP 538)."""
    return [env.get(name) or "C.UTF-8" for name in _LOCALE]


@contextmanager
def warm_starts() -> Iterator[None]:
    """Fork the broker's processes of this block. A Python forks the broker, and one of each interpreter forks programs,
    with their imports, which the broker's has not."""
    warm: dict[tuple[str, bool], WarmPython] = {}

    def warm_of(order: Mapping[str, Any]) -> WarmPython:
        is_broker = order["python"] == sys.executable and (order["how"] or order["what"].startswith(f"{ROOT}/tests/"))
        return warm.setdefault((order["python"], bool(is_broker)), WarmPython(order["python"]))

    fresh = fork_starts(warm_of)
    try:
        yield
    finally:
        subprocess.Popen._execute_child = fresh  # type: ignore[attr-defined]
        for each in warm.values():
            each.close()


def fork_starts(warm_of: Callable[[Mapping[str, Any]], WarmPython | None]) -> Callable[..., None]:
    """Let the starts of this process be forks where they can. Returns the function before."""
    fresh: Callable[..., None] = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def execute(self: Any, *given: Any) -> None:
        asked = _TERMS.bind(self, *given).arguments
        order = _order(asked)
        ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        descriptors = [*(number if end == -1 else end for number, end in enumerate(ends)), *asked["pass_fds"]]
        warm = order and warm_of(order)
        child = warm.fork(order, descriptors) if order and warm else 0
        if not child:
            fresh(self, *given)
            return
        self.pid = child
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))

    subprocess.Popen._execute_child = execute  # type: ignore[attr-defined]
    return fresh


@contextmanager
def cold_starts() -> Iterator[None]:
    """Start fresh interpreters, for a test that looks at the process itself."""
    before, _cold[0] = _cold[0], True
    try:
        yield
    finally:
        _cold[0] = before
