"""The test harness: a scripted provider, a broker on it, people with browsers, turns of agents."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oauthbroker import Turn, TurnAuth
from oauthbroker.audit.formatting import line_of
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.broker_login import BrokerLogin
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.forwarders import Forwarder
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.mcp_server import McpServer
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.observability.logging import json_log
from oauthbroker.records import AuthSession, Grant
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.format.port import Entry, Key, Reservation, Store
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Browser, Canaries, IdentityProvider, TestClock, connect_through, leave
from oauthbroker.testing.browser import Page
from oauthbroker.testing.provider.types import Client as Registration
from oauthbroker.wiring.opening import open_running
from oauthbroker.wiring.running import Running
from tests.kit.default_store import default_store
from tests.kit.running_on import HasRunning

BASE = "http://127.0.0.1:8420"
SCOPES = ("read", "write", "admin")
ALICE, BOB, MALLORY = "idp:user:U234567", "idp:user:U345678", "idp:user:U666666"
TEAM = "idp:team:T111"
SUBS = {"alice": "U234567", "bob": "U345678", "mallory": "U666666"}


def endpoints_of(idp: IdentityProvider) -> Endpoints:
    said = idp.endpoints
    return Endpoints(
        authorization_url=said["authorizationUrl"],
        token_url=said["tokenUrl"],
        revoke_url=said["revokeUrl"],
        user_info_url=said["userInfoUrl"],
        issuer=said["issuer"],
        jwks_url=said["jwksUrl"],
        device_authorization_url=said["deviceAuthorizationUrl"],
    )


def user_app(idp: IdentityProvider, name: str = "mail", **changes: Any) -> App:
    """User mode: whose account it is comes from the ID token."""
    client = register(idp, name)
    app = App(
        name=name,
        provider="oidc",
        flow="authorizationCode",
        subject_mode="user",
        client=Client(client.client_id, client.client_secret),
        endpoints=endpoints_of(idp),
        scopes=SCOPES,
        redirect=Redirect(f"/oauth/callback/{name}", BASE),
        owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")),
        title=name.title(),
        revocation=Revocation(reach="token"),
        habits=Habits(always_scopes=("openid",)),
    )
    return replace(app, **changes)


def mcp_app(idp: IdentityProvider, name: str = "mail") -> App:
    """An app at an MCP server whose client the broker registers itself."""
    idp.takes_clients = True
    learnt: dict[str, Any] = {"client": Client("", None, "none"), "endpoints": Endpoints()}
    return user_app(idp, name, mcp=McpServer(idp.url("/mcp")), resource=(idp.url("/mcp"),), **learnt)


def global_app(idp: IdentityProvider, name: str = "team", **changes: Any) -> App:
    """Global mode: the team from userinfo, and only Alice may connect it for the team."""
    owner = Owner(
        global_identity=IdentityRule("userInfo", "idp:team:{team}"),
        user_identity=IdentityRule("userInfo", "idp:user:{sub}"),
        authorizers=(ALICE,),
    )
    return replace(user_app(idp, name, subject_mode="global", owner=owner), **changes)


def device_app(idp: IdentityProvider, name: str = "tv", **changes: Any) -> App:
    """User mode with a code that is typed elsewhere (RFC 8628)."""
    return user_app(idp, name, **{"flow": "deviceCode", **changes})


def at(idp: IdentityProvider, base: str, app: App) -> App:
    """The app of a broker with another public address; the provider knows of it."""
    moved = replace(app, redirect=replace(app.redirect, base_url=base))
    idp.change(app.client.client_id, redirect_uris=(moved.redirect.uri,))
    return moved


def public(base: str, **more: Any) -> Settings:
    """The settings of a broker with another public address than BASE."""
    return Settings(public_base_url=base, weaken=frozenset({"plainHttpProvider"}), **more)


def register(idp: IdentityProvider, name: str) -> Registration:
    """The app's client at the provider; asked again (for a broker's successor), the same with its secret."""
    try:
        return idp.client(f"client-{name}")
    except KeyError:
        return idp.register(Registration(f"client-{name}", redirect_uris=(f"{BASE}/oauth/callback/{name}",)))


def turn(
    user: str | None = ALICE, team: str | None = TEAM, agent: str = "planner", instance: str = "1700000000.000100"
) -> Turn:
    subjects = {mode: subject for mode, subject in (("user", user), ("global", team)) if subject is not None}
    auth = TurnAuth(actor={"type": "user", "id": "chat:U234567"}, subjects=subjects)
    return Turn(agent, instance, "Swarm/default", origin={"connector": "chat-main", "channel": "C123"}, auth=auth)


@dataclass
class Harness(HasRunning):
    """One running broker and the world around it. `corp` is where people log in to the broker itself."""

    idp: IdentityProvider
    clock: TestClock
    store: Store
    audit: AuditList
    log: io.StringIO
    running: Running
    browsers: list[Browser] = field(default_factory=list)
    corp: IdentityProvider | None = None

    @property
    def origin(self) -> str:
        """The scheme, host and port of the broker's public address."""
        parts = urlsplit(self.broker.bundle.settings.public_base_url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def repository(self) -> Repository:
        """A second pair of eyes on the store."""
        return Repository(self.store)

    def browser(self) -> Browser:
        """A new person's browser, with a cookie jar of its own."""
        browser = Browser(apps={self.origin: self.broker.asgi.app})
        self.browsers.append(browser)
        return browser

    async def ask(
        self, app: str = "mail", scopes: Iterable[str] | None = None, of: Turn | None = None, **more: Any
    ) -> Any:
        wanted = None if scopes is None else list(scopes)
        return await self.broker.oauth(of or turn()).get_access_token(app, wanted, **more)

    async def ask_link(
        self, app: str = "mail", scopes: Iterable[str] | None = None, of: Turn | None = None
    ) -> AuthorizationRequired:
        result = await self.ask(app, scopes, of)
        assert isinstance(result, AuthorizationRequired), result
        return result

    async def connect(
        self, result: AuthorizationRequired, account: str = "alice", browser: Browser | None = None, **more: Any
    ) -> Page:
        """A person opens the link and goes all the way. Where a login comes first, they log in as who they should."""
        if self.corp is not None:
            person = browser or self.browser()
            return await to_the_end(person, await self.way_back(result, person, account, **more))
        return await connect_through(browser or self.browser(), self.idp, result.authorization_url, account, **more)

    async def to_provider(self, result: AuthorizationRequired, browser: Browser) -> str:
        """The person pressed the button, and logged in where that comes first; where the page leads then: the
        provider's URL, not visited."""
        page = await leave(browser, result.authorization_url)
        assert page.status == 200, page.text
        if self.corp is not None:
            page = await to_the_end(browser, await self.logged_in(result, browser))
            assert page.status == 200, page.text
        assert page.next_url is not None
        return page.next_url

    async def logged_in(self, result: AuthorizationRequired, browser: Browser, account: str = "") -> str:
        """The person logged in, by default the one that the link is for; the login's callback, not visited."""
        assert self.corp is not None
        subject = (await self.session(result)).subject
        account = account or next(name for name, sub in SUBS.items() if subject.endswith(f":{sub}"))
        url = browser.page.next_url
        assert url is not None, browser.page.text
        assert url.startswith(self.corp.base_url + "/"), url
        return await self.corp.agree(url, account, browser=browser)

    async def way_back(
        self, result: AuthorizationRequired, browser: Browser, account: str = "alice", **more: Any
    ) -> str:
        """The person agreed; the callback's URL, not visited."""
        return await self.idp.agree(await self.to_provider(result, browser), account, browser=browser, **more)

    async def session(self, result: AuthorizationRequired) -> AuthSession:
        """The session as it lies in the store now."""
        versioned = await self.repository.session(locator_of(result.auth_session_id))
        assert versioned is not None
        return versioned.record

    async def grant(self, app: str = "mail", subject: str = ALICE) -> Grant | None:
        """The grant as it lies in the store now, tombstones included."""
        versioned = await self.repository.grant(GrantKey(app, subject))
        return None if versioned is None else versioned.record

    async def change_grant(self, app: str = "mail", subject: str = ALICE, **changes: Any) -> Grant:
        """Change a grant as it lies in the store. The background, which still settles its consent, has its turn before
        or after."""
        async with self.repository.pair(key := GrantKey(app, subject)):
            versioned = await self.repository.grant(key)
            assert versioned is not None
            changed = replace(versioned.record, **changes)
            return (await self.repository.save_grant(changed, expect=versioned.generation)).record

    async def connected(
        self, app: str = "mail", account: str = "alice", of: Turn | None = None, scopes: Iterable[str] | None = None
    ) -> Ready:
        """From nothing to a token."""
        page = await self.connect(await self.ask_link(app, scopes, of), account)
        assert page.status == 200, page.text
        ready = await self.ask(app, scopes, of)
        assert isinstance(ready, Ready), ready
        return ready

    async def event(self, agent: str = "planner", wait: float = 2) -> dict[str, Any] | None:
        """The agent's next event, acknowledged. A clock that stands still is no reason to wait for ever."""
        try:
            async with asyncio.timeout(max(wait, 1) * 5):
                delivery = await self.broker.events.lease(agent, wait=wait)
        except TimeoutError:
            return None
        if delivery is None:
            return None
        await delivery.ack()
        Canaries.active().look(delivery.to_json(), "an event")
        return delivery.to_json()

    async def events(self, agent: str = "planner", count: int = 1) -> list[dict[str, Any]]:
        found = [await self.event(agent) for _ in range(count)]
        assert await self.event(agent, wait=0) is None, "one event too many"
        return [event for event in found if event is not None]


_WRITING: list[Store] = []
"""The stores of the brokers that run with their background tasks."""


@asynccontextmanager
async def running(
    idp: IdentityProvider,
    apps: Iterable[App],
    *,
    clock: TestClock | None = None,
    store: Store | None = None,
    tools: Mapping[str, tuple[ToolAuth, ...]] | None = None,
    limits: Limits | None = None,
    background: bool = True,
    settings: Settings | None = None,
    login: BrokerLogin | None = None,
    corp: IdentityProvider | None = None,
    metrics_folder: Path | None = None,
    plugins: Mapping[str, PluginResources] | None = None,
    forwarders: tuple[Forwarder, ...] = (),
) -> AsyncIterator[Harness]:
    """`plugins` are the plug-ins in use, with their resources."""
    clock = clock or TestClock()
    settings = settings or Settings(
        public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=limits or Limits()
    )
    settings = replace(settings, plugins=tuple(plugins or ()))
    bundle = Bundle(
        settings,
        {app.name: app for app in apps},
        tools or {},
        login=login,
        plugins=plugins or {},
        forwarders=forwarders,
    )
    store = store or default_store(clock)
    audit, log = AuditList(), io.StringIO()
    async with open_running(
        bundle,
        env={},
        clock=clock,
        store=store,
        audit=audit,
        log=json_log(log, clock),
        background=background,
        metrics_folder=metrics_folder,
    ) as running:
        if background:
            _WRITING.append(store)
        try:
            yield Harness(idp, clock, store, audit, log, running, corp=corp)
        finally:
            if background:
                _WRITING.remove(store)
            look = Canaries.active().look
            look(log.getvalue(), "the broker's log")
            look("".join(line_of(entry, at) for at, entry in audit.lines), "the audit")
            look(repr(running.broker.metrics.to_json()), "the metrics")


async def to_the_end(browser: Browser, url: str) -> Page:
    """Follows an address, and where it redirects to; the last page."""
    page = await browser.follow(url)
    while page.location is not None:
        page = await browser.follow()
    return page


class UnwellStore(MemoryStore):
    """A memory store whose disk takes nothing: the next `refuses` changes, or their reservations of space, fail."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(kinds=KINDS, lease_kinds=LEASES, clock=clock)
        self.refuses = 0

    async def put(self, key: Key, body: bytes, **more: Any) -> Entry:
        self._ask_the_disk()
        return await super().put(key, body, **more)

    @asynccontextmanager
    async def reserve(self, key: Key, size: int, **more: Any) -> AsyncIterator[Reservation]:
        self._ask_the_disk()
        async with super().reserve(key, size, **more) as reservation:
            yield reservation

    def _ask_the_disk(self) -> None:
        if self.refuses:
            self.refuses -= 1
            raise BrokerError(Code.STORE_UNAVAILABLE)


def file_store(folder: Path, clock: Clock | None = None) -> FileStore:
    """A file store below `folder`, made on first use."""
    keyring, key = folder / "store" / "data" / "keyring", folder / "kek"
    if not key.exists():
        KeyringFile(keyring, FileKek.create(key)).create()
    ring = KeyringFile(keyring, FileKek.open(key)).load()
    return FileStore(folder / "store", ring, kinds=KINDS, lease_kinds=LEASES, clock=clock or TestClock())


def tree(folder: Path) -> dict[str, bytes]:
    """Return every byte below a folder, to show that nothing changed: no broker of this process writes there by itself."""
    roots = [Path(f"/proc/self/fd/{each._folders.data}").resolve() for each in _WRITING if isinstance(each, FileStore)]
    assert not any(each.is_relative_to(folder) for each in roots), "its background tasks write there: background=False"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "locks" not in path.parts
    }


async def stored_grant(harness: Harness) -> Any:
    grant = await harness.grant()
    assert grant is not None
    return grant


def scopes_last_asked_for(harness: Harness) -> list[str]:
    scope = harness.idp.seen("authorize")[-1].form["scope"]
    assert isinstance(scope, str)
    return sorted(scope.split())
