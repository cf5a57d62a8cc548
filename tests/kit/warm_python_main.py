"""The Python of tests/kit/warm_python.py: imports the broker, then forks a child for each order until orders end."""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import runpy
import socket
import sys
import threading
import time
import types
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

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


def warm_up() -> None:
    """Import what the commands import when they are called."""
    for name in LATER:
        import_module(name)
    for folder in FOLDERS:
        package = import_module(f"oauthbroker.{folder}")
        for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{package.__name__}."):
            with suppress(ImportError):  # of an extra that this machine does without
                import_module(module.name)
    assert 1 == threading.active_count(), "a fork has no other thread"
    gc.collect()
    gc.freeze()


def next_child(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork at each order. Returns in the child; ends this process when the orders end."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(listener, 1_000_000, 3)
        if not data:
            os._exit(0)
        read, write = os.pipe()
        middle = os.fork()
        if not middle:
            middle, order = os.getpid(), json.loads(data)
            if child := os.fork():
                os.write(write, str(child).encode())
                os._exit(0)
            if order["own_session"]:
                os.setsid()
            while os.getppid() == middle:  # its parent is the test, once the one between has ended
                time.sleep(0.0005)
            return order, descriptors
        os.waitpid(middle, 0)
        listener.send(os.read(read, 100))
        for each in (read, write, *descriptors):
            os.close(each)


def become(order: dict[str, Any], descriptors: list[int]) -> None:
    """Take over the descriptors, the environment and the folder that a started process has."""
    for number, each in enumerate(descriptors):
        os.dup2(each, number)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["cwd"])
    os.umask(order["umask"])
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    if "PYTHONWARNINGS" in order["env"]:
        warnings.simplefilter("ignore")


def run(how: str, what: str, words: list[str]) -> None:
    """Do what `python -c`, `python -m` or `python FILE` does."""
    sys.argv = [how or what, *words]
    sys.path[0] = {"-c": "", "-m": str(Path.cwd())}.get(how, str(Path(what).parent))
    sys.path[2:2] = os.environ.get("PYTHONPATH", "").split(os.pathsep)[
        1:
    ]  # behind our own, where plug-ins are installed
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif how == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)  # noqa: S102  (a constant of the tests)
    else:
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    listener = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    order, descriptors = next_child(listener)
    listener.detach()
    become(order, descriptors)
    run(order["how"], order["what"], order["words"])
