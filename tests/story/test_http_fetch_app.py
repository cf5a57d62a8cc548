"""`http-fetch` with an app: the request carries the user's token, and the tool does not see it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from oauthbroker import AuthorizationRequiredError, RequestRefusedError
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tools.base.http_fetch import handlers
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.unit.protocol.kit import RawServer, says
from tests.unit.tools.contexts import authorized

TOOLS = {"Tool/http-fetch": (ToolAuth("mail", ("read",), injected=True),)}


@pytest.fixture
async def api() -> AsyncIterator[RawServer]:
    async with RawServer(says(200, b'{"a": 1}', content_type="application/json")) as server:
        yield server


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock, api: RawServer) -> AsyncIterator[Harness]:
    access = ApiAccess((ApiHost("127.0.0.1", api.port, "http"),), ("GET", "POST"))
    apps = [user_app(identity_provider, api=access)]
    async with running(identity_provider, apps, clock=test_clock, tools=TOOLS, background=False) as made:
        yield made


async def test_the_request_carries_the_token_of_the_user(harness: Harness, api: RawServer) -> None:
    token = (await harness.connected()).access_token.reveal()
    ctx = authorized(harness.broker.oauth(turn(), "Tool/http-fetch"))
    url = f"http://127.0.0.1:{api.port}/x"
    found = await handlers["get"](ctx, {"url": url, "app": "OAuthApp/mail"})
    assert {"status": 200, "contentType": "application/json", "truncated": False, "body": '{"a": 1}'} == found
    posted = await handlers["post"](ctx, {"url": url, "app": "OAuthApp/mail", "body": {"b": 2}})
    assert 200 == posted["status"]
    assert [True, True] == [f"authorization: bearer {token}".lower().encode() in head.lower() for head in api.requests]


async def test_without_consent_the_user_is_asked(harness: Harness, api: RawServer) -> None:
    ctx = authorized(harness.broker.oauth(turn(), "Tool/http-fetch"))
    with pytest.raises(AuthorizationRequiredError):
        await handlers["get"](ctx, {"url": f"http://127.0.0.1:{api.port}/", "app": "OAuthApp/mail"})
    assert [] == api.requests


async def test_another_host_gets_no_token(harness: Harness, api: RawServer) -> None:
    await harness.connected()
    ctx = authorized(harness.broker.oauth(turn(), "Tool/http-fetch"))
    for url, app in (
        (f"http://127.0.0.2:{api.port}/", "OAuthApp/mail"),
        (f"http://127.0.0.1:{api.port}/", "OAuthApp/x"),
    ):
        with pytest.raises(RequestRefusedError):
            await handlers["get"](ctx, {"url": url, "app": app})
    assert [] == api.requests
