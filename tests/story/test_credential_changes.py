"""What becomes of a credential in transcripts and lists, and of a stored one when its app changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.injection.errors import InjectionError
from oauthbroker.model.apps import App
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.provider_api import ApiAccess, ApiHost, ConnectedHost
from oauthbroker.model.static_credential import CredentialField, Placement, basic_of
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records.specification_form import session_record
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn
from tests.story.keys_kit import GOOD, HEADER, KeyApi, asked_for, key_app, sent, type_key, with_key

BASIC = Placement(kind="basic", texts={"username": "{apiKey}", "password": "x"})


@pytest.fixture
async def harness(api: KeyApi, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with IdentityProvider(clock=test_clock) as idp, running(idp, [key_app(api)], clock=test_clock) as harness:
        yield harness


async def reloaded(harness: Harness, app: App) -> None:
    await harness.broker.reload(replace(harness.broker.bundle, apps={app.name: app}))


async def test_the_record_of_its_session_speaks_of_no_code_flow(harness: Harness, api: KeyApi) -> None:
    record = session_record(await harness.session(await asked_for(harness, api)))
    assert {"type": "static_credential"} == record["spec"]["flow"]


@pytest.mark.parametrize("placement", [HEADER, BASIC])
async def test_each_value_that_a_request_carries_goes_out_of_transcripts(
    api: KeyApi, test_clock: TestClock, placement: Placement
) -> None:
    app = key_app(
        api,
        placement=placement,
        verification=None,
        owner=replace(key_app(api).owner, binding="localOperator", user_identity=None),
    )
    async with IdentityProvider(clock=test_clock) as idp, running(idp, [app], clock=test_clock) as harness:
        await with_key(harness, api)
        for _ in range(3):
            await sent(harness, api)
            assert "it was ***, see" == harness.broker.scrub(f"it was {GOOD}, see")
        if placement is BASIC:
            shown = basic_of({"username": GOOD, "password": "x"})
            assert "Basic ***" == harness.broker.scrub(f"Basic {shown}")


async def test_a_field_that_its_app_has_by_now_is_asked_for(harness: Harness, api: KeyApi) -> None:
    await with_key(harness, api)
    app = harness.broker.bundle.apps["meter"]
    assert app.credential is not None
    fields = (*app.credential.fields, CredentialField(name="appKey", title="Application key"))
    placement = replace(HEADER, texts={"X-Api-Key": "{apiKey}", "X-App-Key": "{appKey}"})
    await reloaded(harness, replace(app, credential=replace(app.credential, fields=fields, placement=placement)))
    assert ["consent"] == [it.needs async for it in harness.broker.grants.list(app="meter")]
    asked = await asked_for(harness, api)
    assert "noGrant" == asked.reason
    assert "{appKey}" not in repr(api.seen)
    typed: dict[str, Any] = {"credential.apiKey": GOOD, "credential.appKey": "app-key-0001"}
    page = await type_key(harness, asked, **typed)
    assert "is connected" in page.text
    assert 200 == (await sent(harness, api)).status_code
    assert "app-key-0001" == api.seen[-1].headers["x-app-key"]


ELSEWHERE, THIRD = ApiHost("localhost", 1, "http"), ApiHost("api.example.com")


@pytest.mark.parametrize(
    ("before", "after", "is_asked"),
    [
        ([], [ELSEWHERE], True),
        ([ELSEWHERE], [THIRD], True),
        ([ELSEWHERE], [], True),
        ([ELSEWHERE, THIRD], [THIRD, ELSEWHERE], False),
        ([THIRD], [THIRD], False),
    ],
)
async def test_a_key_goes_to_no_host_that_its_page_did_not_name(
    harness: Harness, api: KeyApi, before: list[ApiHost], after: list[ApiHost], is_asked: bool
) -> None:
    app = harness.broker.bundle.apps["meter"]

    def at(*further: ApiHost) -> App:
        return replace(app, api=ApiAccess((api.host, *further), injected=True))

    await reloaded(harness, at(*before))
    await with_key(harness, api)
    await reloaded(harness, at(*after))
    assert is_asked == isinstance(await sent(harness, api), AuthorizationRequired)


@pytest.mark.parametrize("changes", [{"provider": "other"}, {"api": ApiAccess((ELSEWHERE,), injected=True)}])
async def test_a_key_is_for_its_provider_and_first_host(harness: Harness, api: KeyApi, changes: dict[str, Any]) -> None:
    await with_key(harness, api)
    app = harness.broker.bundle.apps["meter"]
    requests = len(api.seen)
    await reloaded(harness, replace(app, **changes))
    url = "http://localhost:1/data" if "api" in changes else api.url("/data")
    async with harness.broker.oauth(turn()).client("meter") as client:
        with pytest.raises(InjectionError) as refused:
            await client.get(url)
    assert isinstance(refused.value.result, AuthorizationRequired)
    assert requests == len(api.seen)


def test_a_key_is_for_the_host_of_its_connection_and_not_for_a_name_that_the_app_has_for_it(api: KeyApi) -> None:
    def registration(param: ConnectParam, site: str = "acme") -> str:
        access = ApiAccess((ConnectedHost("{site}", (param,)),), injected=True)
        return replace(key_app(api), api=access, connect_params=(param,)).at({"site": site}).registration

    param = ConnectParam(name="site", within=".eu.example.com", adds_suffix=True)
    here = registration(param)
    assert here == registration(replace(param, title="Site"))
    assert here != registration(replace(param, within=".us.example.com"))
    assert here != registration(param, "other")
    assert here != registration(replace(param, pattern="b.*")), "a value that the app no longer takes"
