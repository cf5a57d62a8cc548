"""A broker behind a real server in a thread of its own, for clients that are not ours and know nothing of asyncio."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import uvicorn

from oauthbroker import open_broker
from oauthbroker.apps import Bundle
from oauthbroker.audit import AuditList
from oauthbroker.broker import Broker
from oauthbroker.clock import SystemClock
from oauthbroker.repository import KINDS, LEASES
from oauthbroker.results import AuthorizationRequired
from oauthbroker.settings import Limits
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Browser, Canaries, IdentityProvider, connect_through
from oauthbroker.turns import Begun
from oauthbroker.web.access_log import json_log, uvicorn_options
from oauthbroker.web.api import limits
from tests.e2e.served import free_port
from tests.house import at, global_app, public, turn, user_app
from tests.story.api.kit import TOOLS


@dataclass
class Served:
    """What a client needs to know."""

    url: str
    canaries: Canaries
    log: io.StringIO
    runtime: str = field(default="", repr=False)
    operator: str = field(default="", repr=False)
    turn: str = field(default="", repr=False)
    tool: str = field(default="", repr=False)
    session: str = ""
    link: str = field(default="", repr=False)


@contextmanager
def api_server() -> Iterator[Served]:
    """A broker with a grant for `mail` and `team`, a person who is waited for with `files`, and an event in the queue."""
    ready, over, found = threading.Event(), threading.Event(), list[Served | BaseException]()

    def run() -> None:
        try:
            asyncio.run(_serve(found, ready, over))
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            found.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="api server")
    thread.start()
    try:
        assert ready.wait(30)
        assert isinstance(found[0], Served), found
        yield found[0]
    finally:
        over.set()
        thread.join(30)
    assert 1 == len(found), found


async def _serve(found: list[Served | BaseException], ready: threading.Event, over: threading.Event) -> None:
    canaries, clock, log = Canaries(), SystemClock(), io.StringIO()
    patient = patch.object(limits, "FAILURES_PER_MINUTE", 1_000_000)
    with patient, canaries, IdentityProvider(clock=clock, canaries=canaries) as idp, free_port() as door:
        base = f"http://127.0.0.1:{door.getsockname()[1]}"
        apps = [at(idp, base, app) for app in (user_app(idp), user_app(idp, "files"), global_app(idp))]
        settings = public(base, limits=Limits(requests_per_minute=1_000_000, sessions_per_subject=1_000_000))
        store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        bundle = Bundle(settings, {app.name: app for app in apps}, TOOLS)
        async with open_broker(
            bundle, env={}, clock=clock, store=store, audit=AuditList(), log=json_log(log, clock)
        ) as broker:
            server = uvicorn.Server(uvicorn.Config(broker.web, **uvicorn_options(), lifespan="off"))
            serving = asyncio.create_task(server.serve(sockets=[door]))
            while not server.started:
                await asyncio.sleep(0.01)
            found.append(await _furnished(broker, idp, Served(base, canaries, log)))
            ready.set()
            await asyncio.to_thread(over.wait)
            broker.life.stop()
            server.should_exit = True
            await serving


async def _furnished(broker: Broker, idp: IdentityProvider, served: Served) -> Served:
    for app in ("mail", "team"):
        asked = await broker.oauth(turn()).get_access_token(app)
        assert isinstance(asked, AuthorizationRequired)
        browser = Browser(canaries=served.canaries)
        assert 200 == (await connect_through(browser, idp, asked.authorization_url, "alice")).status
    asked = await broker.oauth(turn()).get_access_token("files")
    assert isinstance(asked, AuthorizationRequired)
    served.session, served.link = asked.auth_session_id, asked.authorization_url
    for role in ("runtime", "operator"):
        _, secret = await broker.api_keys.create(role, [role])
        setattr(served, role, secret.reveal())
    begun: Begun = await broker.turns.begin(turn(), tools=dict.fromkeys(TOOLS))
    served.turn, served.tool = begun.token.reveal(), begun.tool_tokens["Tool/both"].reveal()
    return served
