"""README.md, "From another process": every block as it is printed, against `oauthbroker serve` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import Browser, Canaries, Client, IdentityProvider, connect_through
from tests import machine
from tests.cli_kit import REPOSITORY, Desk, environment, serving

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PATIENCE = 240.0
APP = """\
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: slack-bot}}
spec:
  provider: oidc
  flow: authorizationCode
  subjectMode: global
  client: {{clientId: slack-bot, clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/slack-bot, key: client_secret}}}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [chat:write, channels:read]
  redirect: {{callbackPath: /oauth/callback/slack-bot}}
  owner:
    identity: {{global: {{from: userInfo, template: "slack:team:{{team}}"}}}}
    authorizers: anyone
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {{name: slack}}
spec:
  auth: {{oauthAppRef: OAuthApp/slack-bot, scopes: [chat:write]}}
"""


def section() -> str:
    page = (REPOSITORY / "README.md").read_text("utf-8")
    return page.partition("\n## From another process\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(), re.DOTALL)


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    """It goes by the real clock, as the server does."""
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@pytest.fixture
def desk(
    tmp_path: Path, idp: IdentityProvider, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Iterator[Desk]:
    """The folder of somebody who did what the README says before: a bundle, a key, the client's secret; it is served."""
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    client = idp.register(Client("slack-bot", redirect_uris=(f"{desk.base}/oauth/callback/slack-bot",)))
    desk.write("slack-bot", APP.format(issuer=idp.issuer))
    assert 0 == desk.type("init").code
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    assert 0 == desk.type("secrets", "set", "slack-bot", "client_secret", stdin=client.reveal_secret()).code
    shim = tmp_path / "bin" / "oauthbroker"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from oauthbroker.cli import main; main()" "$@"\n')
    shim.chmod(0o700)
    with serving(desk):
        yield desk


@pytest.fixture
def env(desk: Desk) -> dict[str, str]:
    """What the programs' blocks take from the environment."""
    desk.canaries.may_show("API key")
    key = desk.type("api-keys", "create", "my-runtime", "--role", "runtime").out.strip()
    desk.canaries.add(key, "API key")
    return environment(OAUTHBROKER_URL=desk.base, OAUTHBROKER_API_KEY=key)


class Program:
    """A process whose words are read while it runs. They are swept, but for what the page has it print."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self.said = ""

    async def type(self, text: str) -> None:
        self._in.write(text.encode())
        await self._in.drain()

    async def says(self, pattern: str) -> str:
        """Waits until it has printed this; group 1."""
        async with asyncio.timeout(PATIENCE):
            while (found := re.search(pattern, self.said)) is None:
                more = await self._out.read(4096)
                assert more, self.said
                self.said += more.decode()
        return found[1]

    async def end(self) -> str:
        """Waits until it is done; everything it printed."""
        self._in.close()
        async with asyncio.timeout(PATIENCE):
            self.said += (await self._out.read()).decode()
            assert 0 == await self._process.wait(), self.said
        return self.said


@asynccontextmanager
async def program(*words: str, cwd: Path, env: Mapping[str, str]) -> AsyncIterator[Program]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def agree(desk: Desk, idp: IdentityProvider, link: str) -> None:
    """The person opens the link that was printed."""
    page = await connect_through(Browser(canaries=desk.canaries), idp, link, "alice")
    assert 200 == page.status, page.text


async def test_the_shell_blocks_lead_from_a_key_to_a_token(desk: Desk, idp: IdentityProvider) -> None:
    first, second = blocks("sh")
    env = environment(OAUTHBROKER_URL=desk.base, PATH=f"{desk.folder}/bin:{os.environ['PATH']}")
    async with program("bash", "-eu", "-s", cwd=desk.folder, env=env) as shell:
        await shell.type(f"{first}\n")
        link = await shell.says(r'"authorizationUrl":\s*"([^"]+)"')
        await agree(desk, idp, link)
        await shell.type(f"{second}\n")
        token = await shell.says(r'"accessToken":\s*"([^"]+)"')
        assert idp.is_alive(token)
        await shell.type(
            'jq -r .event.type <<<"$event"\napi "$OAUTHBROKER_API_KEY" /v1/agents/planner/events -w \'%{http_code}\'\n'
        )
        said = await shell.end()
    assert "auth.granted\n204" in said, said


async def test_the_python_blocks_are_a_runtime_and_its_tool(
    desk: Desk, idp: IdentityProvider, env: dict[str, str]
) -> None:
    for block in blocks("python"):
        [name] = re.findall(r"^# (\w+\.py)$", block, re.MULTILINE)
        (desk.folder / name).write_text(block, "utf-8")
    (desk.folder / "oauthbroker").symlink_to(
        REPOSITORY / "oauthbroker"
    )  # a tool's process has its own folder's modules
    async with program(sys.executable, "-u", "runtime.py", cwd=desk.folder, env=env) as runtime:
        await agree(desk, idp, await runtime.says(r"(http://127\.0\.0\.1\S+/connect/\S+)"))
        said = await runtime.end()
    assert "ready Secret(***)" in said, said
    desk.canaries.look(said, "what the programs printed", allow=["ticket"])


async def test_the_typescript_block_compiles_and_runs(desk: Desk, idp: IdentityProvider, env: dict[str, str]) -> None:
    [block] = blocks("ts")
    home = machine.TYPESCRIPT_HOME
    folder = home / "build" / "readme"  # inside the package, where its own name is known
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "story.ts").write_text(block, "utf-8")
    (folder / "tsconfig.json").write_text(
        '{"extends": "../../tsconfig.json", "compilerOptions": {"rootDir": ".", "outDir": "out"}, "include": ["story.ts"]}'
    )
    for project in ("tsconfig.build.json", "build/readme"):
        tsc = (str(machine.node()), "node_modules/typescript/bin/tsc", "-p", project)
        async with program(*tsc, cwd=home, env=dict(os.environ)) as compiler:
            assert "" == await compiler.end()
    async with program(str(machine.node()), str(folder / "out" / "story.js"), cwd=desk.folder, env=env) as node:
        await agree(desk, idp, await node.says(r"(http://127\.0\.0\.1\S+/connect/\S+)"))
        said = await node.end()
    assert "ready [ 'chat:write' ]" in said, said
    desk.canaries.look(said, "what the program printed", allow=["ticket"])
