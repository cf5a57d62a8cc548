"""Another broker process on the same files, driven by a test: reads its orders as one line of JSON, answers likewise.

It says `ready`, waits for `go`, and then does its task. `die` names a moment to be killed at, by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, cast

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.records import AuthSession
from oauthbroker.repository.repository import Repository, Versioned
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider.types import Client
from tests.kit.running_broker import BASE, file_store, user_app
from tests.unit.web import kit


class Elsewhere:
    """The provider of the test's process, as far as an app needs to know it."""

    def __init__(self, endpoints: dict[str, str], secret: str) -> None:
        self.endpoints, self._secret = endpoints, secret

    def client(self, client_id: str) -> Client:
        return Client(client_id, Secret(self._secret))


async def call_back(broker: Broker, orders: dict[str, Any]) -> int:
    """One browser with these cookies comes back."""
    answer = await kit.ask(
        broker.asgi.app,
        "/oauth/callback/mail",
        query=orders["query"].encode(),
        headers=[("cookie", orders["cookies"])],
        host=BASE.removeprefix("http://"),
    )
    return answer.status


def die_before_the_session_ends() -> None:
    """A power cut between the grant and its session: SIGKILL in the middle of the commit."""
    save = Repository.save_session

    async def save_or_die(self: Repository, session: AuthSession, *, expect: int) -> Versioned[AuthSession]:
        if not session.open:
            os.kill(os.getpid(), signal.SIGKILL)
        return await save(self, session, expect=expect)

    Repository.save_session = save_or_die  # type: ignore[method-assign]


async def main() -> None:
    orders = json.loads(sys.stdin.readline())
    if orders["die"] == "beforeTheSessionEnds":
        die_before_the_session_ends()
    elsewhere = cast("IdentityProvider", Elsewhere(orders["endpoints"], orders["secret"]))
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}))
    clock = SystemClock()
    store = file_store(Path(orders["folder"]), clock)
    bundle = Bundle(settings, {"mail": user_app(elsewhere)})
    async with open_broker(bundle, env={}, clock=clock, store=store, audit=AuditList()) as broker:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        found = await asyncio.gather(*(call_back(broker, orders) for _ in range(orders["times"])))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
