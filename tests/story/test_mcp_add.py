"""`oauthbroker mcp add` prints an app that works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker.cli import run
from oauthbroker.config import load
from oauthbroker.config.bundle.schema import SCHEMA_LINE
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.testing import IdentityProvider
from tests.story.mcp_apps_kit import McpSite, mcp_site

BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: http://127.0.0.1:8420
  weaken: [plainHttpProvider]
  login:
    client: {{clientId: broker, authMethod: none}}
    endpoints: {{issuer: "{issuer}"}}
    subject: "idp:user:{{sub}}"
---
"""


@pytest.fixture
async def site(identity_provider: IdentityProvider) -> AsyncIterator[McpSite]:
    identity_provider.takes_clients = True
    async with mcp_site(identity_provider) as made:
        yield made


class Printed:
    """One run of the command."""

    def __init__(self, status: int, out: str, err: str, site: McpSite) -> None:
        self.status, self.out, self.err, self._site = status, out, err, site

    def app(self, folder: Path) -> App:
        """Load the printed text beside a Broker."""
        file = folder / "bundle.yaml"
        file.write_text(BROKER.format(issuer=self._site.idp.issuer) + self.out)
        (draft,) = load(file).apps.values()
        return draft.app


async def added(site: McpSite, capsys: pytest.CaptureFixture[str], *words: str) -> Printed:
    capsys.readouterr()
    status = await asyncio.to_thread(run, ["mcp", "add", *words])
    said = capsys.readouterr()
    return Printed(status, said.out, said.err, site)


async def test_the_printed_app_is_that_of_the_server(
    site: McpSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.publish(scopes_supported=["read", "write", 'bad"scope', "read", 7])
    printed = await added(site, capsys, f"{site.url}/", "--name", "tickets")
    assert 0 == printed.status, printed.err
    app = printed.app(tmp_path)
    assert app.mcp is not None
    assert ("tickets", site.url, site.idp.issuer) == (app.name, app.mcp.url, app.mcp.issuer)
    assert ("read", "write", "offline_access") == app.scopes
    assert "localOperator: one person, one machine" in printed.out
    assert printed.out.startswith(SCHEMA_LINE), "an editor knows its fields"
    assert "registers its client" in printed.err
    assert not site.idp.count("register")


async def test_a_resource_above_the_server_is_named(
    site: McpSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.publish(resource=f"{site.server.url}/")
    assert (site.server.url,) == (await added(site, capsys, site.url)).app(tmp_path).resource


async def test_a_server_that_registers_no_client_gets_a_line_for_one(
    site: McpSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.idp.takes_clients = False
    printed = await added(site, capsys, site.url)
    assert "clientId: register-it-there" in printed.out
    assert "/oauth/callback/mcp" in printed.err
    app = printed.app(tmp_path)
    assert app.mcp is not None
    assert app.mcp.has_client


@pytest.mark.case("120", "121", "122")
async def test_a_server_that_cannot_be_used_is_refused_with_its_code(
    site: McpSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.publish(resource="https://other.example")
    foreign = await added(site, capsys, site.url)
    site.publish()
    site.idp.script.discovery.fields(code_challenge_methods_supported=None)
    without_pkce = await added(site, capsys, site.url)
    inside = await added(site, capsys, "https://10.0.0.1/mcp")
    no_address = await added(site, capsys, "https://[1/mcp")
    codes = [Code.MCP_METADATA_MISSING, Code.MCP_PKCE_MISSING, Code.APP_MISCONFIGURED, Code.REQUEST_INVALID]
    for printed, code in zip([foreign, without_pkce, inside, no_address], codes, strict=True):
        assert 0 != printed.status
        assert "" == printed.out
        assert code.value in printed.err


async def test_an_app_is_printed_without_the_sdk(site: McpSite) -> None:
    code = "import sys; sys.modules['mcp'] = None; from oauthbroker.cli import run; sys.exit(run(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "mcp", "add", site.url]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    assert "provider: mcp" in done.stdout


@pytest.mark.parametrize("name", ["a b: c", "-x", "x" * 129, "a\nb"])
async def test_a_name_that_no_resource_may_have_is_refused(
    site: McpSite, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    done = await added(site, capsys, site.url, "--name", name)
    assert (2, "", True) == (done.status, done.out, "--name begins with a letter or digit" in done.err)


async def test_an_address_with_a_password_is_refused(site: McpSite, capsys: pytest.CaptureFixture[str]) -> None:
    done = await added(site, capsys, site.url.replace("://", "://me:secret@"))
    assert (2, "") == (done.status, done.out)
    assert "Leave out all up to the @" in done.err
    assert "secret" not in done.err
    assert [] == site.paths
