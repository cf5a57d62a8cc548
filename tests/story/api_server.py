"""A broker behind a real server in a thread of its own, for clients that are not ours and know nothing of asyncio."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import uvicorn

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.grants import cached_scan
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.settings import Limits, Role
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.model.turn_token import BegunTurn
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Browser, Canaries, IdentityProvider, connect_through
from oauthbroker.web.middleware import rate_limits
from oauthbroker.web.middleware.access_log import uvicorn_options
from tests.e2e.served import free_port
from tests.kit.running_broker import at, global_app, public, turn, user_app
from tests.story.api.kit import TOOLS

Apps = Callable[[IdentityProvider], Iterable[App]]


@dataclass
class Served:
    """What a client needs to know."""

    url: str
    canaries: Canaries
    log: io.StringIO
    idp: IdentityProvider | None = None
    runtime: str = field(default="", repr=False)
    operator: str = field(default="", repr=False)
    turn: str = field(default="", repr=False)
    tool: str = field(default="", repr=False)
    session: str = ""
    link: str = field(default="", repr=False)


@dataclass(frozen=True)
class Furniture:
    """What the broker knows from the start."""

    apps: Apps
    tools: Mapping[str, tuple[ToolAuth, ...]]
    furnish: bool


@contextmanager
def api_server(
    apps: Apps | None = None, tools: Mapping[str, tuple[ToolAuth, ...]] = TOOLS, *, furnish: bool = True
) -> Iterator[Served]:
    """A broker; if furnished, with a grant for `mail` and `team`, a user who is asked for `files`, and events."""
    ready, over, found = threading.Event(), threading.Event(), list[Served | BaseException]()

    def run() -> None:
        try:
            asyncio.run(_serve(found, ready, over, Furniture(apps or _three, tools, furnish)))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            found.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="api server")
    thread.start()
    try:
        assert ready.wait(60)
        assert isinstance(found[0], Served), found
        yield found[0]
    finally:
        over.set()
        thread.join(60)
    assert 1 == len(found), found


def _three(idp: IdentityProvider) -> list[App]:
    return [user_app(idp), user_app(idp, "files"), global_app(idp)]


async def _serve(
    found: list[Served | BaseException], ready: threading.Event, over: threading.Event, furniture: Furniture
) -> None:
    canaries, clock, log = Canaries(), SystemClock(), io.StringIO()
    patient = patch.object(rate_limits, "FAILURES_PER_MINUTE", 1_000_000)
    quick = patch.object(cached_scan, "PAUSE_SECONDS", 0.01)  # between two searches for a grant that is not there
    with patient, quick, canaries, IdentityProvider(clock=clock, canaries=canaries) as idp, free_port() as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        apps = [at(idp, base, app) for app in furniture.apps(idp)]
        settings = public(base, limits=Limits(requests_per_minute=1_000_000, sessions_per_subject=1_000_000))
        store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        bundle = Bundle(settings, {app.name: app for app in apps}, furniture.tools)
        async with open_broker(
            bundle, env={}, clock=clock, store=store, audit=AuditList(), log=json_log(log, clock)
        ) as broker:
            server = uvicorn.Server(uvicorn.Config(broker.asgi.app, **uvicorn_options(), lifespan="off"))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            served = await _with_keys(broker, Served(base, canaries, log, idp))
            found.append(await _furnished(broker, idp, served) if furniture.furnish else served)
            ready.set()
            await asyncio.to_thread(over.wait)
            broker.life.stop()
            server.should_exit = True
            await serving


async def _with_keys(broker: Broker, served: Served) -> Served:
    roles: tuple[Role, ...] = ("runtime", "operator")
    for role in roles:
        _, secret = await broker.api_keys.create(role, [role])
        setattr(served, role, secret.reveal())
    return served


async def _furnished(broker: Broker, idp: IdentityProvider, served: Served) -> Served:
    for app in ("mail", "team"):
        asked = await broker.oauth(turn()).get_access_token(app)
        assert isinstance(asked, AuthorizationRequired)
        browser = Browser(canaries=served.canaries)
        assert 200 == (await connect_through(browser, idp, asked.authorization_url, "alice")).status
    asked = await broker.oauth(turn()).get_access_token("files")
    assert isinstance(asked, AuthorizationRequired)
    served.session, served.link = asked.auth_session_id, asked.authorization_url
    begun: BegunTurn = await broker.turns.begin(turn(), tools=dict.fromkeys(TOOLS))
    served.turn, served.tool = begun.token.reveal(), begun.tool_tokens["Tool/both"].reveal()
    return served
