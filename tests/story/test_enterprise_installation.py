"""A preset at an installation of one's own: no token and no secret leaves for the hosts of the hosted product."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from oauthbroker import AuthorizationRequired, Ready, open_broker
from oauthbroker.config import ConfigInvalidError, load, resolve
from oauthbroker.observability.logging import json_log
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.default_store import default_store
from tests.kit.running_broker import BASE, running, turn
from tests.unit.protocol.kit import RawServer, site

SUBJECT = "github:user:7"
NOBODY = cast("IdentityProvider", None)
BROKER = f"""
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec: {{publicBaseUrl: "{BASE}", weaken: [plainHttpProvider]}}
"""
APP = """
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: forge}
spec:
  provider: github
  flow: authorizationCode
  subjectMode: user
  client: {clientId: agents, clientSecret: {valueFrom: {env: FORGE_SECRET}}}
  scopes: [repo]
"""


def bundle(folder: Path, **endpoints: str) -> Path:
    app = yaml.safe_load(APP)
    app["spec"]["endpoints"] = endpoints
    (folder / "broker.yaml").write_text(f"{BROKER}---\n{yaml.safe_dump(app)}", "utf-8")
    return folder / "broker.yaml"


def addresses(base: str, *names: str) -> dict[str, str]:
    known = {
        "authorizationUrl": f"{base}/login/oauth/authorize",
        "tokenUrl": f"{base}/login/oauth/access_token",
        "userInfoUrl": f"{base}/api/v3/user",
        "revokeUrl": f"{base}/api/v3/applications/{{client_id}}/token",
    }
    return {name: known[name] for name in names}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The host of each request, answered or not."""
    hosts, send = list[str](), Transport.send

    async def spied(self: Transport, request: Any, **limits: Any) -> Any:
        hosts.append(urlsplit(request.url).netloc)
        return await send(self, request, **limits)

    monkeypatch.setattr(Transport, "send", spied)
    return hosts


def paths(server: RawServer) -> list[str]:
    return [request.split(b" HTTP/", 1)[0].decode() for request in server.requests]


def enterprise(token: str) -> dict[str, Any]:
    return {
        "/login/oauth/access_token": {"access_token": token, "token_type": "bearer", "scope": "repo"},
        "/api/v3/user": {"id": 7, "login": "alice"},
        "/api/v3/applications/agents/token": (204, b""),
    }


def test_two_addresses_of_an_enterprise_are_refused_until_the_account_can_be_told(tmp_path: Path):
    names = ("authorizationUrl", "tokenUrl")
    with pytest.raises(ConfigInvalidError) as refused:
        load(bundle(tmp_path, **addresses("https://ghe.example", *names)))
    assert "A userinfo endpoint is not to be had here" in str(refused.value)
    assert "these of the preset github are not used: endpoints.issuer" in str(refused.value)


def test_the_notice_names_the_parameter_of_the_host_as_it_is_written(tmp_path: Path):
    names = ("authorizationUrl", "tokenUrl", "userInfoUrl")
    notice = str(load(bundle(tmp_path, **addresses("https://ghe.example", *names))).apps["forge"].notices[0])
    assert notice.endswith("or leave out endpoints and write params.host.")


@pytest.mark.parametrize("revokes", [False, True], ids=["no address to revoke", "an address to revoke"])
async def test_an_enterprises_token_goes_to_the_enterprise_alone(
    tmp_path: Path, test_clock: TestClock, canaries: Canaries, asked: list[str], *, revokes: bool
):
    """From the consent to the revocation. The address to revoke is in the preset's own form."""
    token, secret = canaries.mint("token of the enterprise").reveal(), canaries.mint("client secret").reveal()
    names = ("authorizationUrl", "tokenUrl", "userInfoUrl", *(["revokeUrl"] if revokes else []))
    async with site(enterprise(token)) as server:
        loaded = load(bundle(tmp_path, **addresses(server.url, *names)))
        app = resolve(loaded, {"FORGE_SECRET": secret}, {}).apps["forge"]
        async with running(NOBODY, [app], clock=test_clock) as harness:
            link = await harness.ask("forge", of=turn(SUBJECT))
            assert isinstance(link, AuthorizationRequired)
            browser = harness.browser()
            page = await harness.to_provider(link, browser)
            state = parse_qs(urlsplit(page).query)["state"][0]
            back = await browser.follow(f"{app.redirect.uri}?code=a-code&state={state}")
            assert back.status in {200, 303}, back.text
            ready = await harness.ask("forge", of=turn(SUBJECT))
            assert isinstance(ready, Ready)
            assert token == ready.access_token.reveal()
            await harness.broker.revoke("forge", subject=SUBJECT)
        said = paths(server)
    assert {urlsplit(server.url).netloc} == {urlsplit(page).netloc, *asked}
    assert ["POST /login/oauth/access_token", "GET /api/v3/user"] == said[:2]
    assert (["DELETE /api/v3/applications/agents/token"] if revokes else []) == said[2:]


async def test_a_broker_says_at_its_start_which_endpoints_of_a_preset_it_leaves_out(
    tmp_path: Path, test_clock: TestClock
):
    log = io.StringIO()
    names = ("authorizationUrl", "tokenUrl", "userInfoUrl")
    path = bundle(tmp_path, **addresses("https://ghe.example", *names))
    async with open_broker(
        path,
        env={"FORGE_SECRET": "x"},
        clock=test_clock,
        store=default_store(test_clock),
        log=json_log(log, test_clock),
    ):
        pass
    [line] = [it for it in map(json.loads, log.getvalue().splitlines()) if "dropped" in it]
    assert ("forge", "warning") == (line["app"], line["level"])
    assert {"endpoints.issuer", "endpoints.revokeUrl", "endpoints.deviceAuthorizationUrl", "api.hosts"} == set(line["dropped"])  # fmt: skip
