"""Broker processes to be killed: a nursery that imports everything once and forks one broker per line on its stdin.

First line: where the store and the provider are, as JSON. Then each `<n>` starts a broker whose people connect pair
n, n+1, ... without end, and whose agent acknowledges every event. What happens is said line by line, each written at
once, so that a line that was read is a fact that must survive.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from oauthbroker import Turn, open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Browser, Client, IdentityProvider, connect_through
from oauthbroker.testing.provider.simulated_user import go_through
from tests.kit.running_broker import BASE, file_store, turn, user_app

PEOPLE, APPS = 10, 250
PAIRS = PEOPLE * APPS  # more than any run gets to


class Elsewhere:
    """The provider of the parent process, as far as an app and a person need to know it."""

    def __init__(self, endpoints: dict[str, str], secret: str) -> None:
        self.endpoints, self.base_url, self._secret = endpoints, endpoints["issuer"], secret

    def client(self, client_id: str) -> Client:
        return Client(client_id, Secret(self._secret))

    async def agree(
        self,
        url: str,
        account: str = "alice",
        *,
        browser: Browser | None = None,
        deny: bool = False,
        scopes: Sequence[str] | None = None,
    ) -> str:
        return await go_through(
            browser or Browser(), url, home=self.base_url, account=account, deny=deny, scopes=scopes
        )


def say(*words: object) -> None:
    """One line in one write: it is out as a whole, or not at all."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def app_of(number: int) -> str:
    return f"app{number // PEOPLE % APPS}"


def subject_of(number: int) -> str:
    return f"idp:user:P{number % PEOPLE}"


def turns_of(number: int) -> list[Turn]:
    """Two agents' instances that wait for the same person."""
    return [turn(subject_of(number), instance=f"{number}-{name}") for name in ("first", "second")]


async def connect(broker: Broker, elsewhere: Elsewhere, number: int, say: Callable[..., None] = say) -> None:
    """One person's story; one who was granted in an earlier life is left in peace."""
    asked = [await broker.oauth(each).get_access_token(app_of(number)) for each in turns_of(number)]
    links = [each for each in asked if each.status == "authorization_required"]
    say("asked", number, *[each.auth_session_id for each in links])
    if not links:
        return
    browser = Browser(apps={BASE: broker.asgi.app})
    page = await connect_through(browser, elsewhere, links[0].authorization_url, f"person{number % PEOPLE}")
    say("granted" if page.status == 200 else "refused", number, links[0].auth_session_id)


async def consume(broker: Broker) -> None:
    while True:
        delivery = await broker.events.lease("planner", wait=30)
        if delivery is not None:
            say("received", delivery.id, delivery.event.payload.get("grantId", "none"))
            if await delivery.ack():
                say("acknowledged", delivery.id)


async def live(folder: Path, apps: dict[str, App], elsewhere: Elsewhere, first: int) -> None:
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}))
    clock, log = SystemClock(), io.StringIO()
    bundle, store = Bundle(settings, apps), file_store(folder, clock)
    async with open_broker(
        bundle, env={}, clock=clock, store=store, audit=AuditList(), log=json_log(log, clock)
    ) as broker:
        say("up", os.getpid())
        consumer = asyncio.create_task(consume(broker))
        for number in itertools.count(first):
            await connect(broker, elsewhere, number)
            if consumer.done():
                consumer.result()


async def warm_up(apps: dict[str, App], elsewhere: Elsewhere) -> None:
    """One story in memory, so that templates and certificates are loaded once and not in every short life."""
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}))
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())
    log = json_log(io.StringIO(), SystemClock())
    async with open_broker(Bundle(settings, apps), env={}, store=store, audit=AuditList(), log=log) as broker:
        await connect(broker, elsewhere, PAIRS - 1, say=lambda *_: None)


def main() -> None:
    """Forks, waits until its child was killed, forks again."""
    orders: dict[str, Any] = json.loads(sys.stdin.readline())
    elsewhere = Elsewhere(orders["endpoints"], orders["secret"])
    apps = {name: user_app(cast("IdentityProvider", elsewhere), name) for name in map(app_of, range(0, PAIRS, PEOPLE))}
    asyncio.run(warm_up(apps, elsewhere))
    while first := sys.stdin.readline().strip():
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(live(Path(orders["folder"]), apps, elsewhere, int(first)))
            finally:
                os._exit(1)
        say("born", child)
        _, status = os.waitpid(child, 0)
        say("dead", child, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
