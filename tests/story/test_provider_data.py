"""What a provider says beside its token and a tool needs: the host of its API, the id of the account."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oauthbroker.core.secret import Secret
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_results import Ready, result_from_json
from oauthbroker.providers import presets
from oauthbroker.providers.quirks import Quirks
from oauthbroker.records.grant_summary import GrantSummary
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.provider_data import visible_to_tools
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.kit.samples import NOW, app_with, grant_with, token_with
from tests.story.api.kit import Callers, a_turn

HABITS = Habits(always_scopes=("openid",), keeps=("org", "id"), tool_data=("instance_url",))
HOST, MOVED = "https://eu1.crm.example", "https://eu2.crm.example"


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    app = user_app(identity_provider, habits=HABITS)
    async with running(identity_provider, [app], clock=test_clock) as made:
        yield made


def answers_with(idp: IdentityProvider, **members: Any) -> None:
    idp.script.token.fields(times=1, **members)


async def test_a_tool_gets_what_the_preset_declares_and_nothing_else(harness: Harness) -> None:
    answers_with(harness.idp, instance_url=HOST, org={"name": "Acme"}, id="42", unknown="x")
    ready = await harness.connected("mail")
    assert {"instance_url": HOST} == ready.provider_data
    said = await harness.broker.oauth(turn()).getAccessToken({"oauthAppRef": "mail"})
    assert {"instance_url": HOST} == said["providerData"]
    again = result_from_json(said)
    assert isinstance(again, Ready)
    assert again.provider_data == ready.provider_data
    grant = await harness.grant()
    assert grant is not None
    assert {"org": {"name": "Acme"}, "id": "42", "instance_url": HOST} == grant.provider_data


async def test_members_that_a_refresh_repeats_are_replaced_and_omitted_ones_stay(harness: Harness) -> None:
    answers_with(harness.idp, instance_url=HOST, id="42")
    await harness.connected("mail")
    for said, expected in (({}, HOST), ({"instance_url": MOVED}, MOVED), ({}, MOVED)):
        harness.clock.advance(3600)
        if said:
            answers_with(harness.idp, **said)
        ready = await harness.ask("mail")
        assert isinstance(ready, Ready)
        assert {"instance_url": expected} == ready.provider_data
    grant = await harness.grant()
    assert grant is not None
    assert "42" == grant.provider_data["id"]


async def test_lists_and_the_api_have_it_too(harness: Harness) -> None:
    answers_with(harness.idp, instance_url=HOST)
    await harness.connected("mail")
    api = await Callers.of(harness)
    assert [{"instance_url": HOST}] == [
        each["providerData"] for each in (await api.operator.get("/v1/grants")).json()["grants"]
    ]
    listed = [grant async for grant in harness.broker.grants.list()]
    assert listed == [GrantSummary.from_json(grant.to_json()) for grant in listed]
    begun = await api.begin({"turn": a_turn()["turn"]})
    holder = api.holding(begun["turnToken"])
    said = (await holder.post("/v1/tokens", {"oauthAppRef": "mail"}, allow=["access token"])).json()
    assert {"instance_url": HOST} == said["providerData"]


async def test_a_token_without_any_has_no_such_member(harness: Harness) -> None:
    await harness.connected("mail")
    assert "providerData" not in await harness.broker.oauth(turn()).getAccessToken({"oauthAppRef": "mail"})


TOKENS = token_with(refresh_token=Secret("a-refresh-token"))
NOT_SHOWN: list[Any] = [
    None,
    {"host": HOST},
    [HOST],
    "x" * 3000,
    "an-access-token",
    "https://crm.example/?access=an-access-token",
    "a-refresh-token",
]


@pytest.mark.case("44")
@pytest.mark.parametrize("value", NOT_SHOWN, ids=lambda value: repr(value)[:40])
def test_no_tree_and_no_token_is_told_under_any_member_name(value: Any) -> None:
    app = app_with(habits=HABITS)
    assert {} == visible_to_tools(app, grant_with(token=TOKENS, provider_data={"instance_url": value}))
    assert {"instance_url": HOST} == visible_to_tools(
        app, grant_with(token=TOKENS, provider_data={"instance_url": HOST})
    )


@pytest.mark.parametrize("name", ["access_token", "refreshToken", "client_secret", "Password", "assertion", "code"])
def test_nothing_that_is_named_like_a_secret_can_be_declared(name: str) -> None:
    with pytest.raises(ValidationError, match="named like a secret"):
        Quirks.model_validate({"toolData": [name]})


@pytest.mark.parametrize(
    "provider, member", [("salesforce", "instance_url"), ("zoho", "api_domain"), ("pipedrive", "api_domain")]
)
def test_a_preset_whose_api_has_a_host_for_each_account_tells_it(provider: str, member: str) -> None:
    preset = presets()[provider]
    assert [member] == preset.tool_data
    grant = grant_with(provider=provider, provider_data={member: HOST, "other": "x"})
    app = app_with(habits=preset.habits())
    assert (
        {member: HOST} == visible_to_tools(app, grant) == visible_to_tools(None, grant)
    )  # where only the store is at hand
    assert {member: HOST} == GrantView.of(grant, None, NOW).provider_data


def test_a_preset_tells_only_members_that_it_keeps() -> None:
    assert {} == {
        name: found for name, preset in presets().items() if (found := set(preset.tool_data) - set(preset.keeps))
    }


@given(
    st.dictionaries(st.sampled_from(["instance_url", "id", "x"]), st.text() | st.integers() | st.booleans() | st.none())
)
def test_only_declared_members_are_ever_told(data: dict[str, Any]) -> None:
    reported = visible_to_tools(app_with(habits=HABITS), replace(grant_with(), provider_data=data))
    assert reported.items() <= data.items()
    assert reported.keys() <= {"instance_url"}
