"""The socket between a person's commands and their own `serve`: each side checks that the other is the same user."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from oauthbroker.client.address import Address
from oauthbroker.client.retries import Wire
from oauthbroker.client.sync import SyncOAuth
from oauthbroker.client.sync_transport import BlockingTransport
from oauthbroker.client.tool import TIMEOUT, OAuth
from oauthbroker.core.clock import ThreadClock
from oauthbroker.core.peers import pid_at, uid_at
from oauthbroker.core.refused import Refused
from oauthbroker.model.settings import ApiSocket, Settings
from oauthbroker.personal.places import Places
from oauthbroker.serving.listeners import LONGEST_PATH, Sockets, listen_unix

MODE: Final = 0o600


@contextmanager
def local_listener(settings: Settings, places: Places) -> Iterator[Sockets]:
    """Listen for this user's commands during the block, if the store is the person's own. None for any other store,
    while another `serve` listens there, and where the path is too long for a socket: commands then open the store
    themselves. Raises Refused for a place that another user could have written."""
    with ExitStack() as stack:
        found = Sockets()
        if _is_personal(settings, places) and len(os.fsencode(places.socket)) <= LONGEST_PATH:
            places.check()
            if _locked(stack, places.socket_lock):
                found = (stack.enter_context(listen_unix(ApiSocket(str(places.socket), MODE))),)
        yield found


def serve_client(places: Places) -> SyncOAuth | None:
    """Return a client of the `serve` over these places. None if none listens. Raises Refused for a socket that this
    user's `serve` did not make."""
    line = _connected(places)
    if line is None:
        return None
    line.close()
    address = Address("http://localhost", str(places.socket))
    transport = BlockingTransport(address, partial(_check_peer, places.socket))
    wire = Wire(address, transport, timeout=TIMEOUT, locale=None, clock=ThreadClock())
    return SyncOAuth._of(OAuth._on(wire, None))  # noqa: SLF001  (it holds no turn token)


def serve_process(places: Places) -> str:
    """Name the `serve` over these places and its process; empty if none listens. Raises Refused as `serve_client`."""
    line = _connected(places)
    if line is None:
        return ""
    with line:
        pid = pid_at(line)
    return "your own `oauthbroker serve`" + (f", process {pid}" if pid else "")


def _connected(places: Places) -> socket.socket | None:
    """Return a connection to the `serve` over these places. None if none listens. Raises Refused as `serve_client`."""
    places.check()
    try:
        found = places.socket.lstat()
    except FileNotFoundError:
        return None
    _check_file(places.socket, found)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(str(places.socket))
    except OSError:  # a dead process's: the next `serve` replaces it
        line.close()
        return None
    return line


def _is_personal(settings: Settings, places: Places) -> bool:
    return not settings.store_url_env and Path(settings.store_root).resolve() == places.store.resolve()


def _locked(stack: ExitStack, path: Path) -> bool:
    """Hold the lock for as long as the stack. False while another process holds it."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    except OSError:
        raise Refused(f"{path} is not used: it cannot be opened as a plain file. Move it away.") from None
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISSOCK(found.st_mode):
        problem = "it is no socket, but a link or another kind of file"
    elif found.st_uid != os.geteuid():
        problem = "it belongs to another user"
    elif found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        problem = "other users may connect to it"
    else:
        return
    raise _not_used(path, problem)


def _check_peer(path: Path, line: socket.socket) -> None:
    """Refuse a process of another user. Where the system does not say whose it is, the file's owner has to do."""
    if uid_at(line) not in {None, os.geteuid()}:
        raise _not_used(path, "a process of another user listens there")


def _not_used(path: Path, problem: str) -> Refused:
    return Refused(f"{path} is not used: {problem}. Remove it, look who made it, and start `oauthbroker serve` again.")
