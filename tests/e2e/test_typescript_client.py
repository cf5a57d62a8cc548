"""The TypeScript client: the compiler takes it, Node runs its tests, and a real broker answers them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oauthbroker.model.settings import Settings
from oauthbroker.testing import Canaries, IdentityProvider, TestClock, connect_through
from tests.kit import installed
from tests.kit.running_broker import BASE, Harness, global_app, running, user_app
from tests.story.api.clients import TOOLS, listening

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
HOME = installed.TYPESCRIPT_HOME
PATIENCE = 240.0


async def node(*arguments: str, **env: str) -> str:
    """Runs Node in the client's folder; what it printed. Fails with that, if Node did."""
    process = await asyncio.create_subprocess_exec(
        str(installed.node()), *arguments, cwd=HOME, env={**_plain_environment(), **env},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert 0 == process.returncode, said.decode()
    return said.decode()


def _plain_environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("OAUTHBROKER_", "PERSON_"))}


@asynccontextmanager
async def person(harness: Harness) -> AsyncIterator[str]:
    """Somebody who agrees to every link that is posted to this address."""

    async def agree(request: Request) -> Response:
        page = await connect_through(harness.browser(), harness.idp, (await request.body()).decode(), "alice")
        return Response(status_code=204 if page.status == 200 else 500)

    app = Starlette(routes=[Route("/", agree, methods=["POST"])])
    async with listening(app, socket.create_server(("127.0.0.1", 0))) as url:
        yield url


@pytest.mark.parametrize("project", ["tsconfig.json", "tsconfig.portable.json"])
async def test_the_compiler_takes_it_also_where_there_is_no_node(project: str) -> None:
    """The portable project knows fetch, WebCrypto and AbortSignal, and nothing of Node."""
    assert "" == await node("node_modules/typescript/bin/tsc", "-p", project, "--noEmit")


async def test_what_the_pages_on_it_show_compiles() -> None:
    folder = HOME / "build" / "pages"  # inside the package, where its own name is known
    folder.mkdir(parents=True, exist_ok=True)
    for number, page in enumerate((HOME / "README.md", HOME.parents[1] / "docs" / "clients.md")):
        [block] = re.findall(r"```ts\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        (folder / f"page{number}.ts").write_text(block, "utf-8")
    options = {"rootDir": ".", "outDir": "out", "noEmit": True, "noUnusedLocals": False}
    project = {"extends": "../../tsconfig.json", "compilerOptions": options, "include": ["*.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(project))
    await node("node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json")
    assert "" == await node("node_modules/typescript/bin/tsc", "-p", "build/pages")


async def test_its_own_tests_pass_against_a_real_broker(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    await node("node_modules/typescript/bin/tsc", "-p", "tsconfig.json")
    with socket.create_server(("127.0.0.1", 0)) as door:
        host = f"127.0.0.1:{door.getsockname()[1]}"
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=(host,))
        async with (
            running(identity_provider, apps, clock=test_clock, tools=TOOLS, settings=settings) as harness,
            listening(harness.broker.doors.api, door) as url,
            person(harness) as agrees,
        ):
            _, key = await harness.broker.api_keys.create("typescript", ["runtime", "operator"])
            canaries.add(key, "API key")
            env = {"OAUTHBROKER_URL": url, "OAUTHBROKER_API_KEY": key.reveal(), "PERSON_URL": agrees}
            files = sorted(str(file.relative_to(HOME)) for file in (HOME / "build" / "test").glob("*.test.js"))
            said = await node("--test", "--test-reporter=tap", *files, **env)
            canaries.look(said, "what Node printed")
    assert "# skipped 0" in said, said
    assert "# fail 0" in said, said


async def test_what_is_packed_is_built_and_has_no_dependency() -> None:
    await node("node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json")
    said = await node(
        "--input-type=module", "-e", "import('@oauthbroker/client').then((m) => console.log(Object.keys(m).join()))"
    )
    assert {"createOAuth", "createRuntime", "narrow", "BrokerError"} <= set(said.strip().split(","))
    assert "dependencies" not in (HOME / "package.json").read_text("utf-8").replace("devDependencies", "")
