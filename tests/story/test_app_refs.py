"""An app is named alike everywhere: an event's `oauthAppRef` can be handed to every call as it came."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker.results import Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.house import ALICE, House, running, turn, user_app


@pytest.fixture
async def house(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[House]:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as made:
        yield made


@pytest.mark.rule("12.5.6-7")
async def test_the_reference_of_an_event_fits_every_call(house: House) -> None:
    await house.connected("mail")
    event = await house.event()
    assert event is not None
    ref = event["payload"]["oauthAppRef"]
    assert {"kind": "OAuthApp", "name": "mail"} == ref
    for form in (ref, "OAuthApp/mail", "mail", {**ref, "apiVersion": "agents.example.io/v1alpha1"}):
        ready = await house.broker.oauth(turn()).get_access_token(form)
        assert isinstance(ready, Ready)
        assert isinstance(await house.broker.oauth(turn()).report_rejected(form, "another token"), Ready)
        assert ["mail"] == [grant.app async for grant in house.broker.grants.list(app=form)]
    assert await house.broker.revoke(ref, subject=ALICE)
    await house.connected("mail")
    assert "done" == await house.broker.grants.revoke("OAuthApp/mail", ALICE)
    await house.connected("mail")
    assert 1 == (await house.broker.grants.revoke_all(app=ref)).chosen


async def test_an_event_has_the_members_that_its_page_prints(house: House) -> None:
    await house.connected("mail")
    event = await house.event()
    assert event is not None
    page = (Path(__file__).parents[2] / "docs/embedding.md").read_text("utf-8")
    printed = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    assert printed.keys() == event.keys()
    assert printed["payload"].keys() == event["payload"].keys()
    assert printed["payload"]["oauthAppRef"].keys() == event["payload"]["oauthAppRef"].keys()
