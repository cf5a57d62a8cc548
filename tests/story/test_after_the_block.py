"""`ctx.oauth` that is used after the block of its broker: each way to a token says that the turn has ended."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from oauthbroker import RequestRefusedError
from oauthbroker.core.errors import Code
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import running, turn, user_app


@pytest.mark.parametrize("connected", [True, False])
async def test_after_the_block_of_its_broker_a_context_says_that_the_turn_has_ended(
    identity_provider: IdentityProvider, connected: bool
) -> None:
    api = ApiAccess((ApiHost("api.example.com"),))
    app = user_app(identity_provider, api=api)
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(running(identity_provider, [app]))
        oauth = harness.broker.oauth(turn())
        asked: Any = await oauth.get_access_token("mail", ["read"])
        if connected:
            await harness.connect(asked)
            asked = await oauth.get_access_token("mail", ["read"])
            assert isinstance(asked, Ready)
            assert isinstance(await oauth.get_access_token("mail", ["read"]), Ready), "answered before, and warm"
        await stack.aclose()
        results = [
            await oauth.get_access_token("mail", ["read"]),
            await oauth.get_access_token("mail", ["write"]),
            await oauth.report_rejected("mail", "a-token"),
            await oauth.missing_consent("mail", ["read"]),
        ]
        assert [Code.TURN_ENDED] * 4 == [each.code for each in results if isinstance(each, Failed)], results
        words = await oauth.getAccessToken({"oauthAppRef": {"kind": "OAuthApp", "name": "mail"}})
        assert "turnEnded" == words["error"]["code"]
        async with oauth.client("mail") as client:
            with pytest.raises(RequestRefusedError) as caught:
                await client.get("https://api.example.com/user")
        assert str(caught.value).startswith("turnEnded")
