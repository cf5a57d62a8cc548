"""The request that checks a static credential: where it goes, and what its answer says of the credential."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, IdentityRule, Owner
from oauthbroker.model.provider_api import AccountHost, ApiAccess, ApiHost
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential, Verification, packed
from oauthbroker.protocol.credential_check import CredentialChecks
from oauthbroker.protocol.network.api_request import ApiRequest
from tests.kit.samples import app_with

KEY = packed({"key": "s3cret"})
FIRST = ApiHost("api.example.com")


class Api:
    """Answers each request with a status and a body in two pieces, or with an error."""

    def __init__(self, status: int = 200, body: bytes = b"{}", failure: BrokerError | None = None) -> None:
        self.status, self.body, self.failure = status, body, failure
        self.requests, self.closed = list[ApiRequest](), 0

    async def send(self, request: ApiRequest, limits: object) -> Any:
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body[:1]
        yield self.body[1:]

    async def aclose(self) -> None:
        self.closed += 1


def app_of(*hosts: Any, **verification: Any) -> App:
    placement = Placement(kind="headers", texts={"X-Api-Key": "{key}"})
    fields = (CredentialField(name="key", title="Key"),)
    check = Verification(path="/me", **verification)
    credential = StaticCredential(fields=fields, placement=placement, verification=check)
    owner = Owner(user_identity=IdentityRule("userInfo", "acme:user:{id}"))
    return app_with(credential=credential, api=ApiAccess(hosts=hosts or (FIRST,)), owner=owner)


async def owner_of(app: App, api: Any) -> str | None:
    return (await CredentialChecks(api).owner_of(app, KEY)).user_identity


async def refused(app: App, api: Any) -> Code:
    with pytest.raises(BrokerError) as raised:
        await owner_of(app, api)
    return raised.value.code


async def test_the_credential_goes_to_the_first_host_and_the_answer_names_its_owner() -> None:
    api = Api(body=b'{"id": "U1"}')
    assert "acme:user:U1" == await owner_of(app_of(FIRST, ApiHost("other.example.com")), api)
    (request,) = api.requests
    assert ("GET", "https", "api.example.com", 443, "/me") == (
        request.method, request.scheme, request.host, request.port, request.path,
    )  # fmt: skip
    assert (b"X-Api-Key", b"s3cret") in request.headers
    assert 1 == api.closed


async def test_a_check_may_have_a_host_of_its_own() -> None:
    api = Api(body=b'{"id": "U1"}')
    await owner_of(app_of(host="sts.example.com"), api)
    assert ["sts.example.com"] == [each.host for each in api.requests]


async def test_without_a_certain_host_no_credential_leaves() -> None:
    api = Api()
    assert Code.APP_MISCONFIGURED is await refused(app_of(AccountHost("instance", "example.com")), api)
    assert [] == api.requests


async def test_without_a_check_nothing_is_asked_and_nothing_known() -> None:
    app, api = app_of(), Api()
    assert app.credential is not None
    assert None is await owner_of(replace(app, credential=replace(app.credential, verification=None)), api)
    assert [] == api.requests


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (199, Code.CREDENTIAL_UNCHECKED),
        (300, Code.CREDENTIAL_UNCHECKED),
        (401, Code.CREDENTIAL_REFUSED),
        (403, Code.CREDENTIAL_REFUSED),
        (404, Code.CREDENTIAL_UNCHECKED),
        (422, Code.CREDENTIAL_REFUSED),
        (500, Code.CREDENTIAL_UNCHECKED),
    ],
)
async def test_the_status_says_whether_the_credential_is_refused_or_only_unchecked(status: int, code: Code) -> None:
    assert code is await refused(app_of(refused=(422,)), Api(status))


async def test_an_answer_without_an_account_identifies_no_user() -> None:
    assert Code.SUBJECT_UNVERIFIABLE is await refused(app_of(), Api(body=b"[]"))


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Code.PROVIDER_UNREACHABLE, Code.CREDENTIAL_UNCHECKED),
        (Code.APP_MISCONFIGURED, Code.APP_MISCONFIGURED),
        (Code.REQUEST_INVALID, Code.REQUEST_INVALID),
    ],
)
async def test_where_no_answer_came_the_credential_is_unchecked_unless_the_fault_is_ours(
    failure: Code, code: Code
) -> None:
    assert code is await refused(app_of(), Api(failure=BrokerError(failure)))
