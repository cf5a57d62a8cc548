"""Behind a company's proxy: squid and tinyproxy, in both modes. All that leaves goes through it, and nothing past it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from oauthbroker import RequestRefusedError
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.forwarders import Forwarder, Webhook
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import KeySource, Settings
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.key_encryption_keys import KeyProvider
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.testing.webhooks import WebhookReceiver
from oauthbroker.wiring.key_sources import provider_of
from tests.kit import installed
from tests.kit.callback_pages import assert_error_page
from tests.kit.company_proxies import (
    FROM,
    NAMES,
    CompanyProxies,
    CompanyProxy,
    Entrance,
    company_proxies,
    lacks,
)
from tests.kit.kms_stand_in import ARN, ENVIRONMENT, kms_stand_in
from tests.kit.running_broker import (
    ALICE,
    BASE,
    Harness,
    UnwellStore,
    global_app,
    mcp_app,
    running,
    stored_grant,
    turn,
    user_app,
)
from tests.kit.vault_stand_in import TOKEN, vault_stand_in
from tests.story.api.kit import Callers
from tests.story.forwarding_kit import AGENT, signing_secret

ID, HOOKS, VAULT, KMS = NAMES
INSIDE = ("127.0.0.0/8",)  # where the names lead on this machine
KINDS = ["squid", "squid with a login", "squid over TLS", "squid that opens TLS", "tinyproxy", "tinyproxy with a login"]
TOOLS = {"Tool/carried": (ToolAuth("mail", ("read",), injected=True),)}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_mode = pytest.mark.parametrize("resolve", ["here", "proxy"])


@pytest.fixture(autouse=True)
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def proxies() -> Iterator[CompanyProxies]:
    installed.demand(lacks())
    with company_proxies() as found:
        yield found


def name_server(monkeypatch: pytest.MonkeyPatch, *, knows: bool) -> None:
    """Let this machine's resolver know the outside, or nothing at all: then only the proxy can reach it."""

    def looked_up(host: Any, *_: Any, **__: Any) -> list[Any]:
        if not knows or host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)


@dataclass
class Outside:
    """A provider, a receiver of webhooks, a Vault and AWS KMS, at their names."""

    idp: IdentityProvider
    clock: TestClock
    at: dict[str, Entrance]
    receiver: WebhookReceiver

    @property
    def callers(self) -> set[str]:
        return {each for entrance in self.at.values() for each in entrance.callers}


@asynccontextmanager
async def outside(proxies: CompanyProxies, clock: TestClock) -> AsyncIterator[Outside]:
    async with AsyncExitStack() as stack:
        at = {name: await stack.enter_async_context(Entrance(name, proxies.world)) for name in NAMES}
        idp = await stack.enter_async_context(IdentityProvider(clock=clock))
        at[ID].behind = int(idp.base_url.rpartition(":")[2])
        idp._state.base_url = at[ID].url
        idp.canaries.outside.add(idp.base_url)
        receiver = await stack.enter_async_context(WebhookReceiver(signing_secret()))
        at[HOOKS].behind = receiver.port
        vault = stack.enter_context(vault_stand_in())
        at[VAULT].behind = int(vault.address.rpartition(":")[2])
        kms = stack.enter_context(kms_stand_in())
        at[KMS].behind = int(kms.address.rpartition(":")[2])
        yield Outside(idp, clock, at, receiver)


def apps(there: Outside, ca: str) -> list[App]:
    """One by ID token, with an API; one by userinfo; one at an MCP server, whose documents lead to its issuer."""
    api = ApiAccess((ApiHost(ID, there.at[ID].port),), ("GET",))
    idp = there.idp
    found = [user_app(idp, api=api), global_app(idp), mcp_app(idp, "mcp")]
    return [replace(app, provider_ca=ca) for app in found]


@asynccontextmanager
async def broker_behind(
    there: Outside, proxy: OutgoingProxy | None, ca: str, *changed: App, store: Store | None = None
) -> AsyncIterator[Harness]:
    settings = Settings(
        public_base_url=BASE,
        weaken=frozenset({"plainHttpProvider"}),
        provider_networks=INSIDE,
        outgoing_proxy=proxy,
    )
    to = Webhook(url=f"{there.at[HOOKS].url}/events", secrets=tuple(there.receiver.secrets))
    hook = Forwarder(name="hook", agents=(AGENT,), to=to, networks=INSIDE, ca=ca)
    async with running(
        there.idp,
        changed or apps(there, ca),
        clock=there.clock,
        store=store,
        tools=TOOLS,
        settings=settings,
        forwarders=(hook,),
    ) as harness:
        yield harness


async def agree(harness: Harness, asked: AuthorizationRequired) -> Page:
    """A person consents. Their browser is somewhere else: it reaches the provider without the company's network."""
    browser = harness.browser()
    browser.serve(harness.idp.base_url, partial(harness.idp._server.serve, None))  # type: ignore[arg-type]
    return await harness.connect(asked, browser=browser)


async def connected(harness: Harness, app: str = "mail") -> None:
    page = await agree(harness, await harness.ask_link(app))
    assert 200 == page.status, page.text
    assert isinstance(await harness.ask(app), Ready)


@pytest.mark.sample(6)
@every_mode
@every_kind
async def test_everything_leaves_through_the_proxy_and_nothing_past_it(
    proxies: CompanyProxies, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, kind: str, resolve: str
) -> None:
    proxy, resolves = proxies.by_name[kind], resolve == "proxy"
    ca, setting, since = proxies.trusted(proxy), proxy.setting(resolves=resolves), proxy.size()
    name_server(monkeypatch, knows=not resolves)
    async with outside(proxies, test_clock) as there, broker_behind(there, setting, ca) as harness:
        idp = there.idp
        for app in ("mail", "team", "mcp"):  # consent: code exchange, keys, userinfo, discovery, registration
            await connected(harness, app)
        assert {"token", "jwks", "userinfo", "register", "discovery"} <= {request.endpoint for request in idp.requests}
        await there.receiver.until(3)  # the webhooks of their events
        before = idp.count("token")
        test_clock.advance(7200)
        assert isinstance(await harness.ask(), Ready)  # refresh
        assert before < idp.count("token")
        await use_the_api(harness, there)
        assert await harness.broker.revoke("mail", subject=ALICE)
        assert 1 <= idp.count("revoke")
        await asyncio.to_thread(use_the_keys, there, setting, ca)
        assert {FROM} == there.callers, "only the proxy came by"
        assert all(entrance.callers for entrance in there.at.values())
    host = (lambda name: name) if resolves else (lambda _: "127.0.0.1")
    wanted = {f"CONNECT {host(name)}:{entrance.port}" for name, entrance in there.at.items()}
    asked = proxy.asked(since)
    assert wanted == {line for line in asked if line.startswith("CONNECT ") and line in wanted}
    assert proxy.opens_tls == any(f"{ID}:{there.at[ID].port}/token" in line for line in asked), "TLS was opened"


async def use_the_api(harness: Harness, there: Outside) -> None:
    """The injected client of a tool in this process, and the proxy of the API."""
    async with harness.broker.oauth(turn(), "Tool/carried").client("OAuthApp/mail") as client:
        assert "alice" == (await client.get(there.idp.url("/api/me"))).json()["login"]
    tool = await (await Callers.of(harness)).tool("Tool/carried", tools=dict.fromkeys(TOOLS))
    answer = await tool.send("GET", f"/v1/proxy/mail/{ID}:{there.at[ID].port}/api/me")
    assert (200, "alice") == (answer.status, answer.json()["login"])


def keys_of(there: Outside, proxy: OutgoingProxy, ca: str) -> list[KeyProvider]:
    """A transit key of Vault, and one in AWS KMS."""
    sources = (
        KeySource("vault", "oauthbroker", {"address": there.at[VAULT].url, "ca": ca, "tokenEnv": "V"}),
        KeySource("awsKms", ARN, {"endpoint": there.at[KMS].url, "ca": ca}),
    )
    return [provider_of(source, {"V": TOKEN}, (), proxy) for source in sources]


def use_the_keys(there: Outside, proxy: OutgoingProxy, ca: str) -> None:
    for key in keys_of(there, proxy, ca):
        assert b"k" * 32 == key.unwrap(key.wrap(b"k" * 32, b"context"), b"context")


@pytest.mark.parametrize("login", ["", "corp:wrong"], ids=["none", "wrong"])
@pytest.mark.parametrize("kind", ["squid with a login", "tinyproxy with a login"])
async def test_a_login_that_the_proxy_refuses_has_a_code_of_its_own_and_costs_no_token(
    proxies: CompanyProxies, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, kind: str, login: str
) -> None:
    proxy = proxies.by_name[kind]
    ca, refused = proxies.trusted(proxy), proxy.setting(resolves=True, login=login)
    name_server(monkeypatch, knows=False)
    async with outside(proxies, test_clock) as there:
        async with broker_behind(there, refused, ca) as harness:
            page = await agree(harness, await harness.ask_link())
            assert_error_page(page, Code.OUTGOING_PROXY_REFUSED)
            assert "sesame" not in harness.log.getvalue()
        for key in keys_of(there, refused, ca):
            with pytest.raises(BrokerError) as caught:
                await asyncio.to_thread(key.health)
            assert (Code.OUTGOING_PROXY_REFUSED, True) == (caught.value.code, key.id() in caught.value.note)
            assert "sesame" not in caught.value.note
        assert set() == there.callers


@pytest.mark.parametrize("kind", ["squid with a login", "tinyproxy with a login"])
async def test_a_refresh_that_the_proxy_refuses_costs_nothing_and_is_made_once_it_lets_us_through(
    proxies: CompanyProxies, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The company changes the password of the proxy. Injected requests name that as well."""
    proxy = proxies.by_name[kind]
    ca, known, wrong = (
        proxies.trusted(proxy),
        proxy.setting(resolves=True),
        proxy.setting(resolves=True, login="corp:x"),
    )
    name_server(monkeypatch, knows=False)
    store = UnwellStore(test_clock)
    async with outside(proxies, test_clock) as there:
        async with broker_behind(there, known, ca, store=store) as harness:
            await connected(harness)
            before = await stored_grant(harness)
        store._opened_here = OpenedHere()  # the next broker's
        for entrance in there.at.values():
            entrance.callers.clear()
        async with broker_behind(there, wrong, ca, store=store) as harness:
            await refuses_the_api(harness, there)  # its token is good, and does not leave
            test_clock.advance(7200)
            for _ in range(5):  # more than a provider that is down gets in a row
                refused = await harness.ask()
                assert isinstance(refused, Failed)
                assert (Code.OUTGOING_PROXY_REFUSED, True) == (refused.code, refused.retryable)
                test_clock.advance(1)
            await refuses_the_api(harness, there)
            grant = await stored_grant(harness)
            assert (before.token, None, "") == (grant.token, grant.refresh_state.intent, grant.refresh_state.ended)
            assert [] == await harness.broker.sessions.list(status="pending")
        assert (0, set()) == (there.idp.count("refresh_token"), there.callers)
        store._opened_here = OpenedHere()
        test_clock.advance(60)
        async with broker_behind(there, known, ca, store=store) as harness:
            assert isinstance(await harness.ask(), Ready)
            assert before.token.refresh_token != (await stored_grant(harness)).token.refresh_token
        assert 1 == there.idp.count("refresh_token")


async def refuses_the_api(harness: Harness, there: Outside) -> None:
    """The injected client and the proxy of the API name the code."""
    async with harness.broker.oauth(turn(), "Tool/carried").client("OAuthApp/mail") as client:
        with pytest.raises(RequestRefusedError) as refused:
            await client.get(there.idp.url("/api/me"))
    assert (Code.OUTGOING_PROXY_REFUSED, True) == (refused.value.result.code, refused.value.result.retryable)
    tool = await (await Callers.of(harness)).tool("Tool/carried", tools=dict.fromkeys(TOOLS))
    answer = await tool.send("GET", f"/v1/proxy/mail/{ID}:{there.at[ID].port}/api/me")
    assert (503, Code.OUTGOING_PROXY_REFUSED) == (answer.status, answer.json()["code"])


@every_mode
async def test_an_exception_and_a_direct_app_go_past_the_proxy_and_the_others_do_not(
    proxies: CompanyProxies, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, resolve: str
) -> None:
    proxy: CompanyProxy = proxies.by_name["squid"]
    ca, resolves = proxies.trusted(proxy), resolve == "proxy"
    name_server(monkeypatch, knows=True)
    async with outside(proxies, test_clock) as there:
        mail, team, _ = apps(there, ca)
        setting = proxy.setting(resolves=resolves, direct_hosts=(HOOKS,))
        async with broker_behind(there, setting, ca, replace(mail, direct=True), team) as harness:
            await connected(harness)
            await there.receiver.until(1)
            assert ({"127.0.0.1"}, {"127.0.0.1"}) == (set(there.at[ID].callers), set(there.at[HOOKS].callers))
            there.at[ID].callers.clear()
            await connected(harness, "team")
            assert {FROM} == set(there.at[ID].callers)
