"""The command line for tests: in this process for its words, as a process of its own for what the system sees."""

from __future__ import annotations

import asyncio
import io
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Ready, open_broker
from oauthbroker.cli import run
from oauthbroker.testing import Browser, Canaries, Client, IdentityProvider, connect_through
from tests.kit import warm_python
from tests.kit.running_broker import turn

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 60
MAIN = warm_python.MAIN
CLIENT_ID, SECRET = "client-mail", ("mail", "client_secret")
BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: {base}
  listen: {{host: 127.0.0.1, port: {port}}}
  store: {{root: ../store}}
  keys: {{file: ../keys/broker.kek}}
  weaken: [plainHttpProvider]
"""
APP = """\
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: mail}}
spec:
  provider: oidc
  flow: authorizationCode
  subjectMode: user
  client:
    clientId: client-mail
    clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/mail, key: client_secret}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [read, write]
  owner: {{identity: {{user: {{template: "idp:user:{{sub}}"}}}}}}
"""


@dataclass(frozen=True)
class Done:
    """A command's exit code and output."""

    code: int
    out: str
    err: str


class Desk:
    """A folder with a configuration, where commands are typed. All their output is swept for secrets."""

    def __init__(self, folder: Path, canaries: Canaries, patch: pytest.MonkeyPatch, capture: Any) -> None:
        self.folder, self.canaries = folder, canaries
        self._patch, self._capture = patch, capture
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.key_file = folder / "keys" / "broker.kek"
        canaries.excuse(self.key_file)
        self.write("broker", BROKER.format(base=self.base, port=self.port))
        patch.chdir(folder)
        patch.delenv("OAUTHBROKER_KEY", raising=False)
        patch.delenv("OAUTHBROKER_KEY_FILE", raising=False)

    def write(self, name: str, text: str) -> None:
        (self.folder / "config").mkdir(exist_ok=True)
        (self.folder / "config" / f"{name}.yaml").write_text(text, "utf-8")

    def serve_app_of(self, idp: IdentityProvider) -> str:
        """Configures an app at this provider; its client secret, which is a canary."""
        client = idp.register(Client(CLIENT_ID, redirect_uris=(f"{self.base}/oauth/callback/mail",)))
        self.write("mail", APP.format(issuer=idp.issuer))
        return client.reveal_secret()

    def type(self, *words: str, stdin: str | bytes = "") -> Done:
        """One command in this process."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        self._capture.readouterr()
        code = run(list(words))
        printed = self._capture.readouterr()
        return Done(code, printed.out, printed.err)

    def ready_to_serve(self, idp: IdentityProvider) -> None:
        """What README.md says: init, then the secret."""
        secret = self.serve_app_of(idp)
        assert 0 == self.type("init").code
        self.canaries.add(self.key_file.read_text("ascii").strip(), "key")
        assert 0 == self.type("secrets", "set", *SECRET, stdin=secret).code

    def connect(self, account: str, idp: IdentityProvider) -> None:
        """A person agrees, so that there is a grant."""
        asyncio.run(self._connect(idp, account))

    async def _connect(self, idp: IdentityProvider, account: str) -> None:
        of = turn(user=f"idp:user:{idp.account(account).sub}")
        async with open_broker("config") as broker:
            asked: Any = await broker.oauth(of).get_access_token("mail")
            browser = Browser(apps={self.base: broker.asgi.app}, canaries=self.canaries)
            page = await connect_through(browser, idp, asked.authorization_url, account)
            assert 200 == page.status, page.text
            assert isinstance(await broker.oauth(of).get_access_token("mail"), Ready)


@contextmanager
def serving(
    desk: Desk, *words: str, prelude: str = "", lines: str = "wb", **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`oauthbroker serve` as a process of its own, until the block ends; its output is swept. `lines="ab"` keeps those
    of the one before."""
    log = desk.folder / "serve.log"
    with log.open(lines) as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", prelude + MAIN, "serve", *words], env=environment(**env), cwd=desk.folder,
            stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
        )  # fmt: skip
        try:
            wait_until_up(desk, process, log)
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)


def wait_until_up(desk: Desk, process: subprocess.Popen[bytes], log: Path) -> None:
    """Workers of a busy machine may take their time to begin; meanwhile their sockets take connections already."""
    late = time.monotonic() + START_SECONDS
    while time.monotonic() < late:
        if process.poll() == -signal.SIGKILL:
            return  # by its prelude, as soon as it was up
        assert process.returncode is None, log.read_text("utf-8")
        with closing(HTTPConnection("127.0.0.1", desk.port, timeout=START_SECONDS)) as connection:
            try:
                connection.request("GET", "/healthz")
                assert b'{"status":"ok"}' == connection.getresponse().read()
            except OSError:
                time.sleep(0.05)
            else:
                return
    pytest.fail(f"never up: {log.read_text('utf-8')}")


def age_after_a_start(desk: Desk, number: int, **env: str) -> None:
    """Start a broker, and wait until its host has seen this age."""
    seen = desk.folder / "store" / "data" / "audit.seen"
    with serving(desk, **env):
        for _ in range(1_200):
            if seen.exists() and json.loads(seen.read_text()).get("number") == number:
                return
            time.sleep(0.05)
    pytest.fail(seen.read_text())


def environment(**more: str) -> dict[str, str]:
    """A newcomer's: nothing of ours is set."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": "/nonexistent", "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1", **more}


def command(*words: str, cwd: Path, seconds: float = 2 * START_SECONDS, **env: str) -> Done:
    """Run one command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words], check=False, cwd=cwd, env=environment(**env), capture_output=True,
        text=True, timeout=seconds, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def log_lines(desk: Desk) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (desk.folder / "serve.log").read_text("utf-8").splitlines()]


def free_port() -> int:
    """Return a free port that no server gets by asking for any port: below the kernel's ephemeral range."""
    for _ in range(100):
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("100 ports in use")
