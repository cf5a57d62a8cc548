"""The listening sockets: TCP ports, and a Unix socket that never has wider rights than configured."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from oauthbroker.core.dataclasses import KW_ONLY, dataclass
from oauthbroker.core.peers import uid_at
from oauthbroker.core.refused import Refused, RefusedForNow
from oauthbroker.model.settings import ApiSocket, Settings

LONGEST_PATH = 103 if sys.platform == "darwin" else 107  # bytes of sun_path without its terminator: unix(4), unix(7)
LAST_PORT = 65535
_PRIVATE = 0o600
_PAGES, _API = "spec.listen (OAUTHBROKER_LISTEN_PORT)", "spec.api.listen (OAUTHBROKER_API_LISTEN_PORT)"
_PORTS_TRIED = 8  # where the system chooses one for two addresses

Sockets = tuple[socket.socket, ...]


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listening sockets: `localhost` is two addresses. The API has its own, or is served behind `pages` too.
    `local` is for the commands of the person whose own connections are served."""

    pages: Sockets
    api: Sockets = ()
    unix: Sockets = ()
    _: KW_ONLY
    local: Sockets = ()

    def to_fds(self) -> dict[str, list[int]]:
        """Return the descriptors for another process that inherits them."""
        named = {"pages": self.pages, "api": self.api, "unix": self.unix, "local": self.local}
        return {name: [each.fileno() for each in sockets] for name, sockets in named.items()}

    @classmethod
    def from_fds(cls, fds: dict[str, list[int]]) -> Listeners:
        return cls(**{name: tuple(socket.socket(fileno=fd) for fd in each) for name, each in fds.items()})

    def close(self) -> None:
        for listener in (*self.pages, *self.api, *self.unix, *self.local):
            listener.close()


@contextmanager
def open_listeners(settings: Settings, setting: str = _PAGES) -> Iterator[Listeners]:
    """Open every listener in the settings for the block. `setting` is where the address of the pages comes from. Raises
    Refused, and leaves none open then."""
    with ExitStack() as stack:
        pages = stack.enter_context(_listen_at(settings.listen_host, settings.listen_port, setting))
        api, unix = Sockets(), Sockets()
        if settings.api_port:
            api = stack.enter_context(_listen_at(settings.api_host, settings.api_port, _API))
        if settings.api_socket is not None:
            unix = (stack.enter_context(listen_unix(settings.api_socket)),)
        yield Listeners(pages, api, unix)


@contextmanager
def _listen_at(host: str, port: int, setting: str) -> Iterator[Sockets]:
    """Open the sockets of one host for the block: for `localhost` both loopback addresses with one port, as clients
    may try either first. Raises Refused."""
    with ExitStack() as stack:
        if host.lower() == "localhost" and _has_ipv6():
            sockets = _listen_on_both(port, setting)
        else:
            sockets = (listen("127.0.0.1" if host.lower() == "localhost" else host, port, setting),)
        for each in sockets:
            stack.enter_context(each)
        yield sockets


def _listen_on_both(port: int, setting: str) -> Sockets:
    for attempt in range(_PORTS_TRIED):
        first = listen("127.0.0.1", port, setting)
        try:
            return first, listen("::1", first.getsockname()[1], setting)
        except Refused:
            first.close()
            if port or attempt == _PORTS_TRIED - 1:  # else the system chose one that is taken on ::1
                raise
    raise AssertionError


def _has_ipv6() -> bool:
    """Tell whether this machine has ::1, which a kernel or a container may lack."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def listen(host: str, port: int, setting: str = _PAGES) -> socket.socket:
    """Open a listening socket. Raises Refused with the reason, which names `setting`."""
    if type(port) is not int or not 0 <= port <= LAST_PORT:
        whole = f"a port is a whole number from 0 to {LAST_PORT}"
        raise Refused(f"Cannot listen on {host} port {port!r}: {whole}. Change {setting}.")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), port), family=family)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only where `proto` was given
        return listener
    except OSError as error:
        why = {
            errno.EADDRINUSE: f"another process listens there. Stop it, or change {setting}",
            errno.EACCES: "that needs rights this user does not have. Choose a port above 1023",
            errno.EADDRNOTAVAIL: f"this machine has no such address. Change {setting}",
        }.get(error.errno or 0, f"the address cannot be used. Change {setting}")
        kind = RefusedForNow if error.errno == errno.EADDRINUSE else Refused
    raise kind(f"Cannot listen on {host} port {port}: {why}.")


@contextmanager
def listen_unix(wanted: ApiSocket) -> Iterator[socket.socket]:
    """Open a listening Unix socket, and remove it at the end if it is still ours. Raises Refused.

    It takes no connection until it has the configured rights. A dead process's socket is replaced.
    """
    path = Path(wanted.path)
    _check_place(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        identity = _bind(listener, path, wanted.mode)
        try:
            yield listener
        finally:
            with suppress(OSError):
                if _identity(path) == identity:
                    path.unlink()


def _bind(listener: socket.socket, path: Path, mode: int) -> tuple[int, int]:
    """Bind, listen, and return the identity of the new file. None can connect to it before it listens."""
    try:
        with suppress(OSError):  # Linux creates the file with the descriptor's mode; macOS refuses to set it
            os.fchmod(listener.fileno(), _PRIVATE)
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen()
        return _identity(path)
    except OSError as error:
        why = "the user we run as may not write there" if error.errno == errno.EACCES else "the system refuses"
    raise Refused(f"Cannot listen on {path}: {why}. Change spec.api.socket.path.")


def _check_place(path: Path) -> None:
    """Raise Refused unless a socket may be created there. Removes one that no process listens on."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise Refused(f"Cannot listen on {path}: the path is longer than {LONGEST_PATH} bytes. Choose a shorter one.")
    if not path.parent.is_dir():
        raise Refused(
            f"Cannot listen on {path}: its folder is missing. Make {path.parent} first, for the user we run as."
        )
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError:
        raise Refused(
            f"Cannot listen on {path}: the user we run as may not look there. Let it, or choose another path."
        ) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise Refused(f"Cannot listen on {path}: something else is there. Remove it, or choose another path.")
    if _is_alive(path):
        raise RefusedForNow(f"Cannot listen on {path}: another process listens there. Stop it, or choose another path.")
    try:
        path.unlink()
    except OSError:
        raise Refused(f"Cannot listen on {path}: a dead socket is there that we may not remove. Remove it.") from None


def _is_alive(path: Path) -> bool:
    """Tell whether a process listens. True also if it is too busy or refuses us."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        return caller.connect_ex(str(path)) != errno.ECONNREFUSED


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Return the user at the other end of a connection over a Unix socket; None elsewhere."""
    line = transport.get_extra_info("socket")
    return None if line is None else uid_at(line)
