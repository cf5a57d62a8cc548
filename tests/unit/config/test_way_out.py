"""`outgoingProxy.resolve: proxy`: a host whose name no proxy gets is a problem of the bundle, and not of the first request."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import load
from tests.unit.config.bundles import APP, BROKER, HEAD, HOOK, edited, problems_in, write
from tests.unit.config.refusals import LOGIN

Change = tuple[str, str]
MCP = (
    HEAD
    + """kind: OAuthApp
metadata: {name: acme}
spec:
  provider: mcp
  flow: authorizationCode
  subjectMode: user
  mcp: {url: "https://tools.example.com/mcp"}
  scopes: [read]
  redirect: {callbackPath: /oauth/callback/acme}
  owner: {binding: runtimeConfirm, confirmUrl: "https://app.example.com/confirm"}
"""
)
KEYS = (
    HEAD
    + """kind: CredentialApp
metadata: {name: keys}
spec:
  provider: keyed
  subjectMode: user
  fields: {key: {title: Key}}
  inject: {bearer: "{key}"}
  api: {hosts: [api.internal]}
  verify: {path: /me, account: "acme:user:{id}"}
"""
)
SCOPES = "  scopes: [read"
VAULT = (
    '  keys: {vault: {address: "https://vault.internal:8200", key: broker, token: {valueFrom: {env: VAULT_TOKEN}}}}\n'
)
KMS = "arn:aws:kms:eu-west-1:123456789012:key/1234"


def app(text: str) -> tuple[str, str]:
    return "app", edited(APP, (SCOPES, f"  {text}\n{SCOPES}"))


def broker(text: str) -> tuple[str, str]:
    return "broker", BROKER + text


ROWS: dict[str, tuple[tuple[str, str], str]] = {
    "an endpoint": (("app", edited(APP, ("https://acme.example/token", "https://id.internal/token"))), "spec.endpoints"),
    "an endpoint of each connection": (
        ("app", edited(APP, ("https://acme.example/token", "https://{at}.id.internal/token"), (SCOPES, "  connectParams: {at: {title: Shop}}\n" + SCOPES))),
        "spec.endpoints",
    ),
    "a host of the API": (app("api: {hosts: [api.acme.example, api.internal]}"), "spec.api.hosts"),
    "an address as the API's host": (app("api: {hosts: [10.0.0.7]}"), "spec.api.hosts"),
    "a host of each account": (
        app("quirks: {toolData: [host]}\n  api: {hosts: [{providerData: host, within: .my.internal}]}"),
        "spec.api.hosts",
    ),
    "an MCP server": (("app", edited(MCP, ("tools.example.com", "tools.internal"))), "spec.mcp.url"),
    "an MCP server's issuer": (
        ("app", edited(MCP, ('/mcp"}', '/mcp", issuer: "https://id.internal"}'))),
        "spec.mcp.issuer",
    ),
    "an API that takes keys": (("keys", KEYS), "spec.api.hosts"),
    "a forwarder": (("hook", edited(HOOK, ("runtime.example", "runtime.internal"))), "spec.webhook.url"),
    "the login": (broker(edited(LOGIN, ("https://login.example", "https://login.internal"))), "spec.login.endpoints"),
    "Vault": (broker(VAULT), "spec.keys.vault.address"),
    "a further Vault": (broker(f"  keys: {{also: [{VAULT.strip().removeprefix('keys: ')}]}}\n"), "spec.keys.also[0].vault.address"),
    "an endpoint of KMS": (
        broker(f'  keys: {{awsKms: {{keyArn: "{KMS}", endpoint: "https://kms.internal"}}}}\n'),
        "spec.keys.awsKms.endpoint",
    ),
}  # fmt: skip


def bundle(folder: Path, row: tuple[str, str], proxy: str, *, direct: bool = False) -> Path:
    texts = {"app": APP, "broker": BROKER} | dict([row])
    texts["broker"] += (
        f"  providerNetworks: [10.0.0.0/8]\n  outgoingProxy: {{url: 'http://proxy.corp.example', {proxy}}}\n"
    )
    if direct:
        texts["app"] = edited(texts["app"], (SCOPES, f"  outgoingProxy: direct\n{SCOPES}"))
    return write(folder, **texts)


@pytest.mark.parametrize(("row", "path"), ROWS.values(), ids=ROWS)
def test_a_host_that_the_proxy_may_not_look_up_is_named_once_at_its_place(
    row: tuple[str, str], path: str, tmp_path: Path
) -> None:
    [problem] = problems_in(bundle(tmp_path / "proxy", row, "resolve: proxy"))
    assert (path, tmp_path / "proxy" / f"{row[0]}.yaml") == (problem.path, Path(problem.file))
    assert "the proxy may not look" in str(problem).lower()
    for way, more in (("here", "resolve: here"), ("past", "resolve: proxy, except: [.internal, 10.0.0.7]")):
        load(bundle(tmp_path / way, row, more))
    if row[0] == "app":
        load(bundle(tmp_path / "direct", row, "resolve: proxy", direct=True))


def test_public_hosts_and_this_machine_are_no_problem(tmp_path: Path) -> None:
    row = "broker", BROKER + edited(VAULT, ("https://vault.internal", "http://127.0.0.1"))
    folder = bundle(tmp_path / "bundle", row, "resolve: proxy")
    load(write(folder, hook=HOOK, mcp=edited(MCP, ("{name: acme}", "{name: mcp}"), ("callback/acme", "callback/mcp"))))
