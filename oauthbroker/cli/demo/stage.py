"""Run the demo: the provider, the broker behind its port, the agent, and with `--auto` the user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oauthbroker import Broker
from oauthbroker.cli.demo.bundle import CALLBACK_PATH, CLIENT_ID, SCOPE, SECRET, STORE_ENV, write_bundle
from oauthbroker.cli.demo.demo_folder import fresh
from oauthbroker.cli.demo.printing import Telling
from oauthbroker.cli.demo.story import Story, StoryEnd
from oauthbroker.config import load
from oauthbroker.config.bundle.schema import write_schema
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.observability.library_log import calm_libraries
from oauthbroker.observability.logging import Log, json_log
from oauthbroker.serving.connection_slots import Terms
from oauthbroker.serving.listeners import listen
from oauthbroker.serving.server import served
from oauthbroker.serving.signals import on_signals
from oauthbroker.testing import Browser, Client, IdentityProvider, connect_through
from oauthbroker.wiring import init_store, open_broker, open_vault

FOLDER = Path("store", "demo")
LOG = "broker.log"
API = "/api/messages"
PERSON = "alice"
ARRIVAL_SECONDS = 5


async def play(*, auto: bool, port: int, store: str = "", aside: bool = False) -> StoryEnd:
    """Run the whole demo, with its text on stdout or, if `aside`, on stderr. `store` is the URL of a database, or
    empty. Raises Refused if it cannot start, CancelledError when the user stops it."""
    if urlsplit(store).password is not None:
        raise Refused("Every user of this machine can read the password in a command. Put it into PGPASSWORD.")
    performance = asyncio.create_task(_perform(auto=auto, port=port, store=store, aside=aside))
    with on_signals(performance.cancel):
        return await performance


async def _perform(*, auto: bool, port: int, store: str, aside: bool) -> StoryEnd:
    env = {STORE_ENV: store} if store else {}
    with fresh(FOLDER) as (folder, key_file), listen("127.0.0.1", port) as listener:
        async with AsyncExitStack() as stack:
            base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            provider = stack.enter_context(_provider(base_url))
            config = write_bundle(
                folder,
                base_url=base_url,
                port=listener.getsockname()[1],
                key_file=key_file,
                issuer=provider.issuer,
                in_database=bool(store),
            )
            log = stack.enter_context(_log_file(folder / LOG))
            await _prepare(config, provider, env)
            broker = await stack.enter_async_context(open_broker(config, env=env, log=log))
            pages = DemoArrival(broker.asgi.app)
            await stack.enter_async_context(served(pages, [listener], Terms(log)))
            telling = Telling(aside=aside)
            telling.opening(provider=provider.base_url, broker=base_url, folder=str(FOLDER))
            ending = await _tell(broker, provider, telling, auto=auto)
            await pages.wait(ARRIVAL_SECONDS)
            return ending


async def _prepare(config: Path, provider: IdentityProvider, env: Mapping[str, str]) -> None:
    """Do `oauthbroker init`, then `oauthbroker secrets set`."""
    write_schema(config)
    settings = load(config).settings
    init_store(settings, env, SystemClock())
    secret = Secret(provider.client(CLIENT_ID).reveal_secret())
    async with open_vault(settings, env=env) as vault:
        await vault.secrets.put(*SECRET, secret)


async def _tell(broker: Broker, provider: IdentityProvider, telling: Telling, *, auto: bool) -> StoryEnd:
    story = Story(broker, telling, api=provider.url(API), subject=f"demo:user:{provider.account(PERSON).sub}")
    if not auto:
        return await story.run()
    plot = asyncio.create_task(story.run())
    person = asyncio.create_task(_agree(story, provider))
    try:
        await asyncio.wait({plot, person}, return_when=asyncio.FIRST_EXCEPTION)
        if not person.cancelled():
            person.result()
        return await plot
    finally:
        plot.cancel()
        person.cancel()


async def _agree(story: Story, provider: IdentityProvider) -> None:
    """Play a user who opens the link as soon as it is shown, and consents."""
    link = await story.link
    story.telling.says("you", "(played by --auto) open the link, sign in as Alice Arden, allow")
    page = await connect_through(Browser(), provider, link, PERSON)
    if page.status != 200:
        raise Refused(f"The broker's page refused the person with status {page.status}; see {FOLDER / LOG}.")


@contextlib.contextmanager
def _provider(base_url: str) -> Iterator[IdentityProvider]:
    """Run the provider in a thread of its own, with the broker registered as its client."""
    client = Client(CLIENT_ID, redirect_uris=(base_url + CALLBACK_PATH,), name="Planner (oauthbroker demo)")
    with IdentityProvider(clients=[client]) as provider:
        provider.resource_scope = SCOPE
        yield provider


@contextlib.contextmanager
def _log_file(path: Path) -> Iterator[Log]:
    """Write the broker's log to a file, apart from the demo's text."""
    with path.open("w", encoding="ascii") as stream:
        log = json_log(stream, SystemClock())
        with calm_libraries(log):
            yield log


class DemoArrival:
    """ASGI middleware that counts redirects, while the demo must not close: a 303 starts one, the next page ends it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._busy = 0
        self._arrived = asyncio.Event()
        self._arrived.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._busy += 1
        self._arrived.clear()
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._busy -= 1
            if not self._busy and status != 303:
                self._arrived.set()

    async def wait(self, seconds: float) -> None:
        """Return when no redirect is open, or after `seconds`, because the browser may be closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
