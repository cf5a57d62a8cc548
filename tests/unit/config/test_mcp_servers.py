"""`kind: McpServer`: the account of its app."""

from __future__ import annotations

from pathlib import Path

from oauthbroker.config import load, resolve
from tests.unit.config.bundles import BROKER, HEAD, edited, problems_in, write

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


def test_an_account_of_an_app_that_has_one_is_refused(tmp_path: Path) -> None:
    [problem] = problems_in(folder_of(tmp_path, "one"))
    assert "The app has one account for each subject" in str(problem)
