"""One user with two accounts of an app, two tenants of another and two sites of a third, and the APIs behind them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from oauthbroker import AuthorizationRequired, Turn
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, IdentityRule, Owner
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.provider_api import ApiAccess, ApiHost, ConnectedHost
from oauthbroker.model.settings import Settings
from oauthbroker.protocol.network.dialing import Dialer
from oauthbroker.store.format.port import Store
from oauthbroker.testing import Authority, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.testing.provider.types import Client as Registration
from tests.kit.default_store import default_store
from tests.kit.running_broker import ALICE, BASE, Harness, endpoints_of, running, turn, user_app
from tests.story.api.clients import listening
from tests.story.sites_kit import ONE, TWO, lists, sites
from tests.story.tenants_kit import CALLBACK, app_of
from tests.unit.protocol.kit import RawServer, says

DOMAIN = ".shops.example"
APPS = ("mail", "shop", "wiki")
NAMES = ("work", "private")
PERSONS = ("alice", "bob")
TOOLS = {"Tool/use": tuple(ToolAuth(name, ("read",)) for name in APPS)}


@dataclass(frozen=True)
class Connection:
    """One connection of the user. `place` is the address of a request, and `path` is where the API gets it."""

    app: str
    account: str
    place: str
    path: str
    provider: IdentityProvider
    person: str
    site: str = ""

    @property
    def ref(self) -> str:
        return f"{self.app}@{self.account}"

    @property
    def host(self) -> str:
        return urlsplit(self.place).netloc

    async def owns(self, token: Secret) -> bool:
        """Tell whether the provider issued a token to this connection."""
        if not self.provider.is_alive(token):
            return False
        async with httpx2.AsyncClient(trust_env=False) as http:
            said = await http.get(self.provider.url("/api/me"), headers={"Authorization": f"Bearer {token.reveal()}"})
        return bool(said.json()["login"] == self.person)


@dataclass
class Stage:
    """A broker on loopback, and what the APIs got: host, path and token of each request."""

    harness: Harness
    api: RawServer
    url: str
    pairs: Mapping[str, tuple[Connection, Connection]]
    apps: list[App]
    user: str = ALICE

    @property
    def all(self) -> list[Connection]:
        return [each for app in APPS for each in self.pairs[app]]

    def turn(self, defaults: Mapping[str, str] | None = None) -> Turn:
        """Return the user's turn, which lists both connections of each app."""
        return listing(self.pairs, defaults or {}, self.user)

    async def ask(self, of: Connection, scopes: tuple[str, ...] = ("read",), **more: Any) -> Any:
        return await self.harness.broker.oauth(self.turn()).get_access_token(of.ref, list(scopes), **more)

    async def token(self, of: Connection) -> Secret:
        result = await self.harness.broker.oauth(self.turn()).get_access_token(of.ref, ["read"])
        return Secret(result.access_token.reveal()) if result.status == "ready" else Secret("")

    def sent(self) -> list[tuple[str, str, str]]:
        """Return and forget what the APIs got."""
        found = []
        for head in self.api.requests:
            first, *lines = head.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            found.append((fields["host"], first.split()[1], fields.get("authorization", "").partition(" ")[2]))
        self.api.requests.clear()
        return found

    async def connect(self, of: Connection) -> Page:
        page = await self.agree(of, await self.ask(of))
        assert 200 == page.status, self.harness.log.getvalue()
        return page

    async def agree(self, of: Connection, asked: Any, person: str = "") -> Page:
        """Let the person of the connection, or another one, follow the link to the end."""
        assert isinstance(asked, AuthorizationRequired), asked
        if of.site and not person:
            lists(of.provider, ONE, TWO)
        browser = self.harness.browser()
        page = await replace(self.harness, idp=of.provider).connect(asked, person or of.person, browser)
        if any("choice" in form.names for form in page.document.forms):
            page = await browser.submit({"choice": of.site})
            while page.location is not None:
                page = await browser.follow()
        return page


def listing(pairs: Mapping[str, tuple[Connection, Connection]], defaults: Mapping[str, str], user: str = ALICE) -> Turn:
    base = turn(user=user)
    assert base.auth is not None
    accounts = {
        f"OAuthApp/{app}": {"allowed": [each.account for each in pair]}
        | ({"default": defaults[app]} if app in defaults else {})
        for app, pair in pairs.items()
    }
    return replace(base, auth=replace(base.auth, accounts=accounts))


def apps_of(idp: IdentityProvider, tenants: tuple[str, ...], ca: str) -> list[App]:
    """Return the apps whose connections differ by account, by the tenant's host and by the site's path."""
    owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
    more: dict[str, Any] = {"owner": owner, "several_accounts": True, "provider_ca": ca}
    param = ConnectParam(name="tenant", title="Your shop", one_of=tenants)
    places = {name: ApiAccess((ApiHost(f"{name}{DOMAIN}"),)) for name in APPS}
    shop = ApiAccess((ConnectedHost(f"{{tenant}}{DOMAIN}", (param,)),))
    wiki = replace(places["wiki"], base_path="/{cloudid}/")
    return [
        user_app(idp, "mail", api=places["mail"], **more),
        app_of(tenants, endpoints_of(idp), api=shop, provider_ca=ca, connect_params=(param,)),
        user_app(idp, "wiki", api=wiki, facts=sites(idp), **more),
    ]


def pairs_of(idps: Mapping[str, IdentityProvider]) -> dict[str, tuple[Connection, Connection]]:
    (one, first), (two, second) = idps.items()
    mail = [
        Connection("mail", name, f"https://mail{DOMAIN}/v1", "/v1", first, who)
        for name, who in zip(NAMES, PERSONS, strict=True)
    ]
    shop = [
        Connection("shop", name, f"https://{name}{DOMAIN}/v1", "/v1", idp, "alice")
        for name, idp in ((one, first), (two, second))
    ]
    wiki = [
        Connection("wiki", name, f"https://wiki{DOMAIN}/v1", f"/{site['id']}/v1", first, who, number)
        for name, who, site, number in zip(NAMES, PERSONS, (ONE, TWO), "01", strict=True)
    ]
    return {"mail": (mail[0], mail[1]), "shop": (shop[0], shop[1]), "wiki": (wiki[0], wiki[1])}


def at_one_server(monkeypatch: pytest.MonkeyPatch, server: int) -> None:
    """Let the names of the domain resolve to this machine, and connections to port 443 reach the test's server."""
    ask, connect = socket.getaddrinfo, Dialer.connect_tcp

    def resolved(host: str, *words: Any, **more: Any) -> list[Any]:
        return [(2, 1, 6, "", ("127.0.0.1", 0))] if host.endswith(DOMAIN) else ask(host, *words, **more)

    async def connected(self: Dialer, host: str, port: int, *words: Any, **more: Any) -> Any:
        return await connect(self, host, server if port == 443 else port, *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(Dialer, "connect_tcp", connected)


@asynccontextmanager
async def stage_of(
    idp: IdentityProvider,
    clock: TestClock,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    store: Store | None = None,
) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(IdentityProvider(clock=clock))
        idps = {str(urlsplit(each.base_url).port): each for each in (idp, other)}
        for name, provider in idps.items():
            uri = BASE + CALLBACK.replace("{tenant}", name)
            provider.register(Registration("client-shop", Secret("the-secret-of-shop"), redirect_uris=(uri,)))
        tls = authority.issue(host_name=f"*{DOMAIN}").context
        api = await stack.enter_async_context(RawServer(says(200, b"data"), tls=tls))
        at_one_server(monkeypatch, api.port)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        settings = Settings(
            BASE,
            weaken=frozenset({"plainHttpProvider"}),
            allowed_hosts=(f"127.0.0.1:{listener.getsockname()[1]}",),
        )
        apps = apps_of(idp, tuple(idps), authority.file.read_text())
        opened = running(
            idp,
            apps,
            clock=clock,
            store=store or default_store(clock),
            tools=TOOLS,
            settings=settings,
            background=False,
        )
        harness = await stack.enter_async_context(opened)
        url = await stack.enter_async_context(listening(harness.broker.asgi.api, listener))
        made = Stage(harness, api, url, pairs_of(idps), apps)
        for each in made.all:
            await made.connect(each)
        yield made


@asynccontextmanager
async def cold(stage: Stage, store: Store | None = None) -> AsyncIterator[Harness]:
    """Open another process of the broker, which has nothing but the store."""
    harness = stage.harness
    bundle: Bundle = harness.broker.bundle
    async with running(
        harness.idp,
        stage.apps,
        clock=harness.clock,
        store=store or harness.store,
        tools=TOOLS,
        settings=bundle.settings,
        background=False,
    ) as other:
        yield other
