"""docs/tutorials/one-script.md, block by block, from the built wheel alone. Only addresses are other ones, and GitHub is scripted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.testing import Canaries, Client, IdentityProvider
from tests.kit.cli import Desk, environment
from tests.kit.docs_shell import LINK, agree, blocks, program
from tests.kit.packages import bare_environment, built, dist_folder, shared_folder

PAGE = "docs/tutorials/one-script.md"


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    """It goes by the real clock, as the script does."""
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


def at(idp: IdentityProvider, desk: Desk, bundle: str) -> str:
    """The page's app with the scripted provider's endpoints, and a Broker with a port that is free."""
    app = yaml.safe_load(bundle)
    app["spec"]["client"]["authMethod"] = "client_secret_basic"  # what the scripted provider wants at every endpoint
    ours = idp.endpoints
    app["spec"]["endpoints"] = {
        "authorizationUrl": ours["authorizationUrl"],
        "tokenUrl": ours["tokenUrl"],
        "userInfoUrl": idp.url("/user"),
        "revokeUrl": idp.url("/applications/gh/token"),
        "issuer": idp.issuer,
    }
    broker = {
        "apiVersion": app["apiVersion"],
        "kind": "Broker",
        "metadata": {"name": "broker"},
        "spec": {"publicBaseUrl": desk.base, "listen": {"port": desk.port}, "weaken": ["plainHttpProvider"]},
    }
    return yaml.safe_dump_all([app, broker])


@pytest.mark.slow
async def test_a_script_asks_once_and_finds_the_token_ready_from_then_on(
    tmp_path: Path,
    idp: IdentityProvider,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    tmp_path_factory: pytest.TempPathFactory,
    worker_id: str,
) -> None:
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    (tmp_path / "config" / "broker.yaml").unlink()
    uris = (f"{desk.base}/oauth/callback/github",)
    client = idp.register(Client("gh", redirect_uris=uris, dialect="github"))
    [bundle], [script] = blocks("yaml", page=PAGE), blocks("python", page=PAGE)
    install, once = blocks("sh", page=PAGE)
    desk.write("github", at(idp, desk, bundle))
    (tmp_path / "script.py").write_text(script, "utf-8")
    programs = bare_environment(tmp_path / "env")
    dist_folder(built(shared_folder(tmp_path_factory.getbasetemp(), worker_id)), tmp_path)
    env = environment(HOME=str(tmp_path / "home"), PATH=f"{programs}:{os.environ['PATH']}", PYTHONPATH="")
    async with program("bash", "-euc", install, cwd=tmp_path, env=env) as shell:
        await shell.end()
    values = f"GITHUB_CLIENT_ID=gh GITHUB_CLIENT_SECRET={client.reveal_secret()}"
    assert "GITHUB_CLIENT_ID=... GITHUB_CLIENT_SECRET=..." in once
    async with program("bash", "-euc", once.replace("GITHUB_CLIENT_ID=... GITHUB_CLIENT_SECRET=...", values), cwd=tmp_path, env=env) as shell:  # fmt: skip
        said = await shell.end()
    [key] = (tmp_path / "home").rglob("*.kek")
    canaries.excuse(key)
    assert str(key) in said
    env |= {"GITHUB_CLIENT_ID": "gh", "GITHUB_CLIENT_SECRET": client.reveal_secret()}
    async with program(f"{programs}/python", "-u", "script.py", cwd=tmp_path, env=env) as first:
        await agree(desk, idp, await first.says(LINK), "alice")
        assert "Ready: Secret(***)" in (await first.end()).splitlines()
    async with program(f"{programs}/python", "-u", "script.py", cwd=tmp_path, env=env) as second:
        said = await second.end()
    assert "Ready: Secret(***)" in said.splitlines()
    assert "Open this link" not in said
    async with program("bash", "-euc", "oauthbroker grants list; oauthbroker grants revoke --app github --subject me --yes", cwd=tmp_path, env=env) as ended:  # fmt: skip
        assert "github" in await ended.end()
