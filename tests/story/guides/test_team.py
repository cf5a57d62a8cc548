"""docs/tutorials/team.md: two brokers on one PostgreSQL server, and the page's runtime.

Both hosts are this machine, with a port and a folder each; GitHub is the scripted provider. Addresses are other ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from oauthbroker.testing import Canaries, Client, IdentityProvider
from tests.kit import postgres
from tests.kit.cli import Desk, environment, free_port, serving
from tests.kit.docs_shell import LINK, agree, blocks, program
from tests.kit.shims import with_shims

pytestmark = pytest.mark.slow
PAGE = "docs/tutorials/team.md"


def second_host(first: Desk) -> Desk:
    """Copy the folders that the page names to another host, where the same address has another port behind it."""
    host = Desk.__new__(Desk)
    vars(host).update(vars(first), folder=first.folder / "second", port=free_port())
    for name in ("config", "keys"):
        shutil.copytree(first.folder / name, host.folder / name)
    host.canaries.excuse(host.folder / "keys" / "broker.kek")
    return host


def configure(desk: Desk, idp: IdentityProvider, public: str) -> None:
    """Write the page's configuration with the addresses of this test."""
    broker, app = yaml.safe_load_all(blocks("yaml", page=PAGE)[0])
    changes = {"publicBaseUrl": public, "listen": {"port": desk.port}, "allowedHosts": [f"127.0.0.1:{desk.port}"]}
    broker["spec"] |= changes | {"weaken": ["plainHttpProvider"]}
    app["spec"]["client"]["authMethod"] = "client_secret_basic"  # what the scripted provider wants at every endpoint
    urls = {name: idp.endpoints[name] for name in ("authorizationUrl", "tokenUrl")}
    ours = {"userInfoUrl": idp.url("/user"), "revokeUrl": idp.url("/applications/gh/token"), "issuer": idp.issuer}
    app["spec"]["endpoints"] = urls | ours
    desk.write("team", yaml.safe_dump_all([broker, app]))


async def test_a_grant_of_one_host_is_ready_on_the_other(
    tmp_path: Path,
    postgres_server: postgres.Server,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    create, once, serve, ask = blocks("sh", page=PAGE)
    assert "createdb -O oauthbroker -E UTF8 -T template0 oauthbroker\n" in create
    postgres_server.empty_database("team")
    url = postgres_server.url("team").reveal()
    first = Desk(tmp_path, canaries, monkeypatch, capsys)
    (tmp_path / "config" / "broker.yaml").unlink()
    canaries.excuse(tmp_path / "api-key")
    [helper] = blocks("python", page=PAGE)
    (tmp_path / "helper.py").write_text(helper, "utf-8")
    with IdentityProvider(canaries=canaries) as idp:
        uris = (f"{first.base}/oauth/callback/github",)
        client = idp.register(Client("Iv1.8a61", redirect_uris=uris, dialect="github"))
        configure(first, idp, first.base)
        env = environment(PATH=with_shims(tmp_path), OAUTHBROKER_DATABASE_URL=url)
        async with program("bash", "-euc", once, cwd=tmp_path, env=env) as shell:
            await shell.type(client.reveal_secret())
            await shell.end()
        second = second_host(first)
        configure(second, idp, first.base)
        assert "oauthbroker serve" == serve.strip()
        started = {"OAUTHBROKER_DATABASE_URL": url}
        user = f"github:user:{idp.account('alice').number}"
        with serving(first, **started), serving(second, **started):
            for host in (first, second):
                words = ask.replace("8420", str(host.port)).replace("github:user:583231", user)
                async with program(
                    "bash", "-euc", words.replace("python", "python -u"), cwd=tmp_path, env=env
                ) as asking:
                    if host is first:
                        await agree(first, idp, await asking.says(f"Open {LINK}"), "alice")
                    said = await asking.end()
                assert "ready" == said.split()[-1]
                assert (host is first) is ("Open" in said)
