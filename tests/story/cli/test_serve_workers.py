"""`oauthbroker serve --workers`: several processes behind the same listeners, on one store."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, START_SECONDS, Desk, command, free_port, log_lines, serving
from tests.kit.processes import children_of
from tests.kit.running_broker import BASE, file_store, user_app
from tests.kit.served_api import (
    Service,
    is_there,
    kill,
    log_events,
    make_key,
    serving_count_is,
    until,
    user_of,
    wait_until_all_serve,
)
from tests.kit.shared_server import SharedServer, shared_server

slow = pytest.mark.slow


@pytest.fixture
def service(desk: Desk, idp: IdentityProvider) -> Service:
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    return Service(desk.port, make_key(desk))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """Run one parent with two workers for the tests that only look at the processes."""
    with shared_server(tmp_path_factory.mktemp("workers"), "--workers", "2") as server:
        wait_until_all_serve(server.desk, 2)
        yield server


def test_what_processes_count_for_themselves_is_shared_out():
    limits = Limits(sessions_per_app=7, sessions_total=10, requests_per_minute=100, connections=1, turn_seconds=9)
    shared = limits.shared_by(3)
    assert (3, 4, 34, 1) == (
        shared.sessions_per_app, shared.sessions_total, shared.requests_per_minute, shared.connections,
    )  # fmt: skip
    assert limits == limits.shared_by(1)
    assert (9, limits.sessions_per_subject) == (shared.turn_seconds, shared.sessions_per_subject)


async def test_a_broker_that_is_one_of_four_takes_its_part_and_a_reload_leaves_it_at_that(
    identity_provider: IdentityProvider, tmp_path: Path
):
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=Limits(connections=100))
    bundle = Bundle(settings, {"mail": user_app(identity_provider)})
    async with open_broker(bundle, env={}, store=file_store(tmp_path), audit=AuditList(), workers=4) as broker:
        assert 25 == broker.bundle.settings.limits.connections
        assert set() == await broker.reload(bundle)
        assert 25 == broker.bundle.settings.limits.connections


@slow
def test_workers_share_turns_tokens_and_signals(desk: Desk, idp: IdentityProvider, service: Service):
    """Every call comes on a connection of its own, which any of them may take."""
    with serving(desk, "--workers", "2") as process:
        wait_until_all_serve(desk, 2)
        for number in range(3):
            token = service.begin(user_of(idp), instance=str(number))
            answers = [service.token(token["turnToken"]) for _ in range(6)]
            assert [(200, "ready")] * 6 == [(status, answer["status"]) for status, answer in answers]
            assert 204 == service.call("DELETE", f"/v1/turns/{token['turnId']}")[0]
            assert {(401, "turnEnded")} == {
                (status, answer["code"]) for status, answer in (service.token(token["turnToken"]) for _ in range(3))
            }
        taken = Counter(line["worker"] for line in log_events(desk, "request"))
        assert {1, 2} == set(taken), taken
        process.send_signal(signal.SIGHUP)
        until(lambda: {1, 2} == {line["worker"] for line in log_events(desk, "reloaded")})
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60)
    assert {1, 2} == {line["worker"] for line in log_events(desk, "stopped")}
    assert all("worker" in line for line in log_lines(desk))


@slow
def test_one_that_is_killed_is_replaced_and_the_other_serves_meanwhile(desk: Desk, service: Service):
    with serving(desk, "--workers", "2") as process:
        wait_until_all_serve(desk, 2)
        for number in (3, 4):
            before = children_of(process.pid)
            kill(before[0])
            for _ in range(20):
                assert service.call("GET", "/v1/apps")[0] in {200, 0}, "0: it was on its way to the one that died"
            until(partial(serving_count_is, desk, number))
            assert 2 == len(children_of(process.pid))
        assert [-9, -9] == [line["status"] for line in log_events(desk, "a worker ended")]
        assert 200 == service.call("GET", "/v1/apps")[0]
        os.kill(children_of(process.pid)[1], signal.SIGTERM)
        until(lambda: len(log_events(desk, "serving")) == 5)
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(60)


@slow
def test_a_wrong_key_is_reported_once_and_no_worker_tries_again(desk: Desk, idp: IdentityProvider):
    desk.ready_to_serve(idp)
    desk.key_file.unlink()
    done = command("serve", "--workers", "3", cwd=desk.folder)
    assert 2 == done.code
    assert 1 == done.err.count("keyUnknown")
    assert "The workers end as soon as they begin (status 2)" in done.err
    with socket.create_server(("127.0.0.1", desk.port)):
        pass


@slow
def test_when_no_worker_can_run_the_parent_gives_up(desk: Desk, idp: IdentityProvider):
    desk.ready_to_serve(idp)
    with serving(desk, "--workers", "2") as process:
        wait_until_all_serve(desk, 2)
        desk.key_file.unlink()
        for child in children_of(process.pid):
            kill(child)
        assert 2 == process.wait(4 * START_SECONDS)  # up to nine workers start first
    text = (desk.folder / "serve.log").read_text("utf-8")
    assert "The workers end as soon as they begin (status 2)" in text
    ended = [json.loads(line) for line in text.splitlines() if '"a worker ended"' in line]
    pauses = [line["again_in"] for line in ended if line["worker"] == 1]
    assert pauses == sorted(pauses)
    assert 4 <= len(ended) <= 9


@slow
def test_workers_do_not_outlive_a_parent_that_was_killed(desk: Desk, idp: IdentityProvider, path: Path):
    """The Unix socket that it left is replaced by the next one."""
    desk.ready_to_serve(idp)
    write_listeners(desk, path)
    with serving(desk, "--workers", "2") as process:
        wait_until_all_serve(desk, 2)
        children = children_of(process.pid)
        process.kill()
        process.wait(60)
        until(lambda: not any(is_there(child) for child in children))
        assert path.exists()
    with serving(desk, "--workers", "2"):
        assert b"200" == over(path)
    assert not path.exists()


@slow
@pytest.mark.case("92")
def test_parent_and_workers_are_closed_to_others_and_show_no_secret(server: SharedServer):
    key = server.desk.key_file.read_text("ascii").strip()
    for pid in (server.process.pid, *children_of(server.process.pid)):
        proc = Path("/proc", str(pid))
        core = next(line for line in (proc / "limits").read_text().splitlines() if line.startswith("Max core"))
        assert ["0", "0"] == core.split()[4:6]
        assert not (proc / "environ").stat().st_uid, "not dumpable: the kernel gives its files to root"
        assert key not in (proc / "cmdline").read_text()


@slow
def test_the_parent_removes_the_folder_of_the_workers_figures(desk: Desk, idp: IdentityProvider, tmp_path: Path):
    desk.ready_to_serve(idp)
    (temporary := tmp_path / "tmp").mkdir()
    with serving(desk, "--workers", "2", TMPDIR=str(temporary)) as process:
        wait_until_all_serve(desk, 2)
        [folder] = temporary.iterdir()
        assert 0o700 == folder.stat().st_mode & 0o777
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60)
    assert [] == list(temporary.iterdir())


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "api"  # short enough for a socket


def write_listeners(desk: Desk, path: Path) -> None:
    """Configure listeners of the API's own, one of them at the socket `path`."""
    socket_ = f"socket: {{path: {path}, callers: [{{uid: {os.getuid()}}}]}}"
    listeners = f"  api: {{listen: {{port: {free_port()}}}, {socket_}}}\n"
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + listeners)


def over(path: Path, request: str = "GET /healthz HTTP/1.1\r\nHost: x") -> bytes:
    """The status of a request over the Unix socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(f"{request}\r\nConnection: close\r\n\r\n".encode())
        return line.recv(65536).split(b" ")[1]


@slow
@pytest.mark.case("79", "83")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_listener_has_behind_it_what_belongs_there(desk: Desk, idp: IdentityProvider, path: Path, workers: str):
    """Pages and callbacks for people; the API for programs; over the socket a user of this machine needs no key."""
    desk.ready_to_serve(idp)
    write_listeners(desk, path)
    api = int((desk.folder / "config" / "broker.yaml").read_text().partition("api: {listen: {port: ")[2].split("}")[0])
    with serving(desk, "--workers", workers):
        assert 404 == status(desk.port, "/v1/apps")
        assert 400 == status(desk.port, "/oauth/callback/mail")
        for host in (f"127.0.0.1:{api}", f"localhost:{api}", f"[::1]:{api}"):
            assert 401 == status(api, "/v1/apps", host)
        for host in ("evil.example", f"evil.example:{api}", "127.0.0.1", "localhost:1"):
            assert 421 == status(api, "/v1/apps", host)
        assert 404 == status(api, "/oauth/callback/mail")
        assert {200} == {status(port, "/healthz", "10.0.0.7") for port in (desk.port, api)}
        assert b"200" == over(path, "GET /v1/apps HTTP/1.1\r\nHost: anything")
        assert b"404" == over(path, "GET /oauth/callback/mail HTTP/1.1\r\nHost: anything")
        assert 0o660 == path.stat().st_mode & 0o777


@slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_localhost_is_both_addresses_of_this_machine(desk: Desk, idp: IdentityProvider, workers: str):
    desk.ready_to_serve(idp)
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port).replace("host: 127.0.0.1", "host: localhost"))
    assert "host: localhost" in (desk.folder / "config" / "broker.yaml").read_text()
    with serving(desk, "--workers", workers):
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, desk.port), timeout=60) as line:
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert line.recv(65536).startswith(b"HTTP/1.1 200 ")


def status(port: int, path: str, host: str | None = None) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        return connection.getresponse().status
    finally:
        connection.close()


@slow
def test_a_socket_that_cannot_be_made_refuses_the_start(desk: Desk, idp: IdentityProvider, path: Path):
    desk.ready_to_serve(idp)
    write_listeners(desk, path)
    path.write_text("mine")
    for workers in ("1", "2"):
        done = command("serve", "--workers", workers, cwd=desk.folder)
        assert (2, f"Cannot listen on {path}: something else is there. Remove it, or choose another path.") == (
            done.code, done.err.strip(),
        )  # fmt: skip
    assert "mine" == path.read_text()


@slow
def test_a_worker_without_its_parent_refuses_to_live(desk: Desk, idp: IdentityProvider):
    desk.ready_to_serve(idp)
    post = {"number": 1, "of": 2, "parent": 1, "ready": 2, "fds": {}, "metrics_folder": ""}
    done = command("serve", "--worker-post", json.dumps(post), cwd=desk.folder)
    assert 2 == done.code
    assert "Start `oauthbroker serve --workers` instead" in done.err


def test_a_near_miss_of_workers_is_refused_with_the_options_there_are(desk: Desk):
    done = desk.type("serve", "--worker", "2")
    assert 2 == done.code
    assert "--workers" in done.err


def test_the_number_of_workers_has_bounds(desk: Desk):
    for number in ("0", "65", "many"):
        assert 2 == desk.type("serve", "--workers", number).code


@slow
def test_ctrl_c_at_a_terminal_reaches_each_worker_once(server: SharedServer):
    """The terminal sends it to the whole group of the parent. The workers have groups of their own."""
    groups = {os.getpgid(child) for child in children_of(server.process.pid)}
    assert os.getpgid(server.process.pid) not in groups
    assert 2 == len(groups)
