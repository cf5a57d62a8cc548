"""The sample plug-in in a real server: its routes, background work, findings, audit entries and reload, with two workers,
over TCP and a Unix socket."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import BROKER, REPOSITORY, Desk, Done, command, log_lines, serving
from tests.kit.plugin_package import install
from tests.kit.plugins_installed import SAMPLE
from tests.kit.served_api import Service, log_events, make_key, until

pytestmark = pytest.mark.slow

INSTALLED = f"{REPOSITORY}:{SAMPLE}"
NOTEBOOK = "apiVersion: agents.example.io/v1alpha1\nkind: Notebook\nmetadata: {name: diary}\nspec: {oauthAppRef: OAuthApp/mail}\n"


def configure(desk: Desk, plugins: str = "  plugins: [sample]\n", more: str = "") -> None:
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + plugins + more)


def use(desk: Desk, *words: str) -> Done:
    """A command where the plug-in is installed."""
    return command(*words, cwd=desk.folder, PYTHONPATH=INSTALLED)


@pytest.fixture
def key(desk: Desk, idp: IdentityProvider) -> str:
    """A configuration with the plug-in and a notebook, and the key of a runtime, made before the plug-in was installed."""
    desk.ready_to_serve(idp)
    key = make_key(desk)
    configure(desk)
    desk.write("diary", NOTEBOOK)
    return key


def health(desk: Desk) -> dict[str, Any]:
    return dict(json.loads(use(desk, "health", "--json").out))


def test_the_listeners_of_a_plugin_in_two_workers(desk: Desk, idp: IdentityProvider, key: str) -> None:
    service = Service(desk.port, key)
    user = f"idp:user:{idp.account('alice').sub}"
    with serving(desk, "--workers", "2", PYTHONPATH=INSTALLED) as process:
        turn = service.begin(user)["turnToken"]
        desk.canaries.add(turn, "turn token")
        write = "/v1/sample/notebooks/diary"
        for _ in range(8):  # any worker may take a connection
            status, said = service.call("POST", write, {"pages": 2}, token=turn)
            assert (200, {"notebook": "diary", "tool": None, "token": "authorization_required"}) == (status, said)
        assert (404, "notFound") == refusal(service.call("POST", "/v1/sample/notebooks/novel", {}, token=turn))
        assert (400, "requestInvalid") == refusal(service.call("POST", write, {"pages": "2"}, token=turn))
        assert (401, "unauthenticated") == refusal(service.call("POST", write, {}, token="oabt.x"))
        document = {"notebooks": ["diary"], "pages": {"diary": 16}}
        assert (200, document) == service.call("GET", "/.well-known/sample"), "both workers wrote the same value"
        status, leased = service.call("GET", "/v1/agents/sample-rounds/events?wait=30", seconds=60)
        assert (200, "sample.round", {"notebooks": 1}) == (status, leased["event"]["type"], leased["event"]["payload"])

        assert "No finding of sample." in use(desk, "doctor", "--json").out
        (desk.folder / "config" / "diary.yaml").unlink()
        process.send_signal(signal.SIGHUP)
        until(lambda: {1, 2} == {line["worker"] for line in log_events(desk, "reloaded")})
        until(lambda: health(desk)["status"] == "red")
        finding = {
            "code": "sample.noNotebook",
            "text": "There is no notebook.",
            "hint": "Add a Notebook to the bundle.",
        }
        assert {"status": "red", "problems": ["sample.noNotebook"], "findings": [finding]} == health(desk)
        reported = use(desk, "health")
        assert (1, ["red sample.noNotebook", "sample.noNotebook: There is no notebook. Add a Notebook to the bundle."]) == (
            reported.code, reported.out.splitlines(),
        )  # fmt: skip
        examined = use(desk, "doctor", "--json")
        (check,) = [each for each in json.loads(examined.out)["checks"] if each["check"] == "plugins"]
        assert {**finding, "check": "plugins", "severity": "failure", "about": finding["code"]} == {
            **check,
            "code": finding["code"],
        }
        assert 200 == service.token(turn)[0]
    assert 0 == process.returncode
    assert [] == [line for line in log_lines(desk) if line["level"] == "error"]

    written = json.loads(use(desk, "audit", "tail", "--type", "sample.NoteWritten", "--json").out)
    assert [("diary", 2)] * 8 == [(line["notebook"], line["pages"]) for line in written]


def refusal(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["code"]


def test_the_entries_of_a_plugin_are_read_when_it_is_no_longer_installed(desk: Desk, key: str) -> None:
    with serving(desk, PYTHONPATH=INSTALLED):
        assert 200 == Service(desk.port, key).call("POST", "/v1/sample/notebooks/diary", {"pages": 3})[0]
    refused = desk.type("check")
    assert refused.code == 2
    configure(desk, plugins="")
    (desk.folder / "config" / "diary.yaml").unlink()
    shown = desk.type("audit", "tail", "--type", "sample.NoteWritten")
    assert 0 == shown.code, shown.err
    assert "sample.NoteWritten" in shown.out
    assert "diary" in shown.out
    assert 0 == desk.type("audit", "verify").code
    unknown = desk.type("audit", "tail", "--type", "NoteWriten")
    assert 2 == unknown.code


def test_the_types_of_a_plugin_in_use_are_completed(desk: Desk, key: str) -> None:
    typed = "oauthbroker audit tail --type sam"
    done = command(
        cwd=desk.folder,
        PYTHONPATH=INSTALLED,
        _OAUTHBROKER_COMPLETE="complete_bash",
        COMP_WORDS=typed,
        COMP_CWORD="4",
    )
    assert ["sample.NoteWritten"] == done.out.split()


class OverSocket(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("127.0.0.1", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


def test_over_a_unix_socket_a_plugin_knows_the_users_of_the_machine(
    desk: Desk, key: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path: Path = tmp_path_factory.mktemp("s") / "api"
    caller = f"{{uid: {os.getuid()}, roles: [runtime]}}"
    configure(desk, more=f"  api: {{socket: {{path: {path}, mode: '0600', callers: [{caller}]}}}}\n")
    body, headers = json.dumps({"pages": 1}), {"Content-Type": "application/json"}
    with serving(desk, PYTHONPATH=INSTALLED):
        with closing(OverSocket(path)) as line:
            line.request("POST", "/v1/sample/notebooks/diary", body, headers)
            assert 200 == line.getresponse().status
        assert 404 == Service(desk.port, key).call("POST", "/v1/sample/notebooks/diary", {})[0]
        assert 200 == Service(desk.port, key).call("GET", "/.well-known/sample")[0]
    shown = use(desk, "audit", "tail", "--type", "sample.NoteWritten")
    assert f"uid-{os.getuid()}" in shown.out


STUBBORN = """
async def ignore():
    while True:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass


@asynccontextmanager
async def open_plugin(broker, resources):
    BEFORE
    yield RunningPlugin(background=[Background(name="ignore", seconds=1, work=ignore)])
    await ignore()
"""


HURRIED = "from oauthbroker.wiring import plugin_lifecycle as p\np.CLOSE_SECONDS, p.CANCEL_SECONDS = 0.5, 0.2\n"


def test_a_plugin_that_ignores_its_end_does_not_keep_the_process(desk: Desk, key: str, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    install(installed, "stubborn", STUBBORN.replace("BEFORE", "pass"))
    configure(desk, plugins="  plugins: [stubborn]\n")
    (desk.folder / "config" / "diary.yaml").unlink()
    with serving(desk, prelude=HURRIED, PYTHONPATH=f"{REPOSITORY}:{installed}") as process:
        assert 200 == Service(desk.port, key).call("GET", "/v1/apps")[0]
    assert 0 == process.returncode
    reported = {line["event"] for line in log_lines(desk) if line["level"] == "error"}
    assert {"a plug-in does not close", "background work of a plug-in does not end"} == reported


def test_a_plugin_that_does_not_open_stops_the_server_with_a_sentence(desk: Desk, key: str, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    install(installed, "stubborn", STUBBORN.replace("BEFORE", "raise ValueError('s3cret')"))
    configure(desk, plugins="  plugins: [stubborn]\n")
    (desk.folder / "config" / "diary.yaml").unlink()
    done = command("serve", cwd=desk.folder, seconds=60, PYTHONPATH=f"{REPOSITORY}:{installed}")
    assert 2 == done.code
    assert "the plug-in stubborn does not open: ValueError at " in done.err
    assert "s3cret" not in done.err + done.out
