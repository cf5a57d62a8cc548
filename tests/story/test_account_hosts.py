"""A provider whose API host differs by account, from YAML to calls through the client and the proxy.

The preset is Salesforce's: `instance_url` of the token answer is the host of the organisation's API. The names resolve to
a TLS server of the test, which stands on another port than 443.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import AuthorizationRequiredError, RequestRefusedError, Turn
from oauthbroker.config import load, resolve
from oauthbroker.protocol.network.dialing import Dialer
from oauthbroker.testing import Authority, IdentityProvider, TestClock
from tests.kit.running_broker import BOB, Harness, register, running, turn
from tests.story.api.kit import Answer, Callers
from tests.unit.protocol.kit import RawServer, says

ACME, GLOBEX = "acme.my.salesforce.com", "globex.my.salesforce.com"
TOOLS = ("Tool/crm",)
BUNDLE = """
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: http://127.0.0.1:8420
  weaken: [plainHttpProvider]
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: crm}}
spec:
  provider: salesforce
  providerCa: authority.pem
  flow: authorizationCode
  subjectMode: user
  client: {{clientId: {client}, clientSecret: {{valueFrom: {{env: CRM_SECRET}}}}}}
  endpoints: {{{endpoints}}}
  scopes: [read]
  owner: {{identity: {{user: {{from: userInfo, template: "idp:user:{{sub}}"}}}}}}
  api: {{hosts: [{{providerData: instance_url, within: .my.salesforce.com}}], methods: [GET], delivery: injected}}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {{name: crm}}
spec: {{auth: {{oauthAppRef: OAuthApp/crm}}}}
"""


class Stage:
    """The account's API on a TLS server, and a tool that calls it in both ways."""

    def __init__(self, harness: Harness, api: RawServer, callers: Callers) -> None:
        self.harness, self.api, self.callers = harness, api, callers

    async def connect(self, instance_url: Any, account: str = "alice", of: Turn | None = None) -> None:
        """Let a user consent, and the provider's answer name the account's host."""
        self.harness.idp.script.token.fields(times=1, instance_url=instance_url)
        async with self.harness.broker.oauth(of or turn(), "Tool/crm").client("OAuthApp/crm") as client:
            with pytest.raises(AuthorizationRequiredError) as asked:
                await client.get(f"https://{ACME}/")
        page = await self.harness.connect(asked.value.result, account)
        assert 200 == page.status, self.harness.log.getvalue()

    async def by_client(self, host: str, of: Turn | None = None) -> str:
        """Return the answer of a call with the client, or the code of its refusal."""
        oauth = self.harness.broker.oauth(of or turn(), "Tool/crm")
        async with oauth.client("OAuthApp/crm") as client:
            try:
                return (await client.get(f"https://{host}/services/data")).text
            except RequestRefusedError as refused:
                return refused.result.code.value

    async def by_proxy(self, host: str) -> Answer:
        tool = await self.callers.tool("Tool/crm", tools=dict.fromkeys(TOOLS))
        return await tool.get(f"/v1/proxy/crm/{host}/services/data")

    async def both(self, host: str) -> set[str]:
        """Return what the client and the proxy say: the answer's text, or the code of the refusal."""
        said = await self.by_proxy(host)
        return {await self.by_client(host), said.text if said.status == 200 else str(said.code)}

    @property
    def hosts_and_tokens(self) -> list[tuple[str, str]]:
        """Return the Host and the Authorization header of each request that the API got."""
        return [(lines["host"], lines["authorization"]) for head in self.api.requests for lines in [_headers(head)]]


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.lower().partition(": ") for line in head.decode().split("\r\n")[1:])
    return {name: value for name, _, value in lines}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The addresses of the names that the resolver knows."""
    known, ask = {ACME: "127.0.0.1", GLOBEX: "127.0.0.1"}, socket.getaddrinfo

    def resolved(host: str, *words: Any, **more: Any) -> list[Any]:
        if host.endswith((".salesforce.com", ".example")):
            return [(2, 1, 6, "", (known[host], 0))] if host in known else []
        return ask(host, *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return known


@asynccontextmanager
async def stage(
    idp: IdentityProvider,
    clock: TestClock,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    certified: str = ACME,
) -> AsyncIterator[Stage]:
    folder = authority.file.parent
    client, said = register(idp, "crm"), idp.endpoints
    idp.change(client.client_id, auth_method="client_secret_post")
    parts = ("authorizationUrl", "tokenUrl", "revokeUrl", "userInfoUrl", "issuer", "jwksUrl")
    endpoints = ", ".join(f'{name}: "{said[name]}"' for name in parts)
    (folder / "broker.yaml").write_text(BUNDLE.format(client=client.client_id, endpoints=endpoints), "utf-8")
    bundle = resolve(load(folder / "broker.yaml"), {"CRM_SECRET": client.reveal_secret()}, {})
    async with RawServer(says(200, b"data"), tls=authority.issue(host_name=certified).context) as api:
        _at_port(monkeypatch, api.port)
        apps = bundle.apps.values()
        async with running(
            idp, apps, clock=clock, tools=dict(bundle.tools), settings=bundle.settings, background=False
        ) as harness:
            yield Stage(harness, api, await Callers.of(harness))


def _at_port(monkeypatch: pytest.MonkeyPatch, servers: int) -> None:
    """Let connections to port 443 reach the test's server."""
    connect = Dialer.connect_tcp

    async def connected(self: Dialer, host: str, port: int, *words: Any, **more: Any) -> Any:
        return await connect(self, host, servers if port == 443 else port, *words, **more)

    monkeypatch.setattr(Dialer, "connect_tcp", connected)


@pytest.fixture
async def here(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    authority: Authority,
    names: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Stage]:
    async with stage(identity_provider, test_clock, authority, monkeypatch) as made:
        yield made


async def test_requests_reach_the_host_that_the_provider_named(here: Stage) -> None:
    await here.connect(f"https://{ACME}")
    assert {"data"} == await here.both(ACME)
    [(host, first), (again, second)] = here.hosts_and_tokens
    assert (ACME, ACME, first) == (host, again, second)
    assert first.startswith("bearer ")


async def test_the_token_itself_is_not_handed_out_and_the_host_is_known_from_the_grant(here: Stage) -> None:
    await here.connect(f"https://{ACME}")
    said = await here.harness.broker.oauth(turn(), "Tool/crm").getAccessToken({"oauthAppRef": "crm"})
    assert "tokenInjectedOnly" == said["error"]["code"]
    grant = await here.harness.grant("crm")
    assert grant is not None
    assert f"https://{ACME}" == grant.provider_data["instance_url"]


@pytest.mark.case("102", "111")
@pytest.mark.parametrize(
    "host",
    [GLOBEX, "my.salesforce.com", f"{ACME}.evil.example", f"evil.example.{ACME}", f"{ACME}:8443", f"{ACME}.", f"user@{ACME}",
     f"evil.example%2F{ACME}", f"evil.example%23{ACME}", f"evil.example%5C@{ACME}", "evilmy.salesforce.com", "127.0.0.1", "acme%2emy.salesforce.com"],
)  # fmt: skip
async def test_no_other_host_gets_the_token(here: Stage, host: str) -> None:
    await here.connect(f"https://{ACME}")
    said = await here.both(host)
    assert said <= {"apiHostForbidden", "requestInvalid"}, said
    assert [] == here.api.requests


@pytest.mark.case("111")
async def test_each_account_reaches_its_own_host_only(here: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob's host is listed as much as Alice's: the grant decides."""
    bob = turn(user=BOB)
    await here.connect(f"https://{ACME}")
    await here.connect(f"https://{GLOBEX}", "bob", bob)
    assert ["data", "apiHostForbidden"] == [await here.by_client(host) for host in (ACME, GLOBEX)]
    assert "apiHostForbidden" == await here.by_client(ACME, bob)
    assert [ACME] == [host for host, _ in here.hosts_and_tokens]


@pytest.mark.sample(9)
@pytest.mark.case("111")
@pytest.mark.parametrize(
    "said",
    ["https://evil.example", f"https://{ACME}@evil.example", f"https://evil.example/{ACME}", f"https://evil.example#{ACME}",
     f"https://{ACME}.evil.example", f"https://{ACME}:444", f"http://{ACME}", f"//{ACME}", f"https://{ACME}/../..", "https://127.0.0.1",
     "https://169.254.169.254", f"https://{ACME}\r\nHost: evil.example", f"https://evil.example\\@{ACME}", [f"https://{ACME}"], {"host": ACME}, 7, None],
)  # fmt: skip
async def test_a_provider_that_names_an_odd_host_opens_none(here: Stage, said: object) -> None:
    await here.connect(said)
    for host in (ACME, "evil.example", f"{ACME}.evil.example", "127.0.0.1", "169.254.169.254"):
        assert {"apiHostForbidden"} == await here.both(host)
    assert [] == here.api.requests


async def test_an_account_that_moves_is_called_at_its_new_host_after_a_refresh(here: Stage) -> None:
    await here.connect(f"https://{GLOBEX}")
    here.harness.clock.advance(7200)
    here.harness.idp.script.token.fields(times=1, instance_url=f"https://{ACME}")
    assert ["apiHostForbidden", "data"] == [await here.by_client(host) for host in (GLOBEX, ACME)]
    assert [ACME] == [host for host, _ in here.hosts_and_tokens]


@pytest.mark.case("106", "111")
@pytest.mark.parametrize("address", ["10.1.2.3", "169.254.169.254", "192.168.0.1", "0.0.0.0"])
async def test_a_host_within_the_domain_that_leads_inside_is_not_reached(
    here: Stage, names: dict[str, str], address: str
) -> None:
    await here.connect(f"https://{ACME}")
    names[ACME] = address
    assert {"appMisconfigured"} == await here.both(ACME)
    assert [] == here.api.requests


@pytest.mark.case("111")
async def test_a_server_without_the_certificate_of_the_host_gets_no_token(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    authority: Authority,
    names: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(identity_provider, test_clock, authority, monkeypatch, certified=GLOBEX) as here:
        await here.connect(f"https://{ACME}")
        assert "providerUnreachable" == (await here.by_proxy(ACME)).code
        assert [] == here.api.requests
