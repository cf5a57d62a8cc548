"""Start what a page's shell types from the test, which forks it warm: a shell would start fresh interpreters.

`python` and `oauthbroker` of the shell are shims, which pass on signals and the status. Who kills a shim kills its command.
"""

from __future__ import annotations

import functools
import marshal
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.kit import shim
from tests.kit.warm_python import MAIN


def with_shims(folder: Path, python: str = sys.executable) -> str:
    """Return a PATH on which `oauthbroker` and `python` are those of this test, or of another environment."""
    programs = {"oauthbroker": f'{sys.executable} -c "{MAIN}"', "python": python}
    (folder / "bin").mkdir(exist_ok=True)
    for name, words in programs.items():
        file = folder / "bin" / name
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {shim.__file__} {_address()} {words} "$@"\n')
        file.chmod(0o700)
    return f"{folder}/bin:{os.environ['PATH']}"


@functools.cache
def _address() -> str:
    """Listen for shims until this process ends. The address lies in no folder."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = f"oauthbroker-shims-{secrets.token_hex(8)}"
    listener.bind(f"\0{address}")
    listener.listen(100)
    threading.Thread(target=_listen, args=[listener], daemon=True).start()
    return address


def _listen(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        _pid, user, _group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user == os.getuid():
            threading.Thread(target=_play, args=[connection], daemon=True).start()


def _play(connection: socket.socket) -> None:
    """Run a shim's command."""
    with connection:
        data, descriptors, _, _ = socket.recv_fds(connection, 1_000_000, 3)
        words, cwd, env = marshal.loads(data)  # noqa: S302  (of our shim)
        stdin, stdout, stderr = descriptors
        process = subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
        for each in descriptors:
            os.close(each)
        threading.Thread(target=_report, args=[process, connection], daemon=True).start()
        while number := connection.recv(1):
            process.send_signal(number[0])
        process.kill()
        process.wait()


def _report(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    status = process.wait()
    with suppress(OSError):  # the shim was killed
        connection.send(str(status).encode())
