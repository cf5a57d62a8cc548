"""docs/how-to/own-provider.md: from its documentation to a token, against a provider that does as it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker import AuthorizationRequired, Ready, Turn, TurnAuth, open_broker
from oauthbroker.core.errors import Code
from oauthbroker.testing import Browser, Canaries, Client, IdentityProvider, connect_through
from oauthbroker.testing.provider import FOREVER
from tests.kit.cli import Desk, environment, serving
from tests.kit.docs import page_text
from tests.kit.docs_shell import LINK, agree, program
from tests.story.guides.guide import changed, of, put_programs, typed

pytestmark = pytest.mark.slow
PAGE = "how-to/own-provider"
ME = Turn("trying", "1", auth=TurnAuth(subjects={"user": "lumen:user:U234567"}))


@pytest.fixture
def lumen(canaries: Canaries) -> Iterator[IdentityProvider]:
    """The scripted provider with Lumen's two quirks, and its answer about the account."""
    with IdentityProvider(canaries=canaries) as provider:
        provider.script.authorize.fields(iss=None, times=FOREVER)
        provider.script.token.alter(_inside_data, times=FOREVER)
        provider.script.userinfo.alter(lambda person: {"account": {"id": person["sub"], "plan": "team"}}, times=FOREVER)
        yield provider


def _inside_data(answer: dict[str, Any]) -> dict[str, Any]:
    return {"data": answer | {"scope": answer["scope"].replace(" ", ",")}}


@pytest.fixture
def desk(tmp_path: Path, lumen: IdentityProvider, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Desk:  # fmt: skip
    """The page's Broker and its app, at the scripted provider's addresses."""
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    addresses = {
        "https://lumen.example.com/oauth/authorize": lumen.url("/authorize"),
        "https://lumen.example.com/oauth/token": lumen.url("/token"),
        "https://lumen.example.com/oauth/revoke": lumen.url("/revoke"),
        "https://lumen.example.com/api/me": lumen.url("/userinfo"),
    }
    broker, app = of(PAGE, "yaml")
    assert all(each in app for each in addresses)
    here = {"https://agents.example.com": desk.base, "port: 8420": f"port: {desk.port}"}
    desk.write("broker", f"{changed(broker, here)}  weaken: [plainHttpProvider]\n")
    desk.write("lumen", changed(app, addresses))
    put_programs(tmp_path, PAGE)
    return desk


def registered(desk: Desk, lumen: IdentityProvider) -> str:
    """What the page says to register; the secret."""
    uris = (f"{desk.base}/oauth/callback/lumen",)
    client = Client("agents", redirect_uris=uris, auth_method="client_secret_post")
    return lumen.register(client).reveal_secret()


async def test_the_app_of_the_page_gets_a_token_and_revokes_it(
    desk: Desk, lumen: IdentityProvider, canaries: Canaries
) -> None:
    said = await typed(desk.folder, of(PAGE, "sh")[0], stdin=registered(desk, lumen))
    assert "slack" in said, "the presets are listed"
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    canaries.may_show("API key")
    key = (await typed(desk.folder, "oauthbroker api-keys create me --role runtime 2>/dev/null")).strip()
    canaries.add(key, "API key")
    env = environment(OAUTHBROKER_URL=desk.base, OAUTHBROKER_API_KEY=key)
    with serving(desk):
        async with program(sys.executable, "-u", "try.py", cwd=desk.folder, env=env) as trying:
            await agree(desk, lumen, await trying.says(f"Open {LINK}"), "alice")
            assert "\nReady(" in await trying.end()
    assert "notes.read,notes.write" in [dict(request.fields).get("scope") for request in lumen.seen("authorize")]
    await typed(desk.folder, "oauthbroker grants revoke --app lumen --subject lumen:user:U234567 --yes")
    assert "refresh" in {revocation.kind for revocation in lumen.revocations}


async def outcome(lumen: IdentityProvider, account: str = "alice") -> tuple[str, Code | None]:
    """How it ends when this account agrees."""
    async with open_broker("config", env={}) as broker:
        oauth = broker.oauth(ME)
        asked = await oauth.get_access_token("OAuthApp/lumen")
        assert isinstance(asked, AuthorizationRequired)
        [base] = re.findall(r"(.+)/connect/", asked.authorization_url)
        await connect_through(Browser(apps={base: broker.asgi.app}), lumen, asked.authorization_url, account)
        return str((await oauth.get_access_token("OAuthApp/lumen")).status), (
            await broker.wait(asked.auth_session_id)
        ).code


@pytest.fixture
def ready(desk: Desk, lumen: IdentityProvider, canaries: Canaries) -> Desk:
    assert 0 == desk.type("init").code
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    assert 0 == desk.type("secrets", "set", "lumen", "client_secret", stdin=registered(desk, lumen)).code
    return desk


async def test_a_refresh_is_answered_inside_data_too(ready: Desk, lumen: IdentityProvider) -> None:
    assert ("ready", None) == await outcome(lumen)
    async with open_broker("config", env={}, background=False) as broker:
        oauth = broker.oauth(ME)
        old = await oauth.get_access_token("OAuthApp/lumen")
        assert isinstance(old, Ready)
        new = await oauth.report_rejected("OAuthApp/lumen", old.access_token)
    assert isinstance(new, Ready), new
    assert (1, True) == (lumen.count("refresh_token"), lumen.is_alive(new.access_token.reveal()))


async def test_another_account_is_refused(ready: Desk, lumen: IdentityProvider) -> None:
    assert ("authorization_required", Code.SUBJECT_MISMATCH) == await outcome(lumen, "bob")


@pytest.mark.parametrize(
    ("quirk", "code"),
    [("scopeSeparator", Code.SCOPE_EXCEEDED), ("tokenPath", Code.TOKEN_RESPONSE_INVALID)],
    ids=["scopeSeparator", "tokenPath"],
)
async def test_without_a_quirk_it_ends_as_the_page_says(ready: Desk, lumen: IdentityProvider, quirk: str, code: Code) -> None:  # fmt: skip
    app = yaml.safe_load((ready.folder / "config/lumen.yaml").read_text())
    del app["spec"]["quirks"][quirk]
    ready.write("lumen", yaml.safe_dump(app))
    assert ("authorization_required", code) == await outcome(lumen)
    assert f"`{code.value}`" in page_text(f"docs/{PAGE}.md")
