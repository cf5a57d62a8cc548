"""After a 401 the request is sent once more, signed anew with the credential that is there by then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from oauthbroker.injection.injector import ForwardedAnswer, Injector, ToolRequest
from oauthbroker.injection.targets import target_of
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential, packed
from oauthbroker.model.token_results import Ready
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits
from tests.kit.samples import app_with

SIGNED = {
    "awsSigV4": {"accessKeyId": "{key}", "secretAccessKey": "s", "service": "sqs", "region": "eu-west-1"},
    "oauth1": {"consumerKey": "c", "consumerSecret": "s", "token": "{key}", "tokenSecret": "s"},
}


@dataclass
class Answer:
    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def aclose(self) -> None: ...


class Answers:
    """The transport, and the source of the first credential and the next."""

    def __init__(self) -> None:
        self.sent: list[ApiRequest] = []

    async def send(self, request: ApiRequest, _: ApiLimits) -> Any:
        self.sent.append(request)
        return Answer(401 if len(self.sent) == 1 else 200)

    async def token(self, _: Any) -> Ready:
        return ready("key-number-1")

    async def rejected(self, *_: Any) -> Ready:
        return ready("key-number-2")

    def answered(self, *_: Any) -> None: ...

    def account(self, _: Any) -> str:
        return "grant"


def ready(key: str) -> Ready:
    return Ready(access_token=packed({"key": key}), token_type="credential", expires_at=None, scopes=())


@pytest.mark.parametrize("kind", SIGNED)
async def test_the_second_try_is_signed_anew(kind: Any) -> None:
    credential = StaticCredential(
        fields=(CredentialField(name="key", title="Key"),), placement=Placement(kind=kind, texts=SIGNED[kind])
    )
    app = app_with(api=ApiAccess((ApiHost("api.example.com"),)), credential=credential)
    answers: Any = Answers()
    made = await Injector(answers, ApiLimits()).send(
        answers, target_of(app, "POST", "https://api.example.com/x"), ToolRequest(headers=[], body=b"a=1")
    )
    assert isinstance(made, ForwardedAnswer)
    said = [[value.decode() for name, value in it.headers if name == b"Authorization"] for it in answers.sent]
    assert [1, 1] == [len(each) for each in said]
    assert ["key-number-1", "key-number-2"] == [re.findall(r"key-number-\d", each[0])[0] for each in said]
    assert said[0] != said[1]
