"""`oauthbroker serve` as the system and the network see it: a real process, raw sockets, no secret in sight."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oauthbroker.audit.folder import NAME
from oauthbroker.repository.repository import KINDS
from oauthbroker.store.posix.system_calls import Fs
from oauthbroker.testing import Browser, IdentityProvider, connect_through
from tests.kit.cli import APP, MAIN, SECRET, Desk, command, environment, log_lines, serving
from tests.kit.running_broker import tree
from tests.kit.shared_server import SharedServer, shared_server
from tests.kit.warm_python import cold_starts

pytestmark = pytest.mark.slow


@pytest.fixture
def ready(desk: Desk, idp: IdentityProvider) -> Desk:
    desk.ready_to_serve(idp)
    return desk


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """Run one server for the requests that must change nothing."""
    with shared_server(tmp_path_factory.mktemp("serve")) as server:
        yield server


def raw(port: int, request: str) -> bytes:
    """Send exactly these bytes and return the whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(request.encode("latin-1"))
        return b"".join(iter(lambda: line.recv(65536), b""))


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_when_told_to(ready: Desk, ending: signal.Signals):
    with serving(ready) as process:
        process.send_signal(ending)
        assert 0 == process.wait(60)
    lines = log_lines(ready)
    assert ["plainHttpProvider"] == [line["weaken"] for line in lines if line["event"] == "a check is off"]
    events = [line["event"] for line in lines]
    assert "serving" == events[2], "no user is let in because of the machine they are on"
    assert ["stopping", "stopped"] == events[-2:]


async def test_a_person_goes_through_it_and_the_log_tells_no_secret(ready: Desk, idp: IdentityProvider):
    """The real server, the real store, a runtime in another process (this one) that shares the store."""
    from oauthbroker import open_broker
    from tests.kit.running_broker import turn

    with serving(ready):
        async with open_broker("config", env={}, background=False) as runtime:
            asked = await runtime.oauth(turn()).get_access_token("mail")
            assert "authorization_required" == asked.status
            page = await connect_through(Browser(canaries=ready.canaries), idp, asked.authorization_url, "alice")
            assert (200, "no-store") == (page.status, page.header("cache-control"))
            assert "ready" == (await runtime.oauth(turn()).get_access_token("mail")).status
            event = await runtime.events.lease("planner", wait=5)
            assert event is not None, "the server's relay brought it to the queue"
            assert "auth.granted" == event.type
    requests = [(line["route"], line["status"]) for line in log_lines(ready) if line["event"] == "request"]
    assert [
        ("/connect/{ticket}", 200), ("/connect/{ticket}", 200), ("/oauth/callback/mail", 303), ("/connected/{app}", 200),
    ] == [each for each in requests if each[0] != "/healthz"]  # fmt: skip


@pytest.mark.case("85")
def test_a_foreign_host_gets_nothing(server: SharedServer):
    port = server.desk.port
    hosts = ("evil.example", f"127.0.0.1.evil.example:{port}", "127.0.0.1:1", f"[::1]:{port}", "")
    for path, host in itertools.product(("/connect/x", "/oauth/callback/mail?code=a&state=b"), hosts):
        answer = raw(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        assert answer.split(b" ", 2)[1] in {b"421", b"400"}
        assert b"evil" not in answer
        assert b"location:" not in answer.lower()


@pytest.mark.case("85")
def test_addresses_come_from_the_configuration_not_from_the_request(server: SharedServer):
    port = server.desk.port
    forwarded = "X-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\nForwarded: host=evil.example\r\n"
    for target in ("/connect/x", "http://evil.example/connect/x"):
        answer = raw(port, f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{forwarded}Connection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 ")
        assert b"evil" not in answer


def records(desk: Desk) -> dict[str, bytes]:
    """Return the records that requests may write. A running server's rounds write others: values of plug-ins, the audit
    log and the notes beside it."""
    data = desk.folder / "store" / "data"
    return {f"{kind}/{name}": body for kind in {*KINDS} - {"plugins"} for name, body in tree(data / kind).items()}


@pytest.mark.case("13")
def test_a_callback_answers_get_and_nothing_else(server: SharedServer):
    port, before = server.desk.port, records(server.desk)
    for method in ("HEAD", "POST", "PUT", "OPTIONS", "DELETE", "TRACE", "CONNECT"):
        answer = raw(
            port,
            f"{method} /oauth/callback/mail?code=a&state=b HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            "Content-Length: 0\r\nConnection: close\r\n\r\n",
        )
        assert b"405" == answer.split(b" ", 2)[1], method
    assert before == records(server.desk)


@pytest.mark.case("11")
def test_a_request_line_without_end_is_cut_off(server: SharedServer):
    port, path = server.desk.port, f"/oauth/callback/mail?code={'a' * 100_000}"
    answer = raw(port, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n")
    assert answer.split(b" ", 2)[1] in {b"400", b"414", b"431"}


@pytest.mark.case("92")
def test_the_process_shows_no_secret_and_leaves_no_core(server: SharedServer):
    """Read its arguments, environment and limits as another user of this machine could."""
    key = server.desk.key_file.read_text("ascii").strip()
    proc = Path("/proc", str(server.process.pid))
    limits = (proc / "limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size"))
    assert ["0", "0"] == core.split()[4:6]
    for secret in (key, server.idp.client("client-mail").reveal_secret()):
        assert secret not in (proc / "cmdline").read_text()
        if not os.getuid():
            assert secret not in (proc / "environ").read_text()
    if os.getuid():
        assert not (proc / "environ").stat().st_uid, "not dumpable: the kernel gives its files to root"
        with pytest.raises(PermissionError):
            (proc / "environ").read_text()


@pytest.mark.case("92")
def test_no_command_is_dumpable(ready: Desk):
    ask = "import atexit, ctypes; atexit.register(lambda: print('dumpable', ctypes.CDLL(None).prctl(3)));"
    with cold_starts():
        done = subprocess.run(
            [sys.executable, "-c", ask + MAIN, "secrets", "list"], check=True, cwd=ready.folder, env=environment(),
            capture_output=True, text=True,
        )  # fmt: skip
    assert "dumpable 0" == done.stdout.splitlines()[-1]


@pytest.mark.case("92")
def test_a_key_in_the_environment_works_and_is_warned_of(ready: Desk):
    """The environment keeps it readable to root, and there is no way to take it back."""
    key = ready.key_file.read_text("ascii").strip()
    ready.key_file.unlink()
    with serving(ready, OAUTHBROKER_KEY=key):
        pass
    assert "the key comes from the environment, which keeps it readable; use a key file" in [
        line["event"] for line in log_lines(ready)
    ]


@pytest.mark.case("89")
def test_a_crash_in_a_page_is_reported_without_its_words(ready: Desk):
    secret = ready.canaries.mint("code").reveal()
    prelude = (
        "import oauthbroker.web.gate.readiness as app\n"
        "sound = app.route\n"
        "def route(path, handler, *methods):\n"
        "    async def answer(request):\n"
        "        if 'x-planted' in request.headers: raise RuntimeError(request.headers['x-planted'])\n"
        "        return await handler(request)\n"
        "    return sound(path, answer, *methods)\n"
        "app.route = route\n"
    )
    with serving(ready, prelude=prelude):
        answer = raw(
            ready.port,
            f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{ready.port}\r\nx-planted: {secret}\r\nConnection: close\r\n\r\n",
        )
    assert b" 500 " in answer
    assert secret.encode() not in answer
    faults = [line for line in log_lines(ready) if line["level"] == "error"]
    assert ["RuntimeError"] == [line["exception"] for line in faults]


def test_a_port_that_is_taken_is_reported_plainly(ready: Desk):
    before = tree(ready.folder / "store")
    with socket.create_server(("127.0.0.1", ready.port)):
        done = command("serve", cwd=ready.folder)
    assert (75, "") == (done.code, done.out), "it passes by itself"
    assert f"Cannot listen on 127.0.0.1 port {ready.port}: another process listens there" in done.err
    assert before == tree(ready.folder / "store")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_database_that_is_away_ends_with_the_status_that_systemd_starts_again(ready: Desk, workers: str):
    url = "postgresql://broker:of-no-use@127.0.0.1:1/store?connect_timeout=1"
    done = command("serve", "--workers", workers, cwd=ready.folder, OAUTHBROKER_STORE_URL=url)
    assert (75, True) == (done.code, "storeUnavailable" in done.err), done.err
    assert 2 == command("check", "nowhere", cwd=ready.folder, OAUTHBROKER_STORE_URL=url).code, "other commands have one"
    unset = command("serve", "--workers", workers, cwd=ready.folder, OAUTHBROKER_KEY="of-no-use")
    assert (2, True) == (unset.code, "keyMismatch" in unset.err), unset.err
    wrong = command("serve", "--workers", workers, cwd=ready.folder, OAUTHBROKER_STORE_URL="mysql://127.0.0.1/store")
    assert (2, True) == (wrong.code, "write postgresql://" in wrong.err), "no later start goes well"


@pytest.mark.case("76")
@pytest.mark.parametrize(
    ("word", "status", "says"),
    [
        ("EROFS", 2, "it is read-only: mount it for writing, or name another folder"),
        ("EACCES", 2, "storePermissions"),
        ("EPERM", 2, "storePermissions"),
        ("ENOLCK", 2, "its file system has no locks: name a folder on another one"),
        ("EOPNOTSUPP", 2, "its file system lacks what the store needs"),
        ("ENOSYS", 2, "its file system lacks what the store needs"),
        ("ENOSPC", 75, "the disk is full: free space there"),
        ("EIO", 75, "the disk fails"),
    ],
)
def test_a_disk_that_no_time_mends_ends_a_server_with_a_status_that_starts_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, word: str, status: int, says: str
):
    desk.write("mail", APP.format(issuer="https://idp.example"))
    assert 0 == desk.type("init").code

    def refused(*_: object, **__: object) -> bool:
        raise OSError(getattr(errno, word), "words of the system")

    monkeypatch.setattr(Fs, "try_lock", refused)
    done = desk.type("serve")
    assert (status, True) == (done.code, says in done.err), done
    assert "words of the system" not in done.err


@pytest.mark.parametrize("planted", ["a folder", "a file of others"])
def test_an_audit_log_that_is_none_ends_a_server_with_a_status_that_starts_no_other(desk: Desk, planted: str):
    desk.write("mail", APP.format(issuer="https://idp.example"))
    assert 0 == desk.type("init").code
    assert 0 == desk.type("secrets", "set", *SECRET, stdin="value").code
    [log] = (desk.folder / "store").rglob(NAME)
    log.unlink()
    if planted == "a folder":
        log.mkdir()
    else:
        log.symlink_to("/etc/hostname")
    done = desk.type("serve")
    assert (2, True) == (done.code, "the audit log cannot be opened: " in done.err), done


def test_help_loads_neither_cryptography_nor_a_server(tmp_path: Path):
    heavy = "{'cryptography', 'starlette', 'uvicorn', 'pydantic', 'yaml', 'authlib', 'httpx2', 'jinja2'}"
    ask = f"import atexit, sys; atexit.register(lambda: print('loaded', sorted({heavy} & set(sys.modules))));"
    with cold_starts():
        done = subprocess.run(
            [sys.executable, "-c", ask + MAIN, "--help"], check=True, cwd=tmp_path, env=environment(), capture_output=True,
            text=True,
        )  # fmt: skip
    assert "loaded []" == done.stdout.splitlines()[-1]
    for word in ("init", "check", "secrets", "serve", "grants", "demo"):
        assert f"{word} " in done.stdout


def test_with_json_it_says_once_where_it_serves(ready: Desk):
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "serve", "--json"], cwd=ready.folder, env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(7)]
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert {
        "url": ready.base,
        "operators": f"{ready.base}/admin",
        "api": f"{ready.base}/docs",
        "pid": process.pid,
        "workers": 1,
    } == json.loads("".join([*said, rest]))
    assert 0 == process.returncode
