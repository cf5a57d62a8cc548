"""Tool.spec.auth: a tool names its app and its scopes, an export names fewer, and nothing ever widens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker.config import load
from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.unit.config.bundles import APP, CONNECTOR, TOOL, edited, problems_in, write

BUNDLE = edited(
    TOOL,
    ("OAuthApp/acme, scopes: [read, write]", "OAuthApp/mail, scopes: [read, write]"),
    ("{name: hold}", "{name: hold, auth: {}}"),
)
MAIL = edited(APP, ("name: acme", "name: mail"), ("/oauth/callback/acme", "/oauth/callback/mail"))
ENTRY = "Connector/chat"


@pytest.fixture
async def tooled(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Harness]:
    """The tools as YAML says them, over a live provider."""
    connector = edited(
        CONNECTOR, ("staticToken: {valueFrom: {env: CHAT_TOKEN}}", "oauthAppRef: OAuthApp/mail, scopes: [read]")
    )
    wide = edited(
        TOOL,
        ("name: hammer", "name: wide"),
        ("OAuthApp/acme, scopes: [read, write]", "OAuthApp/mail"),
        ("{name: hit, auth: {scopes: [read]}}", "{name: hit}"),
    )
    loaded = load(write(tmp_path / "b", app=MAIL, tool=BUNDLE, wide=wide, connector=connector))
    apps = [user_app(identity_provider), user_app(identity_provider, "files")]
    async with running(identity_provider, apps, tools=dict(loaded.tools)) as harness:
        yield harness


async def ask(harness: Harness, tool: str, app: str = "mail", scopes: list[str] | None = None) -> TokenResult:
    return await harness.broker.oauth(turn(), tool).get_access_token(app, scopes)


@pytest.mark.rule("Tool.spec.auth")
@pytest.mark.parametrize(
    "tool, asked",
    [
        ("Tool/hammer", ("read", "write")),
        ("Tool/hammer:hit", ("read",)),
        ("Tool/hammer:hold", ("read", "write")),
        ("Tool/wide", ("read", "write", "admin")),
        ("Tool/wide:hit", ("read", "write", "admin")),
        (ENTRY, ("read",)),
    ],
)
async def test_left_out_scopes_are_those_that_were_declared(tooled: Harness, tool: str, asked: tuple[str, ...]) -> None:
    """The export's, else the tool's, else the app's; a person is asked for no more than that."""
    result = await ask(tooled, tool)
    assert isinstance(result, AuthorizationRequired)
    assert asked == (await tooled.session(result)).scopes


@pytest.mark.rule("Tool.spec.auth")
@pytest.mark.parametrize(
    "tool, scopes",
    [
        ("Tool/hammer", ["admin"]),
        ("Tool/hammer:hit", ["write"]),
        ("Tool/hammer:hit", ["read", "write"]),
        ("Tool/hammer:hold", ["admin"]),
        ("Tool/wide", ["delete"]),
        (ENTRY, ["write"]),
    ],
)
async def test_asking_for_an_undeclared_scope_is_an_error_even_when_the_grant_has_it(
    tooled: Harness, tool: str, scopes: list[str]
) -> None:
    """The grant of the subject may be wide; this tool's view of it is not."""
    await tooled.connected()
    result = await ask(tooled, tool, scopes=scopes)
    assert isinstance(result, Failed)
    assert Code.SCOPE_NOT_ALLOWED is result.code
    assert isinstance(await ask(tooled, tool), Ready)


@pytest.mark.rule("Tool.spec.auth")
@pytest.mark.parametrize("tool", ["Tool/hammer", "Tool/hammer:hit", "Tool/nobody", "Tool/hammer:unknown", "hammer", ""])
async def test_an_app_that_was_not_declared_is_out_of_reach(tooled: Harness, tool: str) -> None:
    """An unknown tool or export has declared nothing and gets nothing."""
    result = await ask(tooled, tool, "files")
    assert isinstance(result, Failed)
    assert Code.APP_FORBIDDEN is result.code


@pytest.mark.rule("Tool.spec.auth")
async def test_one_grant_serves_a_narrow_tool_and_a_wide_one(tooled: Harness) -> None:
    """Narrowing is about asking: the grant stays one per app and subject, and a step-up asks for both together."""
    await tooled.connect(await tooled.ask_link(scopes=["read"]))
    assert isinstance(await ask(tooled, "Tool/hammer:hit"), Ready)
    wider = await ask(tooled, "Tool/hammer")
    assert isinstance(wider, AuthorizationRequired)
    assert ("scopes", ("read", "write")) == (wider.reason, (await tooled.session(wider)).scopes)


@pytest.mark.rule("Tool.spec.auth")
@pytest.mark.parametrize(
    "change, path",
    [
        (("scopes: [read, write]}", "scopes: [read, admin]}"), "spec.auth.scopes[1]"),
        (("auth: {scopes: [read]}", "auth: {scopes: [read, admin]}"), "spec.exports[0].auth.scopes[1]"),
        (("OAuthApp/acme", "OAuthApp/unknown"), "spec.auth.oauthAppRef"),
        (("OAuthApp/acme", "Tool/acme"), "spec.auth.oauthAppRef"),
        (("  auth: {oauthAppRef: OAuthApp/acme, scopes: [read, write]}\n", ""), "spec.exports[0].auth"),
    ],
    ids=["beyond the app", "beyond the tool", "an unknown app", "not an app", "an export without its tool"],
)
def test_a_declaration_that_does_not_narrow_keeps_the_bundle_out(
    change: tuple[str, str], path: str, tmp_path: Path
) -> None:
    """Said where it stands, before anything runs."""
    problems = problems_in(write(tmp_path / "b", app=APP, tool=edited(TOOL, change)))
    assert [path] == [problem.path for problem in problems]
