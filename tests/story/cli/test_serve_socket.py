"""`oauthbroker serve` with the API on a Unix socket: a runtime of a known user needs no key, its tools still need a token."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from oauthbroker.client import AuthorizationRequired, BrokerError, Code, Failed, OAuth, Options, Runtime, SyncOAuth
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import BROKER, Desk, serving
from tests.kit.running_broker import turn

pytestmark = pytest.mark.slow


@pytest.fixture
def address(desk: Desk, idp: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("s") / "api"  # short enough for a socket
    caller = f"{{uid: {os.getuid()}, roles: [runtime]}}"
    api = f"  api: {{socket: {{path: {path}, mode: '0600', callers: [{caller}]}}}}\n"
    desk.write("broker", BROKER.format(base=desk.base, port=desk.port) + api)
    desk.ready_to_serve(idp)
    return f"unix:{path}"


def test_a_runtime_of_a_known_user_and_its_tools_speak_over_the_socket(
    desk: Desk, address: str, canaries: Canaries
) -> None:
    async def story() -> None:
        async with Runtime(address) as runtime, runtime.turn(turn(), tools={"Tool/none": []}) as begun:
            canaries.add(begun.token, "turn token")
            assert isinstance(await begun.oauth().get_access_token("mail"), AuthorizationRequired)
            env = begun.env_for("Tool/none")
            assert address == env["OAUTHBROKER_URL"]
            with SyncOAuth.from_env(env=env) as tool:
                failed = await asyncio.to_thread(tool.get_access_token, "mail")
            assert isinstance(failed, Failed)
            assert Code.APP_FORBIDDEN is failed.code
            with pytest.raises(BrokerError, match="notAllowed"):
                _ = [grant async for grant in runtime.grants()]

    with serving(desk):
        asyncio.run(story())


def test_without_the_socket_the_api_is_nowhere(desk: Desk, address: str) -> None:
    """Its own listener is its only one: the people's listener does not know it."""

    async def ask() -> object:
        async with OAuth(desk.base, "oabt." + "l" * 22 + "." + "s" * 43, Options(timeout=60)) as oauth:
            return await oauth.get_access_token("mail")

    with serving(desk):
        failed = asyncio.run(ask())
    assert isinstance(failed, Failed)
    assert Code.NOT_FOUND is failed.code
