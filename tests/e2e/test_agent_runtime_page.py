"""docs/tutorials/agent-runtime.md and tools-in-processes.md, and docs/testing.md, "Trying it on this machine": every
block as it is printed, against `oauthbroker serve` in a process of its own. Only addresses are other ones."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.testing import Account, Browser, Canaries, Client, IdentityProvider
from oauthbroker.testing.provider.simulated_user import go_through
from tests.e2e import typescript
from tests.kit import installed
from tests.kit.cli import REPOSITORY, Desk, command, environment, free_port, serving
from tests.kit.docs_shell import LINK, Program, agree, blocks, program, section
from tests.kit.shims import with_shims

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PAGE = "docs/tutorials/agent-runtime.md"
ADDRESS = "http://127.0.0.1:8420"  # on the pages; a test takes a free port
NEWCOMER = Account("newcomer", "U1", "T111")  # whom the page's bundle names as its authorizer
ENDPOINTS = """\
  endpoints:
    authorizationUrl: {base}/authorize
    tokenUrl: {base}/token
    revokeUrl: {base}/api/auth.revoke
    issuer: {base}
"""


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    """It goes by the real clock, as the server does."""
    with IdentityProvider(canaries=canaries) as provider:
        provider.add_account(NEWCOMER)
        yield provider


@dataclass
class Prepared:
    """The key and the store that the page's commands made. They run once: each other test gets a copy."""

    folder: Path
    secret: Secret | None = None

    async def into(self, desk: Desk, secret: Secret) -> None:
        if self.secret is None:
            await _typed_once(desk, secret)
            self.secret = secret
            _copied(desk.folder, self.folder)
        else:
            with_shims(desk.folder)
            _copied(self.folder, desk.folder)


def _copied(source: Path, target: Path) -> None:
    for name in ("keys", "store"):
        shutil.copytree(source / name, target / name)


async def _typed_once(desk: Desk, secret: Secret) -> None:
    once, _ = blocks("sh", "What you configure", PAGE)
    env = environment(PATH=with_shims(desk.folder))
    async with program("bash", "-euc", once, cwd=desk.folder, env=env) as shell:
        await shell.type(secret.reveal())
        await shell.end()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
async def configured(
    tmp_path: Path,
    idp: IdentityProvider,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    prepared: Prepared,
) -> Desk:
    """The folder of a user who did what "What you configure" says, word by word, up to `serve`. Slack is scripted."""
    desk = Desk(tmp_path, canaries, monkeypatch, capsys)
    once, _ = blocks("sh", "What you configure", PAGE)
    [bundle] = blocks("yaml", "What you configure", PAGE)
    at_idp = ENDPOINTS.format(base=idp.base_url)
    desk.write("slack", bundle.replace("  provider: slack\n", f"  provider: slack\n{at_idp}"))
    [client_id] = re.findall(r"SLACK_CLIENT_ID=(\S+)", once)
    uris = (f"{desk.base}/oauth/callback/slack-bot",)
    client = idp.register(Client(client_id, redirect_uris=uris, dialect="slack", client_secret=prepared.secret))
    assert client.client_secret is not None
    await prepared.into(desk, client.client_secret)
    canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    monkeypatch.setenv("SLACK_CLIENT_ID", client_id)
    return desk


@pytest.fixture
def desk(configured: Desk) -> Iterator[Desk]:
    """The same folder, while it is served."""
    _, serve = blocks("sh", "What you configure", PAGE)
    command, *words = shlex.split(serve, comments=True)
    assert ("oauthbroker", "serve") == (command, words[0])
    with serving(configured, *words[1:], SLACK_CLIENT_ID=os.environ["SLACK_CLIENT_ID"]):
        yield configured


@pytest.fixture
def env(desk: Desk) -> dict[str, str]:
    """What the programs' blocks take from the environment."""
    desk.canaries.may_show("API key")
    key = desk.type("api-keys", "create", "my-runtime", "--role", "runtime").out.strip()
    desk.canaries.add(key, "API key")
    return environment(OAUTHBROKER_URL=desk.base, OAUTHBROKER_API_KEY=key)


def typed(block: str, desk: Desk) -> str:
    assert ADDRESS in block
    return block.replace(ADDRESS, desk.base)


async def lives_by_hand(desk: Desk, idp: Any, shell: Program, account: str) -> str:
    """The page's commands, one after another. The token that they end with."""
    first, second = blocks("sh")
    await shell.type(f"{typed(first, desk)}\n")
    await agree(desk, idp, await shell.says(r'"authorizationUrl":\s*"([^"]+)"'), account)
    await shell.type(f"{second}\n")
    return await shell.says(r'"accessToken":\s*"([^"]+)"')


async def test_the_blocks_lead_in_their_printed_order_from_a_key_to_a_token(
    desk: Desk, idp: IdentityProvider, env: dict[str, str]
) -> None:
    """Also the programs: the person has agreed by then, and nothing waits for an event that was taken."""
    theirs = environment(PATH=f"{desk.folder}/bin:{os.environ['PATH']}")
    async with program("bash", "-eu", "-s", cwd=desk.folder, env=theirs) as shell:
        assert idp.is_alive(await lives_by_hand(desk, idp, shell, "newcomer"))
        await shell.type(
            'jq -r .event.type <<<"$event"\napi "$OAUTHBROKER_API_KEY" /v1/agents/planner/events -w \'%{http_code}\'\n'
        )
        said = await shell.end()
    assert "auth.granted\n204" in said, said
    async with running_python(desk, env) as runtime:
        assert "ready Secret(***)\n" == await runtime.end()
    async with running_typescript(desk, env) as node:
        assert "ready [ 'chat:write' ]\n" == await node.end()


@asynccontextmanager
async def running_python(desk: Desk, env: Mapping[str, str]) -> AsyncIterator[Program]:
    for block in blocks("python"):
        [name] = re.findall(r"^# (\w+\.py)$", block, re.MULTILINE)
        (desk.folder / name).write_text(block, "utf-8")
    if not (desk.folder / "oauthbroker").exists():  # a tool's process has its own folder's modules
        (desk.folder / "oauthbroker").symlink_to(REPOSITORY / "oauthbroker")
    async with program(sys.executable, "-u", "runtime.py", cwd=desk.folder, env=env) as runtime:
        yield runtime


@asynccontextmanager
async def running_typescript(desk: Desk, env: Mapping[str, str]) -> AsyncIterator[Program]:
    [block] = blocks("ts")
    options = {"rootDir": ".", "outDir": "out"}
    project = json.dumps({"extends": "../../tsconfig.json", "compilerOptions": options, "include": ["story.ts"]})
    story = typescript.BUILD / "readme" / "out" / "story.js"  # inside the package, where its own name is known
    await typescript.client_built()
    await typescript.compiled("build/readme", story, {"story.ts": block, "tsconfig.json": project})
    async with program(str(installed.node()), str(story), cwd=desk.folder, env=env) as node:
        yield node


PROGRAMS = pytest.mark.parametrize(
    ("running", "ready"),
    [(running_python, "ready Secret(***)"), (running_typescript, "ready [ 'chat:write' ]")],
    ids=["python", "typescript"],
)


@PROGRAMS
async def test_the_programs_are_a_runtime_and_its_tool(
    desk: Desk, idp: IdentityProvider, env: dict[str, str], running: Any, ready: str
) -> None:
    async with running(desk, env) as runtime:
        await agree(desk, idp, await runtime.says(LINK))
        said = await runtime.end()
    assert f"auth.granted\n{ready}\n" in said, said
    desk.canaries.look(said, "what the programs printed", allow=["ticket"])


@PROGRAMS
async def test_the_programs_do_not_ask_a_user_again_who_declined(
    desk: Desk, idp: IdentityProvider, env: dict[str, str], running: Any, ready: str
) -> None:
    async with running(desk, env) as runtime:
        await agree(desk, idp, await runtime.says(LINK), deny=True)
        said = await runtime.end()
        assert said.endswith("auth.denied\n"), said
        assert 1 == len(re.findall(LINK, runtime.said))
    desk.canaries.look(runtime.said, "what the programs printed", allow=["ticket"])


@asynccontextmanager
async def in_one_process(desk: Desk) -> AsyncIterator[Program]:
    """The page's first program, in the configured folder. It serves its own pages."""
    [block] = blocks("python", "In your runtime", PAGE)
    assert block.startswith("# agent.py\n")
    (desk.folder / "agent.py").write_text(block, "utf-8")
    env = environment(SLACK_CLIENT_ID=os.environ["SLACK_CLIENT_ID"], PYTHONPATH=str(REPOSITORY))
    async with program(sys.executable, "-u", "agent.py", cwd=desk.folder, env=env) as agent:
        yield agent


def spoken(said: str) -> list[str]:
    """The lines that a program printed, without the broker's log."""
    return [line for line in said.splitlines() if not line.startswith("{")]


async def test_the_first_program_serves_its_own_link_and_goes_on_when_the_person_has_agreed(
    configured: Desk, idp: IdentityProvider
) -> None:
    async with in_one_process(configured) as agent:
        await agree(configured, idp, await agent.says(LINK))
        said = await agent.end()
    assert ["auth.granted", "ready Secret(***)"] == spoken(said)[-2:], said
    async with in_one_process(configured) as again:
        assert ["ready Secret(***)"] == spoken(await again.end())
    configured.canaries.look(said, "what the program printed", allow=["ticket"])


async def test_the_first_program_ends_when_the_person_has_said_no(configured: Desk, idp: IdentityProvider) -> None:
    async with in_one_process(configured) as agent:
        await agree(configured, idp, await agent.says(LINK), deny=True)
        said = await agent.end()
    assert "auth.denied" == spoken(said)[-1], said


async def test_an_older_event_does_not_end_the_first_program(configured: Desk, idp: IdentityProvider) -> None:
    async with in_one_process(configured) as agent:
        await agree(configured, idp, await agent.says(LINK))
        await agent.end()
    folder, client_id = configured.folder, os.environ["SLACK_CLIENT_ID"]
    words = ("grants", "revoke", "--all", "--yes")
    revoked = await asyncio.to_thread(command, *words, cwd=folder, SLACK_CLIENT_ID=client_id)
    assert 0 == revoked.code, revoked.err
    async with in_one_process(configured) as again:
        link = await again.says(LINK)
        await again.says("(auth.revoked\n)")
        await agree(configured, idp, link)
        said = await again.end()
    assert ["auth.revoked", "auth.granted", "ready Secret(***)"] == spoken(said)[-3:], said
    configured.canaries.look(said, "what the program printed", allow=["ticket"])


class Elsewhere:
    """A provider that is another process, for `connect_through`."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    async def agree(self, url: str, account: str, *, browser: Browser, **said: Any) -> str:
        return await go_through(browser, url, home=self.base_url, account=account, **said)


async def test_it_can_be_tried_on_one_machine_as_the_page_on_testing_says(
    tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    title, page = "Trying it on this machine", "docs/testing.md"
    desk, at = Desk(tmp_path, canaries, monkeypatch, capsys), f"http://127.0.0.1:{free_port()}"
    (tmp_path / "config" / "broker.yaml").unlink()
    env = environment(PATH=with_shims(tmp_path))

    def here(text: str) -> str:
        """With ports that are free."""
        return text.replace("8419", at.rpartition(":")[2]).replace("8420", str(desk.port))

    [bundle], [provider, broker] = blocks("yaml", title, page), blocks("sh", title, page)
    assert "`config/trying.yaml`" in section(title, page)
    desk.write("trying", here(bundle))
    canaries.excuse(tmp_path / "provider.json")
    canaries.may_show("API key")
    canaries.outside.add(at)
    async with (
        program("bash", "-euc", f"exec {here(provider)}", cwd=tmp_path, env=env),
        program(
            "bash", "-euc", f"until [ -s provider.json ]; do sleep 0.1; done\n{here(broker)}", cwd=tmp_path, env=env
        ) as server,
        program("bash", "-eu", "-s", cwd=tmp_path, env=env) as shell,
    ):
        await server.says("(serving)")
        assert await lives_by_hand(desk, Elsewhere(at), shell, "alice")
        await shell.end()
