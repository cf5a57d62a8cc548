"""The Python of tests/kit/warm_python.py: imports the broker, then forks a child for each order until orders end."""

from __future__ import annotations

import ast
import atexit
import ctypes
import fcntl
import gc
import io
import json
import os
import pkgutil
import resource
import runpy
import signal
import socket
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from oauthbroker.config.reading.variables import variables
from tests.kit.warm_python import CLONE, FORKS, HIGH, ROOT, WarmPython, fork_starts

FOLDERS = (
    *("cli", "serving", "web", "store", "broker", "client", "testing", "wiring", "key_services", "providers"),
    *("tools", "flowtools", "gateway", "mcp"),
)
LATER = (
    "anyio._backends._asyncio",
    "httpcore2",
    "email.contentmanager",
    "encodings.utf_8_sig",
)  # imports of their functions
CLONE_PARENT = 0x8000  # clone(2)


def warm_up() -> None:
    """Import what the commands import when they are called."""
    for name in LATER:
        with suppress(ImportError):
            import_module(name)
    for folder in FOLDERS:
        with suppress(ImportError):  # of an extra that this interpreter does without
            package = import_module(f"oauthbroker.{folder}")
            for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}."):
                with suppress(ImportError):
                    import_module(module.name)
    variables()
    for each in list(models_below(BaseModel)):
        each.model_rebuild()  # those that a process builds when it first reads a form
    freeze()


def models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        if each.__module__.startswith("oauthbroker."):
            yield each
        yield from models_below(each)


def freeze() -> None:
    assert 1 == threading.active_count(), "a fork has no other thread"
    gc.collect()
    gc.freeze()


def import_for(program: Path) -> None:
    """Import what a program imports from elsewhere than this repository."""
    before = len(sys.modules)
    for statement in imports_of(program, set()):
        with suppress(ImportError):
            exec(compile(ast.Module([statement], []), program, "exec"), {})  # noqa: S102  (an import)
    if len(sys.modules) > before:
        freeze()


def imports_of(program: Path, seen: set[Path]) -> Iterator[ast.stmt]:
    """Yield the imports of a program and of the files beside it that it imports, each once."""
    seen.add(program)
    for statement in ast.parse(program.read_bytes()).body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        name = (statement.module or "") if isinstance(statement, ast.ImportFrom) else statement.names[0].name
        if (beside := program.with_name(f"{name}.py")).exists():
            yield from imports_of(beside, seen) if beside not in seen else ()
        elif name.startswith("oauthbroker") or not (ROOT / name.partition(".")[0]).exists():
            yield statement


def fork_beside() -> int:
    """Fork a child of our parent, for which it is as if it had started it: it waits for it and gets its signals."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    child = int(ctypes.PyDLL(None).syscall(CLONE[os.uname().machine], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    (python.PyOS_AfterFork_Parent if child else python.PyOS_AfterFork_Child)()
    return child


def next_child(orders: socket.socket) -> tuple[dict[str, Any], list[int], socket.socket]:
    """Fork at each order. Returns in the child, which has a fork of this process for orders of its own; ends this
    process when the orders end."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, 1_000_000, 100)
        if not data:
            os._exit(0)
        order = json.loads(data)
        if not order["how"]:
            with suppress(OSError, SyntaxError):  # its child says so
                import_for(Path(order["cwd"], order["what"]))
        if child := fork_beside():
            orders.send(str(child).encode())
        else:
            os.setsid() if order["own_session"] else os.setpgid(0, order["group"])
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork():
                return order, descriptors, ours
            orders = theirs
            ours.close()
            Path("/proc/self/comm").write_text(FORKS)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        for each in descriptors:
            os.close(each)


def become(order: dict[str, Any], descriptors: list[int], orders: socket.socket) -> None:
    """Take over what a started process has of the one that started it."""
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, HIGH) for each in (orders.detach(), *descriptors)]
    os.closerange(3, HIGH)
    for number, each in zip(order["ends"], high[1:], strict=True):
        os.dup2(each, number)
        os.close(each)
    forks = WarmPython(orders=socket.socket(fileno=high[0]))
    fork_starts(lambda asked: forks if asked["python"] == sys.executable else None)
    Path("/proc/self/comm").write_text(Path(sys.executable).name)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["cwd"])
    os.umask(order["umask"])
    for kind, limits in order["limits"]:
        resource.setrlimit(kind, limits)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in order["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    if "-u" in order["flags"]:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), sys.stdout.encoding, write_through=True)
    if "PYTHONWARNINGS" in order["env"]:
        warnings.simplefilter("ignore")


def run(how: str, what: str, words: list[str], flags: list[str]) -> None:
    """Do what `python -c`, `python -m` or `python FILE` does."""
    sys.argv = [how or what, *words]
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)[1:]
    sys.path[2:2] = more  # behind our own, where plug-ins are installed
    sys.path[0] = {"-c": "", "-m": str(Path.cwd())}.get(how, str(Path(what).parent))
    del sys.path[: "-P" in flags]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif how == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)  # noqa: S102  (a constant of the tests)
    else:
        runpy.run_path(what, run_name="__main__")


def end(status: int) -> None:
    """End as an interpreter does, but for the teardown of its modules: it writes to all of their memory, which is copied
    then, and cost more than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # an interpreter that cannot write its last words says so itself
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)
    sys.exit(status)


if __name__ == "__main__":
    warm_up()
    order, descriptors, orders = next_child(socket.socket(fileno=int(sys.argv[1])))
    become(order, descriptors, orders)
    try:
        run(*(order[name] for name in ("how", "what", "words", "flags")))
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        end(ended.code or 0)
    end(0)
