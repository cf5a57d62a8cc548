"""An answer repeats no token that this process sent lately for the same account."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.core.secret import Secret
from oauthbroker.injection.injector import MOST_MASKED, ForwardedAnswer, Injector, ToolRequest
from oauthbroker.injection.targets import target_of
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.token_results import Ready
from oauthbroker.protocol.network.api_transport import ApiLimits
from oauthbroker.protocol.network.transport import TransportFailed
from tests.kit.samples import app_with

APP = app_with(api=ApiAccess((ApiHost("api.example.com"),)))
TARGET = target_of(APP, "GET", "https://api.example.com/x")


class Api:
    """The transport, and the source of one token after another. Its answers have every token so far."""

    def __init__(self) -> None:
        self.sent, self.now, self.status, self.headers, self.fails = list[str](), "grant", 200, (), False

    async def send(self, *_: Any) -> Any:
        if self.fails:
            raise TransportFailed("lost", sent=True)
        return self

    async def token(self, _: Any) -> Ready:
        self.sent.append(f"token-number-{len(self.sent):03}")
        return Ready(access_token=Secret(self.sent[-1]), token_type="Bearer", expires_at=None, scopes=())

    async def chunks(self) -> Any:
        yield " ".join(self.sent).encode()

    async def aclose(self) -> None: ...

    def answered(self, *_: Any) -> None: ...

    def account(self, _: Any) -> str:
        return self.now


async def told(injector: Injector, api: Any) -> list[str]:
    """Return the tokens that a tool finds in the next answer."""
    answer = await injector.within(None).send(api, TARGET, ToolRequest(headers=[]))
    assert isinstance(answer, ForwardedAnswer)
    text = b"".join([piece async for piece in answer.chunks()]).decode()
    return [each for each in text.split() if each.strip("*")]


async def test_as_many_of_the_last_tokens_of_an_account_are_masked_as_have_a_place() -> None:
    api: Any = Api()
    injector = Injector(api, ApiLimits())
    assert [] == [each for _ in range(MOST_MASKED) for each in await told(injector, api)]
    assert api.sent[:1] == await told(injector, api)


async def test_a_token_whose_request_got_no_answer_is_masked_in_the_next_one() -> None:
    api: Any = Api()
    injector = Injector(api, ApiLimits())
    api.fails = True
    with pytest.raises(TransportFailed):
        await told(injector, api)
    api.fails = False
    assert [] == await told(injector, api)


async def test_each_account_has_its_own() -> None:
    api: Any = Api()
    injector = Injector(api, ApiLimits())
    await told(injector, api)
    api.now = "another"
    assert api.sent[:1] == await told(injector, api)
