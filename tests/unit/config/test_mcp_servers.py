"""`kind: McpServer`: the account of its app."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import load, resolve
from tests.unit.config.bundles import BROKER, HEAD, KEYED, edited, problems_in, write

APP = (
    HEAD
    + """kind: OAuthApp
metadata: {name: tickets}
spec:
  provider: mcp
  flow: authorizationCode
  subjectMode: user
  mcp: {url: "https://mcp.example/tickets"}
  scopes: [read]
  owner: {binding: channelCode}
"""
)
SERVER = (
    HEAD
    + """kind: McpServer
metadata: {name: tickets-work}
spec: {oauthAppRef: OAuthApp/tickets, account: work, tools: ["*"]}
"""
)
USED = edited(BROKER, ("spec:\n", "spec:\n  plugins: [mcp]\n"))


def folder_of(folder: Path, accounts: str) -> Path:
    app = edited(APP, ("  scopes:", f"  accounts: {accounts}\n  scopes:"))
    return write(folder, app=app, server=SERVER, broker=USED)


def test_a_server_names_an_account_of_an_app_that_has_several(tmp_path: Path) -> None:
    loaded = resolve(load(folder_of(tmp_path, "several")), {}, {})
    assert "OAuthApp/tickets@work" == loaded.plugins["mcp"].of("McpServer")["tickets-work"].spec.app


@pytest.mark.parametrize(
    ("account", "what"),
    [
        ('"work\\n"', "Not the name of an account"),
        ('" work"', "Not the name of an account"),
        ("a" * 129, "Write at most 128 characters"),
        ('""', "Too short"),
    ],
)
def test_what_names_no_account_is_refused(tmp_path: Path, account: str, what: str) -> None:
    folder = folder_of(tmp_path, "several")
    server = folder / "server.yaml"
    server.write_text(server.read_text("utf-8").replace("account: work", f"account: {account}"), "utf-8")
    [problem] = problems_in(folder)
    assert what in str(problem)


def test_an_account_of_an_app_that_has_one_is_refused(tmp_path: Path) -> None:
    [problem] = problems_in(folder_of(tmp_path, "one"))
    assert "The app has one account for each subject" in str(problem)


METER = edited(
    KEYED,
    ("api.example.com", "mcp.meter.example"),
    ("owner: {binding: localOperator}", 'verify: {path: /me, account: "meter:user:{id}"}'),
)
OF_KEYS = (
    HEAD
    + """kind: McpServer
metadata: {name: meter}
spec: {url: "https://mcp.meter.example/mcp", oauthAppRef: CredentialApp/meter, tools: ["*"]}
"""
)


def test_a_server_may_take_the_key_of_a_credential_app(tmp_path: Path) -> None:
    loaded = resolve(load(write(tmp_path, app=METER, server=OF_KEYS, broker=USED)), {}, {})
    assert "CredentialApp/meter" == loaded.plugins["mcp"].of("McpServer")["meter"].spec.app


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('url: "https://mcp.meter.example/mcp", ', "", "url"),
        ("tools:", "scopes: [read], tools:", "A CredentialApp has no scopes"),
        ("CredentialApp/meter", "CredentialApp/metre", "CredentialApp/meter"),
        ("CredentialApp/meter", "OAuthApp/meter", "No such OAuthApp"),
        ("CredentialApp/meter", "Tool/meter", "Not a reference to an OAuthApp"),
    ],
)
def test_what_a_server_with_a_key_cannot_say_is_one_problem(tmp_path: Path, old: str, new: str, words: str) -> None:
    [problem] = problems_in(write(tmp_path, app=METER, server=edited(OF_KEYS, (old, new)), broker=USED))
    assert words in str(problem)
