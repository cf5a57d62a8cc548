"""A running `oauthbroker serve` as runtimes and tools in other processes see it: HTTP with a key, and turn tokens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from oauthbroker.config import load
from oauthbroker.model.settings import Role
from oauthbroker.wiring import open_vault
from tests.kit.cli import Desk, log_lines

Answer = tuple[int, Any]
TURN = {"agentName": "planner", "instanceKey": "1700000000.000100", "swarmRef": "Swarm/default"}


def make_key(desk: Desk, *roles: Role) -> str:
    """A key of both roles, or of these, which is a canary from now on."""

    async def make() -> str:
        async with open_vault(load(desk.folder / "config").settings, env={}) as vault:
            _, secret = await vault.api_keys.create("runtime", roles or ("runtime", "operator"))
            return secret.reveal()

    key = asyncio.run(make())
    desk.canaries.add(key, "key")
    return key


@dataclass
class Service:
    """Calls one port of a server, each on a connection of its own, which any worker may take."""

    port: int
    key: str = field(repr=False)

    def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, seconds: float = 30
    ) -> Answer:
        """The status and the JSON of one call; status 0 where the line went dead before an answer."""
        headers = {"Authorization": f"Bearer {token or self.key}", "Content-Type": "application/json"}
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=seconds)) as line:
            try:
                line.request(method, path, None if body is None else json.dumps(body), headers)
                answer = line.getresponse()
                text = answer.read()
            except (ConnectionError, HTTPException):
                return 0, None
            return answer.status, json.loads(text) if text else None

    def begin(self, user: str, *, instance: str = "1700000000.000100") -> dict[str, Any]:
        """A turn of this person's; the answer with its token."""
        auth = {"actor": {"type": "user", "id": "chat:U1"}, "subjects": {"user": user}}
        status, begun = self.call("POST", "/v1/turns", {"turn": {**TURN, "instanceKey": instance, "auth": auth}})
        assert status == 201, begun
        return dict(begun)

    def token(self, turn_token: str, app: str = "mail") -> Answer:
        return self.call("POST", "/v1/tokens", {"oauthAppRef": f"OAuthApp/{app}"}, token=turn_token)

    def reject(self, turn_token: str, access_token: str, app: str = "mail", seconds: float = 30) -> Answer:
        """The token does not work: another one, for which the provider has to be asked."""
        body = {"oauthAppRef": f"OAuthApp/{app}", "accessToken": access_token}
        return self.call("POST", "/v1/tokens/rejected", body, token=turn_token, seconds=seconds)


def until(claim: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_there(process: int) -> bool:
    """Whether a process runs; one that is dead and not reaped does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def user_of(idp: Any, account: str = "alice") -> str:
    return f"idp:user:{idp.account(account).sub}"


def log_events(desk: Desk, event: str) -> list[dict[str, Any]]:
    return [line for line in log_lines(desk) if line["event"] == event]


def serving_count_is(desk: Desk, count: int) -> bool:
    return len(log_events(desk, "serving")) == count


def wait_until_all_serve(desk: Desk, count: int) -> None:
    until(lambda: {*range(1, count + 1)} <= {line["worker"] for line in log_events(desk, "serving")})
