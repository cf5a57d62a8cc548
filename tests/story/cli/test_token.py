"""`oauthbroker token` and `run` in a turn: a token for a shell, by the turn token alone, and never on a command line."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.client import Runtime
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.testing import Browser, Canaries, IdentityProvider, connect_through
from tests.kit.cli import MAIN, Desk, Done, command, environment, serving
from tests.kit.running_broker import turn

TURN = "oabt." + "l" * 22 + "." + "s" * 43
TOKEN = "at-of-a-scripted-broker"
READY = {"status": "ready", "accessToken": TOKEN, "tokenType": "Bearer", "scopes": ["read"]}
LINK = "https://broker.example/connect/abc"
ASKS = {
    "status": "authorization_required", "authSessionId": "as-1", "authorizationUrl": LINK,
    "expiresAt": "2026-01-01T00:00:00Z", "message": "Please agree.", "reason": "noGrant",
}  # fmt: skip


def shell(*words: str, cwd: Path, env: dict[str, str]) -> Done:
    """One command with a tool's environment."""
    return command(*words, cwd=cwd, seconds=60, **env)


def failed(code: str, *, retryable: bool) -> dict[str, Any]:
    return {"status": "error", "error": {"code": code, "message": "A sentence.", "retryable": retryable}}


@contextmanager
def answering(result: dict[str, Any], variables: Sequence[str] = ()) -> Iterator[tuple[dict[str, str], list[Any]]]:
    """A broker that gives this one answer, for an app with these variables: the environment of a tool, and the bodies
    of its requests."""
    bodies: list[Any] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert f"Bearer {TURN}" == self.headers["Authorization"]
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(result)

        def do_GET(self) -> None:
            assert ("/v1/apps", f"Bearer {TURN}") == (self.path, self.headers["Authorization"])
            app = {"name": "mail", "title": "", "provider": "", "flow": "", "subjectMode": "user", "scopes": []}
            self.answer({"apps": [{**app, "environment": variables}]})

        def answer(self, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            yield {"OAUTHBROKER_URL": url, "OAUTHBROKER_TURN_TOKEN": TURN}, bodies
        finally:
            server.shutdown()
            thread.join(60)


SEEN = """
import json, os, sys
said = sys.stdin.read()
token = os.read(int(sys.argv[1]), 9999).decode() if len(sys.argv) > 1 else None
arguments = open(f"/proc/{os.getpid()}/cmdline").read()
ours = {name: value for name, value in os.environ.items() if "TOKEN" in name}
print(json.dumps([os.getpid(), said, token, arguments, ours]))
"""


@pytest.mark.case("113")
def test_the_token_goes_to_stdout_and_the_request_names_no_subject(tmp_path: Path):
    with answering(READY) as (env, bodies):
        words = ("OAuthApp/mail", "--scope", "read", "--scope", "write", "--min-ttl", "90")
        done = shell("token", *words, cwd=tmp_path, env=env)
        whole = shell("token", "mail", "--json", cwd=tmp_path, env=env)
    assert Done(0, f"{TOKEN}\n", "") == done
    assert (0, READY, "") == (whole.code, json.loads(whole.out), whole.err)
    ref = {"kind": "OAuthApp", "name": "mail"}
    assert [{"oauthAppRef": ref, "scopes": ["read", "write"], "minTtlSeconds": 90}, {"oauthAppRef": ref}] == bodies


@pytest.mark.case("114")
@pytest.mark.parametrize(
    ("result", "status", "err"),
    [
        (ASKS, 75, f"Please agree.\n{LINK}\n"),
        (
            {**ASKS, "deviceCode": {"verificationUri": "https://idp.example/d", "userCode": "AB-CD", "interval": 5}},
            75,
            "Please agree.\nhttps://idp.example/d AB-CD\n",
        ),
        ({**ASKS, "authorizationUrl": ""}, 75, "Please agree.\n"),
        (failed("serverBusy", retryable=True), 69, "serverBusy: A sentence.\n"),
        (failed("scopeNotAllowed", retryable=False), 2, "scopeNotAllowed: A sentence.\n"),
        ({**failed("scopeNotAllowed", retryable=False)["error"], "status": "other"}, 2, "brokerAnswerInvalid: "),
    ],
)
def test_without_a_token_nothing_runs_and_the_status_says_why(tmp_path: Path, result: Any, status: int, err: str):
    ran = tmp_path / "ran"
    with answering(result) as (env, _):
        token = shell("token", "mail", cwd=tmp_path, env=env)
        run = shell("run", "mail", "--", "touch", str(ran), cwd=tmp_path, env=env)
        document = shell("run", "mail", "--json", "--", "touch", str(ran), cwd=tmp_path, env=env)
    assert token == run
    assert (status, "", True) == (token.code, token.out, token.err.startswith(err))
    said = json.loads(document.out)
    assert (status, not ran.exists()) == (document.code, True)
    assert said == result if status == 75 else {"code", "message", "retryable"} <= said["error"].keys()


@pytest.mark.case("112")
@pytest.mark.parametrize("way", [(), ("--env", "GH_TOKEN"), ("--fd", "3"), ("--fd", "9")])
def test_the_command_has_the_token_and_not_the_turn_token(tmp_path: Path, way: tuple[str, ...]):
    """It is this process: same number, same input. Its arguments hold no token."""
    number = way[1:] if way[:1] == ("--fd",) else ()
    with answering(READY) as (env, _):
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", "mail", *way, "--", sys.executable, "-c", SEEN, *number],
            cwd=tmp_path, env=environment(**env), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = process.communicate("its input", 60)
    assert (0, "") == (process.returncode, err)
    number_of, said, at_descriptor, arguments, ours = json.loads(out)
    assert (process.pid, "its input") == (number_of, said)
    assert TOKEN not in arguments
    assert (TOKEN if number else None) == at_descriptor
    assert ({} if number else {way[1] if way else "OAUTHBROKER_ACCESS_TOKEN": TOKEN}) == ours


@pytest.mark.case("112")
def test_the_command_finds_the_token_where_it_looks_and_a_broker_elsewhere_names_no_other_variable(tmp_path: Path):
    hostile = ("LD_PRELOAD", "PATH", "X=Y_TOKEN", "OAUTHBROKER_TURN_TOKEN", "OAUTHBROKER_API_KEY", "lower_TOKEN")
    seen = ("sh", "-c", "env | grep -e TOKEN= -e KEY= -e LD_PRELOAD | sort")
    for variables, expected in (
        (("GH_TOKEN", "GITHUB_TOKEN", *hostile), f"GH_TOKEN={TOKEN}\nGITHUB_TOKEN={TOKEN}\n"),
        (hostile, f"OAUTHBROKER_ACCESS_TOKEN={TOKEN}\n"),
    ):
        with answering(READY, variables) as (env, _):
            done = shell("run", "mail", "--", *seen, cwd=tmp_path, env={**env, "OAUTHBROKER_API_KEY": "a key"})
        assert Done(0, expected, "") == done


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("sh", "-c", "exit 75"), 75),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "kill -TERM $$"), -signal.SIGTERM),
        (("sh", "-c", "kill -PIPE $$; exit 4"), -signal.SIGPIPE),  # Python ignores it: the command must not
        (("no-such-command",), 127),
        (("/dev/null",), 126),
    ],
)
def test_the_commands_end_is_its_own(tmp_path: Path, words: tuple[str, ...], status: int):
    with answering(READY) as (env, _):
        done = shell("run", "mail", "--", *words, cwd=tmp_path, env=env)
    assert (status, "") == (done.code, done.out)
    assert (status in {126, 127}) is bool(done.err), "nothing is said about an end of its own"


@pytest.mark.case("114")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--env", "A=B"), "--env takes"),
        (("--env", "LD_PRELOAD"), "LD_PRELOAD is read by the system or the shell itself, and would show the token"),
        (("--env", "PATH"), "Use another name"),
        (("--env", "BASH_ENV"), "Use another name"),
        (("--env", "PYTHONSTARTUP"), "Use another name"),
        (("--env", "https_proxy"), "Use another name"),
        (("--fd", "2"), "--fd takes"),
        (("--fd", "-1"), "--fd takes"),
        (("--fd", "999999999"), "lower number"),
        (("--fd", "99999999999999999999"), "lower number"),
        (("--fd", "5", "--env", "X"), "not both"),
    ],
)
def test_a_way_that_cannot_be_is_refused_before_anything_runs(tmp_path: Path, words: tuple[str, ...], says: str):
    with answering(READY) as (env, _):
        done = shell("run", "mail", *words, "--", "touch", "ran", cwd=tmp_path, env=env)
    assert (2, "", True) == (done.code, done.out, says in done.err)
    assert not (tmp_path / "ran").exists()


@pytest.mark.case("114")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--", "touch"), "Missing argument 'APP'"),
        (("--", "touch", "ran"), "Missing argument 'APP'"),
        (("--env", "X", "--", "touch", "ran"), "Missing argument 'APP'"),
        ((), "Missing argument 'APP'"),
        (("mail",), "Missing argument '-- COMMAND...'"),
        (("mail", "--"), "Missing argument '-- COMMAND...'"),
    ],
)
def test_a_line_without_app_or_command_says_which_is_missing(tmp_path: Path, words: tuple[str, ...], says: str):
    with answering(READY) as (env, _):
        done = shell("run", *words, cwd=tmp_path, env=env)
    assert (2, "", True) == (done.code, done.out, says in done.err), done.err
    assert "oauthbroker run [OPTIONS] APP -- COMMAND...\n" in done.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.case("114")
def test_a_token_that_no_pipe_holds_is_refused(tmp_path: Path):
    with answering({**READY, "accessToken": "t" * 70_000}) as (env, _):
        done = shell("run", "mail", "--fd", "7", "--", "touch", "ran", cwd=tmp_path, env=env)
    assert (2, "", True) == (done.code, done.out, "--env" in done.err)
    assert not (tmp_path / "ran").exists()


@pytest.mark.case("114")
@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"OAUTHBROKER_TURN_TOKEN": TURN}, "OAUTHBROKER_URL is not set"),
        ({"OAUTHBROKER_TURN_TOKEN": ""}, "OAUTHBROKER_URL is not set"),
        ({"OAUTHBROKER_URL": "http://127.0.0.1:1"}, "OAUTHBROKER_TURN_TOKEN is not set"),
        ({"OAUTHBROKER_URL": "http://10.0.0.9", "OAUTHBROKER_TURN_TOKEN": TURN}, "use https"),
        ({"OAUTHBROKER_URL": "http://127.0.0.1:1", "OAUTHBROKER_TURN_TOKEN": "a secret?"}, "no token or key"),
    ],
)
def test_an_environment_without_a_turn_is_named(tmp_path: Path, env: dict[str, str], says: str):
    done = shell("token", "mail", cwd=tmp_path, env=env)
    assert (2, "", True) == (done.code, done.out, says in done.err)
    assert "a secret?" not in done.err


@pytest.mark.case("112")
def test_a_terminal_is_shown_no_token(tmp_path: Path):
    with answering(READY) as (env, bodies):
        ours, theirs = pty.openpty()
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", MAIN, "token", "mail"], cwd=tmp_path, env=environment(**env), text=True,
                stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
            )  # fmt: skip
            _, err = process.communicate(timeout=60)
        finally:
            os.close(theirs)
            os.close(ours)
    assert (2, True, []) == (process.returncode, "oauthbroker run" in err, bodies)


@pytest.mark.case("113")
@pytest.mark.slow
def test_a_real_turn_gets_its_link_then_its_token_and_nothing_of_another_app(
    desk: Desk, idp: IdentityProvider, canaries: Canaries, tmp_path: Path
):
    desk.ready_to_serve(idp)
    key = desk.type("api-keys", "create", "runtime").out.strip()
    tools = {"Tool/mail": [ToolAuth("mail", ("read",))], "Tool/none": list[ToolAuth]()}

    async def type_in(*words: str, env: dict[str, str]) -> Done:
        return await asyncio.to_thread(shell, *words, cwd=tmp_path, env=env)

    async def story() -> None:
        of = turn(user=f"idp:user:{idp.account('alice').sub}")
        async with Runtime(desk.base, key) as runtime, runtime.turn(of, tools=tools) as begun:
            env = begun.env_for("Tool/mail")
            asked = await type_in("token", "mail", env=env)
            assert (75, "") == (asked.code, asked.out)
            page = await connect_through(Browser(canaries=canaries), idp, asked.err.split()[-1], "alice")
            assert 200 == page.status
            token = await type_in("token", "mail", env=env)
            assert 0 == token.code
            run = await type_in("run", "mail", "--env", "T", "--", "printenv", "T", env=env)
            assert (0, token.out) == (run.code, run.out)
            wider = await type_in("token", "mail", "--scope", "write", env=env)
            assert (2, "", True) == (wider.code, wider.out, wider.err.startswith("scopeNotAllowed: "))
            other = await type_in("token", "mail", env=begun.env_for("Tool/none"))
            assert (2, "", True) == (other.code, other.out, other.err.startswith("appForbidden: "))
        ended = await type_in("token", "mail", env=env)
        assert (2, "", True) == (ended.code, ended.out, ended.err.startswith("turnEnded: "))

    with serving(desk):
        asyncio.run(story())
