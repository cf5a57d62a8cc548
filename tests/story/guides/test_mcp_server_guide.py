"""docs/tutorials/mcp-server.md: its configurations and commands, with the programs of examples/mcp.

The provider is the scripted one, which has no https: both brokers are allowed that. Ports and addresses are other ones.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from oauthbroker.testing import Browser, Canaries, Client, IdentityProvider, connect_through
from tests.kit.cli import REPOSITORY, environment, free_port
from tests.kit.docs_shell import blocks, program
from tests.kit.shims import with_shims

sys.path.append(str(REPOSITORY / "examples" / "mcp"))
from mcp_demo import until_it_listens

pytestmark = pytest.mark.slow
PAGE = "docs/tutorials/mcp-server.md"
EXAMPLES = REPOSITORY / "examples" / "mcp"


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        provider.takes_clients = True
        yield provider


def put(folder: Path, here: Callable[[str], str]) -> None:
    """Write the page's configurations and copy its programs."""
    for name, block in zip(("server", "host"), blocks("yaml", page=PAGE), strict=True):
        broker, app = yaml.safe_load_all(here(block))
        broker["spec"]["weaken"] = ["plainHttpProvider"]
        (folder / name / "config").mkdir(parents=True)
        (folder / name / "config" / "broker.yaml").write_text(yaml.safe_dump_all([broker, app]), "utf-8")
    for each in ("mail_server.py", "host.py"):
        shutil.copy(EXAMPLES / each, folder)


async def test_the_host_shows_each_link_once_and_gets_two_answers(
    tmp_path: Path, idp: IdentityProvider, canaries: Canaries
) -> None:
    ports = {"8421": str(free_port()), "8420": str(free_port())}
    callback = f"http://127.0.0.1:{ports['8421']}/oauth/callback/mail"
    client = idp.register(Client("mail", redirect_uris=(callback,)))

    def here(text: str) -> str:
        text = re.sub("842[01]", lambda found: ports[found[0]], text)
        for old, new in (("https://login.example.com", idp.issuer), ("https://mail.example.com", idp.base_url)):
            text = text.replace(old, new)
        return text.replace("[mail.example.com]", f'["{idp.issuer}"]').replace("python ", "python -u ")

    put(tmp_path, here)
    (*make_server, serve), (*make_host, call) = (here(block).splitlines() for block in blocks("sh", page=PAGE))
    env = environment(PATH=with_shims(tmp_path))
    canaries.excuse(*(tmp_path / name / "keys" / "broker.kek" for name in ("server", "host")))
    async with program("bash", "-euc", "\n".join(make_host + make_server), cwd=tmp_path, env=env) as shell:
        await shell.type(client.reveal_secret())
        await shell.end()
    async with program("bash", "-euc", f"exec {serve}", cwd=tmp_path, env=env):
        await until_it_listens(int(ports["8421"]))
        async with program("bash", "-euc", call, cwd=tmp_path, env=env) as calling:
            browser = Browser(canaries=canaries)
            for of in ("host", "server"):
                link = await calling.says(rf"(?m)^{of} .*?(http\S+/connect/\S+)$")
                await connect_through(browser, idp, link, "alice")
            said = await calling.end()
    assert 2 == len(re.findall(r"(?m)^answer .*Good morning, Alice", said))
    assert 2 == len(re.findall("/connect/", said))
