"""`provider: mcp`: what such an app may say, and what follows from the address of its server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from joserfc.jwk import generate_key

from oauthbroker.config import load, resolve
from oauthbroker.model.apps import App
from oauthbroker.model.mcp_server import McpServer, canonical_uri, is_same_or_above
from tests.unit.config.bundles import BROKER, HEAD, edited, problems_in, write

URL = "https://mcp.example/tickets"
APP = (
    HEAD
    + f"""kind: OAuthApp
metadata: {{name: tickets}}
spec:
  provider: mcp
  flow: authorizationCode
  subjectMode: user
  mcp: {{url: "{URL}"}}
  scopes: [read]
  owner: {{binding: channelCode}}
"""
)


def app_of(folder: Path, *changes: tuple[str, str]) -> App:
    loaded = load(write(folder, app=edited(APP, *changes), broker=BROKER))
    return resolve(loaded, {"SECRET": "a-secret"}, {}).apps["tickets"]


def test_the_address_is_resource_and_host(tmp_path: Path) -> None:
    app = app_of(tmp_path, (URL, "HTTPS://MCP.example:443/tickets/".replace("HTTPS", "https")))
    assert (McpServer(URL), (URL,), "tickets") == (app.mcp, app.resource, app.display_name)
    assert [("mcp.example", 443)] == [(host.name, host.port) for host in app.api.hosts]  # type: ignore[union-attr]
    assert ("", "none", "") == (app.client.client_id, app.client.auth_method, app.endpoints.issuer)


def test_a_client_of_the_operator_needs_its_issuer(tmp_path: Path) -> None:
    client = "  client: {clientId: mine, clientSecret: {valueFrom: {env: SECRET}}}\n  scopes:"
    issuer = (f'url: "{URL}"', f'url: "{URL}", issuer: "https://id.example"')
    app = app_of(tmp_path, ("  scopes:", client), issuer)
    assert McpServer(URL, "https://id.example", has_client=True) == app.mcp
    assert ("mine", "client_secret_basic") == (app.client.client_id, app.client.auth_method)


def test_a_client_that_is_a_document_may_sign_with_a_key_of_the_operator(tmp_path: Path) -> None:
    key = json.dumps(generate_key("EC", "P-256").as_dict(private=True))
    client = "  client: {authMethod: private_key_jwt, clientSecret: {valueFrom: {env: SECRET}}}\n  scopes:"
    loaded = load(write(tmp_path, app=edited(APP, ("  scopes:", client)), broker=BROKER))
    app = resolve(loaded, {"SECRET": key}, {}).apps["tickets"]
    assert app.mcp == McpServer(URL)
    assert ("", "private_key_jwt", 1) == (app.client.client_id, app.client.auth_method, len(app.client.secrets))


def test_another_server_is_another_app_to_sessions_under_way(tmp_path: Path) -> None:
    one, other = app_of(tmp_path / "1"), app_of(tmp_path / "2", (URL, f"{URL}/x"))
    assert one.config_digest != other.config_digest
    assert one.registration != other.registration


@pytest.mark.case("40", "95")
@pytest.mark.parametrize(
    "change, path, what",
    [
        ((f'  mcp: {{url: "{URL}"}}\n', ""), "spec.mcp.url", "missing"),
        ((f'"{URL}"', '"ftp://x"'), "spec.mcp.url", "not an https URL"),
        ((f'"{URL}"', '"http://mcp.example/x"'), "spec.mcp.url", "http instead of https"),
        ((f'"{URL}"', '"https://mcp.example/x#y"'), "spec.mcp.url", "fragment"),
        ((f'"{URL}"', '"https://10.0.0.1/x"'), "spec.mcp.url", "inside your own network"),
        ((f'"{URL}"', f'"{URL}", issuer: "https://id.example?x=1"'), "spec.mcp.issuer", "query"),
        (("  scopes:", "  client: {clientId: mine}\n  scopes:"), "spec.mcp.issuer", "missing"),
        (("  scopes:", "  client: {authMethod: private_key_jwt}\n  scopes:"), "spec.client.clientSecret", "missing"),
        (("  scopes:", "  client: {authMethod: none}\n  scopes:"), "spec.client.clientId", "missing"),
        (("authorizationCode", "deviceCode"), "spec.flow", "not a flow for MCP servers"),
        (("  scopes:", '  endpoints: {tokenUrl: "https://id.example/t"}\n  scopes:'), "spec.endpoints.tokenUrl", "metadata"),
        (("  scopes:", '  resource: "https://mcp.example/other"\n  scopes:'), "spec.resource", "not the resource"),
        (("  scopes:", '  resource: "https://mcp.example/tick"\n  scopes:'), "spec.resource", "not the resource"),
        (("provider: mcp", "provider: oidc"), "spec.mcp", "for provider: mcp"),
        (("  owner: {binding: channelCode}\n", ""), "spec.owner.identity.user.from", "whose account"),
    ],
)  # fmt: skip
def test_an_app_is_refused_because_of(change: tuple[str, str], path: str, what: str, tmp_path: Path) -> None:
    problems = problems_in(write(tmp_path / "b", app=edited(APP, change), broker=BROKER))
    found = {problem.path: problem.what for problem in problems}
    assert path in found, found
    assert what in found[path]


def test_an_identity_that_the_server_tells_is_one_way_to_know_the_owner(tmp_path: Path) -> None:
    identity = '{identity: {user: {from: idToken, template: "tickets:user:{sub}"}}}'
    app = app_of(tmp_path, ("{binding: channelCode}", identity))
    assert app.owner.user_identity is not None
    assert ("openid",) == app.habits.always_scopes


@pytest.mark.parametrize(
    "url, canonical",
    [
        ("https://A.example/", "https://a.example"),
        ("https://a.example:443/x/", "https://a.example/x"),
        ("http://127.0.0.1:80/x#y", "http://127.0.0.1/x"),
        ("https://[::1]:8/x?y=1", "https://[::1]:8/x?y=1"),
    ],
)
def test_a_resource_has_one_spelling(url: str, canonical: str) -> None:
    assert canonical == canonical_uri(url)
    assert canonical == canonical_uri(canonical)


def test_only_a_parent_on_the_same_origin_is_above() -> None:
    above = ["https://a.example", "https://a.example/x", "https://a.example/x/y"]
    beside = [
        "https://a.example/x/y/z",
        "https://a.example/x/",
        "https://a.exam",
        "https://b.example",
        "http://a.example",
    ]
    assert above == [each for each in (*above, *beside) if is_same_or_above(each, "https://a.example/x/y")]
