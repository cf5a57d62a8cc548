"""Where the server listens: a Unix socket of exactly the rights that were asked for, and who is at its other end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.refused import Refused
from oauthbroker.model.settings import ApiSocket, Settings
from oauthbroker.serving.listeners import LONGEST_PATH, Sockets, listen, listen_unix, open_listeners
from oauthbroker.web.gate.request_limits import PEER
from tests.kit.cli import free_port
from tests.kit.raw_http import a_site, get

NOBODY = 12345
CALL = """
import os, socket, sys
if (uid := int(sys.argv[2])) != os.getuid():
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
line.sendall(sys.stdin.buffer.read())
sys.stdout.buffer.write(b"".join(iter(lambda: line.recv(65536), b"")))
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short enough for a socket, and open to other users."""
    folder = tmp_path_factory.mktemp("s")
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.getuid() and str(each).startswith(("/tmp/", "/dev/shm/")):
            each.chmod(0o755)
    return folder


def call(path: Path, request: bytes, uid: int) -> subprocess.CompletedProcess[bytes]:
    """A request over the socket by a process of its own, perhaps of another user."""
    words = [sys.executable, "-c", CALL, str(path), str(uid)]
    return subprocess.run(words, check=False, input=request, capture_output=True, timeout=20)


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_socket_has_its_mode_under_any_umask_and_is_removed_in_the_end(folder: Path, mode: int, umask: int) -> None:
    before = os.umask(umask)
    try:
        with listen_unix(ApiSocket(str(folder / "api"), mode)):
            assert mode == stat.S_IMODE((folder / "api").stat().st_mode)
            assert os.umask(umask) == umask, "the process's umask was not touched"
    finally:
        os.umask(before)
    assert [] == list(folder.iterdir())


def test_its_rights_are_never_wider_than_its_owners_until_they_are_as_asked(folder: Path) -> None:
    """Another thread looks all the time, under a umask that would let every user in."""
    path, seen, over = folder / "api", set[int](), threading.Event()

    def look() -> None:
        while not over.is_set():
            try:
                seen.add(stat.S_IMODE(path.stat().st_mode))
            except FileNotFoundError:
                continue

    before, watcher = os.umask(0), threading.Thread(target=look)
    watcher.start()
    try:
        for number in range(20_000):
            with listen_unix(ApiSocket(str(path), 0o640)):
                time.sleep(0)  # lets the other thread look
            if seen and number >= 300:
                break
    finally:
        over.set()
        watcher.join()
        os.umask(before)
    assert seen <= {0o600, 0o640}
    assert seen


def test_none_can_connect_before_the_rights_are_as_asked_where_a_descriptor_has_no_mode(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, chmod, tried = folder / "api", Path.chmod, list[int]()

    def refuse(descriptor: int, mode: int) -> None:
        raise OSError(errno.EINVAL, "as on macOS")

    def try_first(file: Path, mode: int) -> None:
        with socket.socket(socket.AF_UNIX) as caller:
            tried.append(caller.connect_ex(str(file)))
        chmod(file, mode)

    monkeypatch.setattr(os, "fchmod", refuse)
    monkeypatch.setattr(Path, "chmod", try_first)
    with listen_unix(ApiSocket(str(path), 0o640)), socket.socket(socket.AF_UNIX) as caller:
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        caller.connect(str(path))
    assert tried == [errno.ECONNREFUSED]


def test_what_a_dead_process_left_is_replaced(folder: Path) -> None:
    path = folder / "api"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with listen_unix(ApiSocket(str(path))), socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))


def test_a_living_one_is_left_alone(folder: Path) -> None:
    wanted = ApiSocket(str(folder / "api"))
    with listen_unix(wanted), pytest.raises(Refused, match="another process listens there"), listen_unix(wanted):
        pass


def test_the_socket_of_a_successor_is_not_removed_by_its_predecessor(folder: Path) -> None:
    path = folder / "api"
    first = listen_unix(ApiSocket(str(path)))
    first.__enter__()
    path.unlink()
    with listen_unix(ApiSocket(str(path))):
        first.__exit__(None, None, None)
        assert path.exists()


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (lambda _path: None, "a" * 110, "longer than 107 bytes"),
        (lambda _path: None, "no/api", r"its folder is missing\. Make "),
        (lambda path: path.write_text("mine"), "api", "something else is there"),
        (lambda path: path.mkdir(), "api", "something else is there"),
        (lambda path: path.symlink_to("nowhere"), "api", "something else is there"),
    ],
)
def test_a_file_in_the_way_is_reported_and_stays(folder: Path, make, name: str, words: str) -> None:
    path = folder / name
    make(path)
    before = sorted(folder.iterdir())
    with pytest.raises(Refused, match=words), listen_unix(ApiSocket(str(path))):
        pass
    assert before == sorted(folder.iterdir())


def test_a_path_of_just_the_longest_length_works(folder: Path) -> None:
    path = folder / ("a" * (LONGEST_PATH - len(str(folder)) - 1))
    with listen_unix(ApiSocket(str(path))):
        assert path.exists()


def test_every_listener_is_closed_when_one_cannot_be_opened(folder: Path) -> None:
    pages, api = free_port(), free_port()
    settings = Settings(
        listen_port=pages, api_host="127.0.0.1", api_port=api, api_socket=ApiSocket(str(folder / "no" / "api"))
    )
    with pytest.raises(Refused), open_listeners(settings):
        pass
    for port in (pages, api):
        listen("127.0.0.1", port).close()


@pytest.mark.case("79", "84")
@pytest.mark.parametrize("uid", [os.getuid(), pytest.param(NOBODY, marks=as_root)])
async def test_the_server_knows_which_user_is_at_the_other_end(folder: Path, uid: int) -> None:
    """From the kernel. No header of a caller names a user; on TCP there is none."""
    lies = ("X-Oauthbroker-Peer: 0", "oauthbroker.peer: 0", "Extensions: oauthbroker.peer")
    with listen_unix(ApiSocket(str(folder / "api"), 0o666)) as listener:
        async with a_site(listener=listener):
            done = await asyncio.to_thread(call, folder / "api", get("/", *lies, host="anything"), uid)
    answer = json.loads(done.stdout.partition(b"\r\n\r\n")[2])
    assert {PEER: {"uid": uid}} == answer["extensions"]
    assert answer["client"] is None
    async with a_site() as site:
        assert {} == (await site.say(get("/", *lies))).json["extensions"]


@pytest.mark.case("83")
@as_root
@pytest.mark.parametrize(("mode", "enters"), [(0o660, False), (0o666, True)])
async def test_who_has_no_right_to_the_socket_gets_no_connection(folder: Path, mode: int, *, enters: bool) -> None:
    with listen_unix(ApiSocket(str(folder / "api"), mode)) as listener:
        async with a_site(listener=listener):
            done = await asyncio.to_thread(call, folder / "api", get(), NOBODY)
    assert enters == done.stdout.startswith(b"HTTP/1.1 200")
    assert enters or b"PermissionError" in done.stderr


def test_an_answer_does_not_wait_for_the_callers_acknowledgement() -> None:
    """Headers and body leave in two writes: with Nagle's algorithm each answer on a kept connection took 40 ms more."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as caller:
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert caller


def ends(listeners: Sockets) -> list[tuple[str, int]]:
    return [each.getsockname()[:2] for each in listeners]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST"])
@pytest.mark.parametrize("chosen", [True, False], ids=["a port of the settings", "port 0"])
def test_localhost_is_both_addresses_of_this_machine_with_one_port(host: str, *, chosen: bool) -> None:
    """Clients resolve it to either first, and some try no other."""
    wanted = free_port() if chosen else 0
    settings = Settings(listen_host=host, listen_port=wanted, api_host=host, api_port=free_port())
    with open_listeners(settings) as listeners:
        port = listeners.pages[0].getsockname()[1]
        assert [("127.0.0.1", port), ("::1", port)] == ends(listeners.pages)
        assert port == (wanted or port) != 0
        assert [("127.0.0.1", settings.api_port), ("::1", settings.api_port)] == ends(listeners.api)
        for end in ends(listeners.pages):
            socket.create_connection(end, timeout=10).close()
    for address in ("127.0.0.1", "::1"):
        listen(address, port).close()


def without_ipv6(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    whole = socket.create_server

    def refuse(address: tuple[str, int], *, family: int, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(number, os.strerror(number))
        return whole(address, family=family, **more)

    monkeypatch.setattr(socket, "create_server", refuse)


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_a_machine_without_ipv6_has_one(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A kernel without the family, and a container whose loopback has no ::1."""
    without_ipv6(monkeypatch, number)
    with open_listeners(Settings(listen_host="localhost", listen_port=0)) as listeners:
        assert ["127.0.0.1"] == [address for address, _ in ends(listeners.pages)]


def test_a_port_that_another_process_has_on_one_of_them_is_refused_and_nothing_stays_open() -> None:
    """It could be reached in place of the broker."""
    with listen("::1", 0) as other:
        port = other.getsockname()[1]
        with pytest.raises(Refused, match=r"on ::1 port \d+: another process listens there"):
            open_listeners(Settings(listen_host="localhost", listen_port=port)).__enter__()
        listen("127.0.0.1", port).close()


def test_with_port_0_another_one_is_taken_where_the_first_is_not_free_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, tried = socket.create_server, list[tuple[str, int]]()

    def refuse_first(address: tuple[str, int], **more: Any) -> socket.socket:
        tried.append(address)
        if [address] == [each for each in tried if each[0] == "::1" and each[1]]:
            raise OSError(errno.EADDRINUSE, "taken")
        return whole(address, **more)

    monkeypatch.setattr(socket, "create_server", refuse_first)
    with open_listeners(Settings(listen_host="localhost", listen_port=0)) as listeners:
        assert 1 == len({port for _, port in ends(listeners.pages)})
    assert 2 == tried.count(("127.0.0.1", 0))
