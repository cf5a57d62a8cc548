"""The socket between a person's commands and their own `serve`: its answers, and whom each side refuses."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import oauthbroker
from oauthbroker.client.address import Address
from oauthbroker.client.client_call import ClientCall, Reply
from oauthbroker.client.retries import Wire
from oauthbroker.client.sync import run as blocking
from oauthbroker.client.sync_transport import BlockingTransport
from oauthbroker.core import peers
from oauthbroker.core.clock import ThreadClock
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import Ready
from oauthbroker.personal import handed_out
from oauthbroker.personal.connection import opened, ready_of
from oauthbroker.personal.local_broker import QuietLog, open_local
from oauthbroker.personal.places import Places
from oauthbroker.personal.serve_socket import local_listener, serve_client
from oauthbroker.serving.listeners import Listeners
from oauthbroker.serving.server import broker_served
from oauthbroker.testing import IdentityProvider
from oauthbroker.web.api.authentication import LOCAL_CALLER, may
from oauthbroker.web.api.call_table import OPERATIONS, PROBES
from oauthbroker.wiring.running import Running
from tests.kit.cli import MAIN, command, environment, wait_until_up
from tests.kit.running_broker import turn
from tests.story.cli.login_kit import Person
from tests.story.cli.run_kit import UNPRIVILEGED, Became, as_root, logged_in, reachable, typed


@asynccontextmanager
async def served(places: Places) -> AsyncIterator[Running]:
    """What `oauthbroker serve` opens over these places, without the pages."""
    async with open_local(places) as running:
        settings = running.broker.bundle.settings
        with local_listener(settings, places) as local:
            async with broker_served(running.broker, Listeners(pages=(), local=local), QuietLog()):
                yield running


def of_person(places: Places) -> Settings:
    return Settings(store_root=str(places.store))


def ask(places: Places, method: str, path: str, body: Any = None, bearer: str | None = None) -> Reply:
    """Send any request over the socket."""
    address = Address("http://localhost", str(places.socket))
    wire = Wire(address, BlockingTransport(address), timeout=60, locale=None, clock=ThreadClock())
    call = ClientCall(method, path, lambda reply: reply, body=body)
    try:
        return blocking(wire.send(call, None if bearer is None else Secret(bearer)))
    finally:
        blocking(wire.close())


async def test_a_command_uses_the_running_serve_of_the_same_store(
    person: Person, idp: IdentityProvider, became: list[Became], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await logged_in(person, idp)
    person.canaries.may_show("access token")
    async with served(person.places):

        def opens_no_store(*_: object) -> None:
            raise AssertionError

        with monkeypatch.context() as patched:
            patched.setattr(handed_out, "_of_store", opens_no_store)
            printed = await typed(person, "token", "oidc")
            assert (0, f"{token}\n") == (printed.code, printed.out), printed.err
            assert 0 == (await typed(person, "run", "oidc", "--", "true")).code
            assert token == became[-1].env["OAUTHBROKER_ACCESS_TOKEN"]
            wider = await typed(person, "token", "oidc", "--scope", "admin")
            assert (2, True) == (wider.code, wider.err.startswith("scopeNotAllowed: "))
        other = await typed(person, "token", "oidc", "--account", "work")
        assert (75, True) == (other.code, "login oidc --account work" in other.err)
        ended = await typed(person, "logout", "oidc")
        assert 0 == ended.code, ended.err
        again = await typed(person, "token", "oidc")
        assert (75, "") == (again.code, again.out), "what another process ended is seen at once"
    assert not person.places.socket.exists()


async def test_programs_that_open_the_store_beside_serve_refresh_a_token_once_and_serve_has_the_new_one(
    person: Person, idp: IdentityProvider
) -> None:
    """`.client()` does not use the socket: its role may send no request to an API."""
    old = Secret(await logged_in(person, idp))

    async def rejected() -> Secret:
        connection = oauthbroker.local("oidc")
        async with opened(connection) as found:
            return ready_of(connection, await found.oauth.report_rejected("oidc", old)).access_token

    async with served(person.places):
        for number in range(1, 4):
            new, *others = await asyncio.gather(*(rejected() for _ in range(3)))
            assert (number, [new, new], False) == (idp.count("refresh_token"), others, new == old)
            client = serve_client(person.places)
            assert client is not None
            with client:
                result = await asyncio.to_thread(client.get_access_token, "oidc")
            assert isinstance(result, Ready), result
            assert new == result.access_token
            old = new


async def test_a_port_that_ones_own_serve_has_is_named_with_its_process(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    async with served(person.places):
        with socket.create_server(("127.0.0.1", person.port)):  # its pages
            done, _ = await person.log_in(idp, *words, "--stdin", stdin=person.secret)
    assert 2 == done.code
    assert f"your own `oauthbroker serve`, process {os.getpid()}. Stop it, log in" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_programs_themselves_do_so_and_no_list_of_processes_shows_the_token(
    person: Person, idp: IdentityProvider, tmp_path: Path, workers: str
) -> None:
    token = await logged_in(person, idp)
    seen = "import os\nprint(open('/proc/self/cmdline').read(), os.environ['T'], os.listdir('/proc/self/fd'), sep='|')"
    env = {"XDG_DATA_HOME": str(person.data), "HOME": str(tmp_path)}
    config = str(person.places.config)

    def story() -> None:
        log = tmp_path / "serve.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-c", MAIN, "serve", "-c", config, "--workers", workers], env=environment(**env),
                cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            )  # fmt: skip
        try:
            wait_until_up(person, process, log)  # type: ignore[arg-type]  # it has a port
            ran = command(
                "run", "oidc", "--env", "T", "--", sys.executable, "-c", seen, cwd=tmp_path, seconds=60, **env
            )
            assert (0, "") == (ran.code, ran.err)
            arguments, inherited, descriptors = ran.out.rstrip().rsplit("|", 2)
            assert (token, False) == (inherited, token in arguments)
            assert "['0', '1', '2', '3']" == descriptors, "its own three, and the one that lists them"
            assert '"/v1/tokens"' in log.read_text()
            assert token not in log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    await asyncio.to_thread(story)
    assert not person.places.socket.exists()


def test_the_local_role_may_get_tokens_and_see_the_apps_and_nothing_else():
    every = (*OPERATIONS, *PROBES)
    assert {"getAccessToken", "listApps"} == {each.id for each in every if each.who and may(LOCAL_CALLER, each.who)}


async def test_nothing_that_is_said_at_the_socket_reaches_another_subject(
    person: Person, idp: IdentityProvider
) -> None:
    await logged_in(person, idp)
    async with served(person.places) as running:
        begun = await running.parts.turns.begin(turn())
        _, key = await running.parts.api_keys.create("ops", ["runtime", "operator"])
        person.canaries.add(begun.token.reveal(), "turn token")

        def story() -> None:
            token = {"oauthAppRef": "oidc"}
            hostile: list[tuple[int, str, str, Any, str | None]] = [
                (400, "POST", "/v1/tokens", {**token, "subject": "idp:user:U1"}, None),
                (400, "POST", "/v1/tokens", {**token, "turn": {"auth": {"subjects": {"user": "x"}}}}, None),
                (401, "POST", "/v1/tokens", token, begun.token.reveal()),
                (401, "GET", "/v1/grants", None, key.reveal()),
                (403, "GET", "/v1/grants", None, None),
                (403, "POST", "/v1/turns", {"turn": {}}, None),
                (403, "POST", "/v1/subjects/erase", {"subject": "local:user:me"}, None),
                (403, "GET", "/v1/auth-sessions", None, None),
                (403, "POST", "/v1/connections", {"subjects": {"user": "x"}}, None),
                (403, "POST", "/v1/proxy/oidc/127.0.0.1/", {}, None),
            ]
            for status, method, path, body, bearer in hostile:
                reply = ask(person.places, method, path, body, bearer)
                assert status == reply.status, (method, path, reply.body)

        await asyncio.to_thread(story)


@as_root
async def test_another_users_process_gets_nothing_even_where_it_can_connect(
    person: Person, idp: IdentityProvider
) -> None:
    """First the folder keeps it out; then, with the folders and the socket opened wide, the kernel says whose it is."""
    await logged_in(person, idp)
    body = b'{"oauthAppRef":"oidc"}'
    head = (
        b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    stranger = (
        f"import os, socket, sys\nos.setgroups([])\nos.setgid({UNPRIVILEGED})\nos.setuid({UNPRIVILEGED})\n"
        f"s = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall({head % len(body) + body!r})\n"
        "print(s.recv(9999).decode().splitlines()[0])\n"
    )

    def as_nobody() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-I", "-c", stranger, str(person.places.socket)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    async with served(person.places):
        kept_out = await asyncio.to_thread(as_nobody)
        assert (1, True) == (kept_out.returncode, "PermissionError" in kept_out.stderr), kept_out
        person.places.socket.chmod(0o666)
        with reachable(person.places.socket):
            let_in = await asyncio.to_thread(as_nobody)
    assert "HTTP/1.1 401 Unauthorized" == let_in.stdout.strip(), let_in


def _socket_at(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    return listener


def _link(path: Path) -> socket.socket:
    listener = _socket_at(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    return listener


def _open_to_all(path: Path) -> socket.socket:
    listener = _socket_at(path)
    path.chmod(0o666)
    return listener


def _anothers(path: Path) -> socket.socket:
    listener = _socket_at(path)
    os.chown(path, UNPRIVILEGED, UNPRIVILEGED)
    return listener


def _plain_file(path: Path) -> None:
    path.write_text("a token, please")


PLANTED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a link to another socket": (_link, "it is no socket, but a link or another kind of file"),
    "a plain file": (_plain_file, "it is no socket, but a link or another kind of file"),
    "one that all may use": (_open_to_all, "other users may connect to it"),
    "one of another user": (_anothers, "it belongs to another user"),
}


@as_root
@pytest.mark.parametrize("planted", PLANTED)
async def test_a_planted_socket_is_refused_with_what_to_do(
    person: Person, idp: IdentityProvider, became: list[Became], planted: str
) -> None:
    await logged_in(person, idp)
    make, problem = PLANTED[planted]
    listener = make(person.places.socket)
    for words in (("token", "oidc"), ("run", "oidc", "--", "true")):
        done = await typed(person, *words)
        assert (2, "") == (done.code, done.out)
        assert f"{person.places.socket} is not used: {problem}. Remove it" in done.err
    assert [] == became
    if listener is not None:
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.close()


@as_root
def test_a_process_of_another_user_behind_our_own_socket_is_refused(person: Person) -> None:
    """The file is ours, and the process that listens gave up to be."""
    person.places.prepare()
    planted = (
        "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\nos.chmod(sys.argv[1], 0o600)\n"
        f"os.setuid({UNPRIVILEGED})\ns.listen()\nprint('listens', flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", planted, str(person.places.socket)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert b"listens\n" == process.stdout.readline()
        client = serve_client(person.places)
        assert client is not None
        with client, pytest.raises(Refused, match="a process of another user listens there"):
            client.get_access_token("oidc")
    finally:
        process.communicate()


def test_a_folder_that_others_may_write_to_is_refused_by_both_sides(person: Person) -> None:
    person.places.prepare()
    person.places.root.chmod(0o770)
    with pytest.raises(Refused, match=r"other users may write to it.*chmod go-w"):
        serve_client(person.places)
    with (
        pytest.raises(Refused, match="other users may write to it"),
        local_listener(of_person(person.places), person.places),
    ):
        pass


def test_a_dead_socket_is_replaced_and_a_live_one_is_not_taken(person: Person) -> None:
    person.places.prepare()
    _socket_at(person.places.socket).close()
    assert serve_client(person.places) is None
    settings = of_person(person.places)
    with local_listener(settings, person.places) as first:
        assert 1 == len(first)
        inode = person.places.socket.stat().st_ino
        with local_listener(settings, person.places) as second:
            assert () == second
        assert inode == person.places.socket.stat().st_ino
    with local_listener(settings, person.places) as third:
        assert 1 == len(third)


def test_a_link_in_the_place_of_the_lock_is_refused(person: Person, tmp_path: Path) -> None:
    person.places.prepare()
    person.places.socket_lock.symlink_to(tmp_path / "victim")
    with pytest.raises(Refused, match="Move it away"), local_listener(of_person(person.places), person.places):
        pass
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("settings", [Settings(store_root="/srv/store"), Settings(store_url_env="DATABASE_URL")])
def test_a_serve_over_another_store_has_no_such_socket(person: Person, settings: Settings) -> None:
    person.places.prepare()
    with local_listener(settings, person.places) as found:
        assert () == found
    assert not person.places.socket_lock.exists()


def test_a_path_too_long_for_a_socket_leaves_the_commands_to_the_store(person: Person, tmp_path: Path) -> None:
    places = Places(tmp_path / ("long" * 30))
    places.prepare()
    with local_listener(of_person(places), places) as found:
        assert () == found
    assert serve_client(places) is None


@pytest.mark.parametrize("linux", [True, False])
def test_each_system_says_who_is_at_the_other_end(monkeypatch: pytest.MonkeyPatch, *, linux: bool) -> None:
    """Elsewhere than on Linux the answer is `struct xucred`; where there is none, the folder has to do."""
    one, other = socket.socketpair()
    with one, other:
        if linux:
            assert (os.geteuid(), os.getpid()) == (peers.uid_at(one), peers.pid_at(one))
            return
        monkeypatch.delattr(socket, "SO_PEERCRED")
        assert (None, None) == (peers.uid_at(one), peers.pid_at(one))

        class Mac:
            family = socket.AF_UNIX

            def getsockopt(self, level: int, option: int, size: int) -> bytes:
                assert (0, 1) == (level, option)
                return (0).to_bytes(4, sys.byteorder) + (501).to_bytes(4, sys.byteorder) + bytes(size - 8)

        assert 501 == peers.uid_at(Mac())  # type: ignore[arg-type]
