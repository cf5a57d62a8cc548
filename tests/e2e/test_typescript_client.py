"""The TypeScript client: the compiler takes it, Node runs its tests, and a real broker answers them."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.testing import Canaries, IdentityProvider, TestClock, connect_through
from tests.e2e.typescript import HOME, client_built, compiled, node
from tests.kit.claims import claims_asked_for
from tests.kit.running_broker import BASE, Harness, global_app, running, user_app
from tests.story.api.clients import TOOLS, listening
from tests.story.keys_kit import GOOD, NEWER, KeyApi, key_api, key_app
from tests.unit.protocol.kit import RawServer, says

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
TESTS = HOME / "build" / "test"


@asynccontextmanager
async def person(harness: Harness, keys: KeyApi) -> AsyncIterator[str]:
    """A person who consents at every link that is posted to this address, or types a key where the page asks for one.
    A post to `/rotate` makes that key a dead one, and the next one is another."""
    left = [GOOD, NEWER]

    async def rotate(_: Request) -> Response:
        del keys.keys[left.pop(0)]
        return Response(status_code=204)

    async def agree(request: Request) -> Response:
        link, browser = (await request.body()).decode(), harness.browser()
        form = (await browser.open(link)).form("decision")
        if "credential.apiKey" in dict(form.fields):
            page = await browser.submit({"decision": "continue", "credential.apiKey": left[0]}, form=form)
            while page.location is not None:
                page = await browser.follow()
        else:
            page = await connect_through(harness.browser(), harness.idp, link, "alice")
        return Response(status_code=204 if page.status == 200 else 500)

    app = Starlette(routes=[Route("/", agree, methods=["POST"]), Route("/rotate", rotate, methods=["POST"])])
    async with listening(app, socket.create_server(("127.0.0.1", 0))) as url:
        yield url


async def test_the_compiler_takes_it() -> None:
    await compiled("tsconfig.json", TESTS)


async def test_the_compiler_takes_it_also_where_there_is_no_node() -> None:
    """The portable project knows fetch, WebCrypto and AbortSignal, and nothing of Node."""
    await compiled("tsconfig.portable.json")


async def test_what_the_pages_on_it_show_compiles() -> None:
    sources: dict[str, str] = {}
    docs = HOME.parents[1] / "docs"
    for page in (HOME / "README.md", docs / "clients.md", docs / "injection.md"):
        blocks = re.findall(r"```ts\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        assert blocks
        sources |= {f"{page.stem}{number}.ts": block for number, block in enumerate(blocks)}
    options = {"rootDir": ".", "outDir": "out", "noEmit": True, "noUnusedLocals": False}
    project = {"extends": "../../tsconfig.json", "compilerOptions": options, "include": ["*.ts"]}
    await client_built()
    await compiled(
        "build/pages", sources={**sources, "tsconfig.json": json.dumps(project)}
    )  # finds the client by its name


async def test_its_own_tests_pass_against_a_real_broker(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    api = RawServer(says(201, b'{"a": 1}'))
    async with api, key_api() as keys:
        await story(identity_provider, test_clock, canaries, api, keys)
    assert [GOOD, GOOD, NEWER] == [it.headers["x-api-key"] for it in keys.seen if it.path == "/data"]
    assert api.requests
    for request in api.requests:
        lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
        assert b"POST /messages?q=1 HTTP/1.1" == lines[0]
        assert b"x-tool: 7" in lines
        assert not [line for line in lines if line.lower().startswith(b"authorization: bearer oabt.")]
    assert [{"access_token": {"acrs": {"essential": True, "value": "c1"}}}] == [
        claims for claims in claims_asked_for(identity_provider) if claims is not None
    ]


async def story(idp: IdentityProvider, clock: TestClock, canaries: Canaries, api: RawServer, keys: KeyApi) -> None:
    access = ApiAccess((ApiHost("127.0.0.1", api.port, "http"),))
    owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
    desk = user_app(idp, "desk", api=access, owner=owner, several_accounts=True)
    apps = [user_app(idp, api=access), user_app(idp, "files"), desk, global_app(idp), key_app(keys)]
    await compiled("tsconfig.json", TESTS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=(host,))
        async with (
            running(idp, apps, clock=clock, tools=TOOLS, settings=settings) as harness,
            listening(harness.broker.asgi.api, listener) as url,
            person(harness, keys) as agrees,
        ):
            _, key = await harness.broker.api_keys.create("typescript", ["runtime", "operator"])
            canaries.add(key, "API key")
            env = {
                "OAUTHBROKER_URL": url,
                "OAUTHBROKER_API_KEY": key.reveal(),
                "PERSON_URL": agrees,
                "PROVIDER_API_URL": api.url,
                "KEYS_API_URL": keys.url(""),
            }
            files = sorted(str(file.relative_to(HOME)) for file in (TESTS).glob("*.test.js"))
            said = await node("--test", "--test-reporter=tap", *files, **env)
            canaries.look(said, "what Node printed")
    assert "# skipped 0" in said, said
    assert "# fail 0" in said, said


async def test_the_packed_client_is_built_and_has_no_dependency() -> None:
    await client_built()
    said = await node(
        "--input-type=module", "-e", "import('@oauthbroker/client').then((m) => console.log(Object.keys(m).join()))"
    )
    assert {"createOAuth", "createRuntime", "narrow", "BrokerError"} <= set(said.strip().split(","))
    assert "dependencies" not in (HOME / "package.json").read_text("utf-8").replace("devDependencies", "")
