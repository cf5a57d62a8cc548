"""`ctx.oauth` is one protocol: embedded and over HTTP, with and without `await`. mypy proves the four functions below."""

from __future__ import annotations

import asyncio
import inspect
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest

from oauthbroker.capability import OAuthCapability, SyncOAuthCapability
from oauthbroker.client import AuthorizationRequired, Failed, OAuth, Ready, SyncOAuth
from oauthbroker.core.errors import Code
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import TokenResult
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tokens.context import OAuthContext, SyncOAuthContext
from tests.kit.running_broker import BASE, running, turn, user_app
from tests.story.api.clients import listening


def embedded(oauth: OAuthContext) -> OAuthCapability:
    return oauth


def over_http(oauth: OAuth) -> OAuthCapability:
    return oauth


def embedded_sync(oauth: SyncOAuthContext) -> SyncOAuthCapability:
    return oauth


def over_http_sync(oauth: SyncOAuth) -> SyncOAuthCapability:
    return oauth


async def newest(oauth: OAuthCapability) -> tuple[TokenResult, TokenResult]:
    """A token, and the one after the provider's API has answered 401 to it."""
    first = await oauth.get_access_token("OAuthApp/mail", ["read"], 60)
    assert isinstance(first, Ready)
    return first, await oauth.report_rejected({"kind": "OAuthApp", "name": "mail"}, first.access_token, ["read"])


def newest_sync(oauth: SyncOAuthCapability) -> tuple[TokenResult, TokenResult]:
    first = oauth.get_access_token("OAuthApp/mail", ["read"], 60)
    assert isinstance(first, Ready)
    return first, oauth.report_rejected({"kind": "OAuthApp", "name": "mail"}, first.access_token, ["read"])


async def test_one_function_works_with_each_of_the_four(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """One broker: consent is asked for in the same class of result, and then each gets newer tokens by the others'."""
    listener = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    settings = Settings(BASE, weaken=frozenset({"plainHttpProvider"}), allowed_hosts=(host,))
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(
            running(identity_provider, [user_app(identity_provider)], clock=test_clock, settings=settings)
        )
        url = await stack.enter_async_context(listening(harness.broker.asgi.api, listener))
        begun = await harness.broker.turns.begin(turn())
        inside = harness.broker.oauth(turn())
        outside = await stack.enter_async_context(OAuth(url, begun.token))
        outside_sync = SyncOAuth(url, begun.token)
        stack.push_async_callback(asyncio.to_thread, outside_sync.close)

        both: list[OAuthCapability] = [embedded(inside), over_http(outside)]
        both_sync: list[SyncOAuthCapability] = [embedded_sync(inside.sync), over_http_sync(outside_sync)]
        asked = [await each.get_access_token("mail", ["read"]) for each in both]
        asked += [await asyncio.to_thread(each.get_access_token, "mail", ["read"]) for each in both_sync]
        assert [AuthorizationRequired] * 4 == [type(each) for each in asked]
        assert isinstance(asked[0], AuthorizationRequired)
        await harness.connect(asked[0])

        seen = [await newest(each) for each in both]
        seen += [await asyncio.to_thread(newest_sync, each) for each in both_sync]
        tokens = [each.access_token.reveal() for pair in seen for each in pair if isinstance(each, Ready)]
        order = list(dict.fromkeys(tokens))
        assert [0, 1, 1, 2, 2, 3, 3, 4] == [order.index(each) for each in tokens]
        unknown = [await each.get_access_token("nothing") for each in both]
        unknown += [await asyncio.to_thread(each.get_access_token, "nothing") for each in both_sync]
        assert [Code.OAUTH_APP_NOT_FOUND] * 4 == [each.code for each in unknown if isinstance(each, Failed)]


FOUR = {
    OAuthContext: OAuthCapability,
    OAuth: OAuthCapability,
    SyncOAuthContext: SyncOAuthCapability,
    SyncOAuth: SyncOAuthCapability,
}


@pytest.mark.parametrize("method", ["get_access_token", "report_rejected"])
@pytest.mark.parametrize("form", FOUR, ids=lambda it: it.__name__)
def test_each_takes_the_arguments_of_the_protocol_in_their_order(form: type[Any], method: str):
    """Beside them it may have keyword-only ones with a default."""
    ours, said = (inspect.signature(getattr(each, method)).parameters for each in (form, FOUR[form]))
    assert list(said) == list(ours)[: len(said)]
    assert [each.default for each in said.values()] == [ours[name].default for name in said]
    assert {inspect.Parameter.KEYWORD_ONLY} >= {each.kind for each in list(ours.values())[len(said) :]}
