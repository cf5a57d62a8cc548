"""A tool whose exports do what a tool must not do. Its calls run in processes of their own."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

MARK = "left-behind"


def sleeper(*, detached: bool, seconds: str = "300") -> subprocess.Popen[bytes]:
    """Start a process that stays, named by the mark and this call's argument."""
    code = f"import time; time.sleep({seconds})  # {MARK}"
    return subprocess.Popen([sys.executable, "-S", "-c", code, os.environ.get("CASE", "")], start_new_session=detached)


def echo(ctx: Any, args: Any) -> Any:
    known = {"agent": ctx.agent_name, "workdir": str(ctx.workdir), "message": ctx.message.text}
    return known | {"args": args, "logger": ctx.logger.name}


async def waiting(ctx: Any, args: Any) -> Any:
    return {"waited": args["x"], "oauth": hasattr(ctx, "oauth")}


def environment(ctx: Any, _args: Any) -> Any:
    return {"names": sorted(os.environ), "directory": str(Path.cwd()), "workdir": str(ctx.workdir)}


def descriptors(_ctx: Any, _args: Any) -> Any:
    return len(list(Path("/proc/self/fd").iterdir()))


def raises(_ctx: Any, _args: Any) -> Any:
    raise ValueError("a wrong value")


def exits(_ctx: Any, _args: Any) -> Any:
    raise SystemExit(3)


def ends(_ctx: Any, _args: Any) -> Any:
    os._exit(5)


def kills_itself(_ctx: Any, _args: Any) -> Any:
    os.kill(os.getpid(), 9)


def crashes(_ctx: Any, _args: Any) -> Any:
    ctypes.string_at(0)


def prints(_ctx: Any, args: Any) -> Any:
    for stream in (sys.stdout, sys.stderr):
        stream.write(args["token"] * 10_000)
        stream.flush()
    subprocess.run(["/bin/sh", "-c", 'echo "$0"; echo "$0" >&2', args["token"]], check=True)
    return "printed"


def eats_memory(_ctx: Any, _args: Any) -> Any:
    return len(bytearray(8 << 30))


def eats_files(_ctx: Any, _args: Any) -> Any:
    return len([os.open("/dev/null", os.O_RDONLY) for _ in range(100_000)])


def fills_the_disk(ctx: Any, _args: Any) -> Any:
    with (ctx.workdir / "big").open("wb") as file:
        while True:
            file.write(b"x" * (1 << 20))


def burns(_ctx: Any, _args: Any) -> Any:
    while True:
        pass


def never_returns(_ctx: Any, _args: Any) -> Any:
    for number in range(1, 64):
        if number not in {9, 19, 32, 33}:
            __import__("signal").signal(number, __import__("signal").SIG_IGN)
    time.sleep(1000)


def huge(_ctx: Any, _args: Any) -> Any:
    return "x" * 100_000_000


def not_json(_ctx: Any, _args: Any) -> Any:
    return {"now": object()}


def no_number(_ctx: Any, _args: Any) -> Any:
    return float("nan")


def _channel() -> socket.socket:
    """Return the worker's own socket, as a hostile tool finds it."""
    return socket.socket(fileno=os.dup(int(sys.argv[1])))


def junk(_ctx: Any, _args: Any) -> Any:
    _channel().sendall(b'{"output": NaN}\xff{{{\n')
    os._exit(0)


def deep(_ctx: Any, _args: Any) -> Any:
    _channel().sendall(b'{"output": ' + b"[" * 200_000 + b"\n")
    os._exit(0)


def endless(_ctx: Any, _args: Any) -> Any:
    channel = _channel()
    while True:
        channel.sendall(b"x" * 65536)


def another_member(_ctx: Any, _args: Any) -> Any:
    _channel().sendall(json.dumps({"error": {"name": 1, "message": []}}).encode() + b"\n")
    os._exit(0)


def leaves_a_thread(_ctx: Any, _args: Any) -> Any:
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return "answered"


def leaves_a_child(_ctx: Any, _args: Any) -> Any:
    sleeper(detached=False)
    return "answered"


def leaves_a_session(_ctx: Any, _args: Any) -> Any:
    sleeper(detached=True)
    return "answered"


def forks_twice(_ctx: Any, _args: Any) -> Any:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            sleeper(detached=True)
            time.sleep(300)
        os._exit(0)
    os.wait()
    return "answered"


def sleeps(_ctx: Any, _args: Any) -> Any:
    """Start a process in a session of its own and never return."""
    sleeper(detached=True)
    time.sleep(300)


def forks_on(_ctx: Any, _args: Any) -> Any:
    """Leave a chain of processes that fork and end."""
    if os.fork() == 0:
        os.setsid()
        for _ in range(400):
            if os.fork():
                os._exit(0)
            time.sleep(0.005)
        sleeper(detached=True)
        os._exit(0)
    return "answered"


def looks(_ctx: Any, args: Any) -> Any:
    return Path(args["path"]).read_text()


def hunts(_ctx: Any, args: Any) -> Any:
    """Kill the supervisor, the parent and the process of this number."""
    found = []
    for process in (os.getppid(), int(args["process"])):
        try:
            os.kill(process, 9)
            found.append("killed")
        except OSError as error:
            found.append(type(error).__name__)
    return found


handlers = {name: value for name, value in globals().items() if callable(value) and not name.startswith("_")}
