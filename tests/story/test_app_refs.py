"""An app is named alike everywhere: an event's `oauthAppRef` can be handed to every call as it came."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.token_results import Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, running, turn, user_app


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as made:
        yield made


@pytest.mark.rule("12.5.6-7")
async def test_the_reference_of_an_event_fits_every_call(harness: Harness) -> None:
    await harness.connected("mail")
    event = await harness.event()
    assert event is not None
    ref = event["payload"]["oauthAppRef"]
    assert {"kind": "OAuthApp", "name": "mail"} == ref
    ctx = harness.broker.oauth(turn())
    issued = await harness.broker.audit_trail.tail(50, app="mail")
    for form in (ref, "OAuthApp/mail", "mail", {**ref, "apiVersion": "agents.example.io/v1alpha1"}):
        assert isinstance(await ctx.get_access_token(form), Ready)
        assert "ready" == (await ctx.getAccessToken({"oauthAppRef": form}))["status"]
        assert isinstance(await ctx.report_rejected(form, "another token"), Ready)
        assert isinstance(await asyncio.to_thread(ctx.sync.get_access_token, form), Ready)
        assert ["mail"] == [grant.app async for grant in harness.broker.grants.list(app=form)]
        assert {"mail"} == {session.app for session in await harness.broker.sessions.list(app=form)}
        assert issued == (await harness.broker.audit_trail.tail(50, app=form))[: len(issued)]
        begun = await harness.broker.turns.begin(turn(), tools={"Tool/own": [ToolAuth(form)]})  # type: ignore[arg-type]
        token_holder = await harness.broker.turns.admit(begun.tool_tokens["Tool/own"].reveal())
        assert isinstance(await harness.broker.oauth_for(token_holder).get_access_token(form), Ready)
        with pytest.raises(BrokerError, match="stateUnknown"):
            await harness.broker.relay_code(turn(), "ABCD-EFGH", apps=[form])
    assert await harness.broker.revoke(ref, subject=ALICE)
    await harness.connected("mail")
    assert "done" == await harness.broker.grants.revoke("OAuthApp/mail", ALICE)
    await harness.connected("mail")
    assert 1 == (await harness.broker.grants.revoke_all(app=ref)).chosen


@pytest.mark.parametrize("ref", ["Tool/mail", "", {"kind": "Tool", "name": "mail"}, {"name": "mail", "x": 1}, 5])
async def test_what_names_no_app_is_refused_wherever_an_app_is_named(harness: Harness, ref: Any) -> None:
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: harness.broker.sessions.list(app=ref),
        lambda: harness.broker.audit_trail.tail(1, app=ref),
        lambda: harness.broker.revoke(ref, subject=ALICE),
        lambda: harness.broker.grants.revoke(ref, ALICE),
        lambda: harness.broker.grants.revoke_all(app=ref),
        lambda: harness.broker.relay_code(turn(), "ABCD-EFGH", apps=[ref]),
        lambda: harness.broker.turns.begin(turn(), tools={"Tool/own": [ToolAuth(ref)]}),
        lambda: anext(harness.broker.grants.list(app=ref)),
    ]
    for call in calls:
        with pytest.raises(BrokerError, match="requestInvalid"):
            await call()


async def test_an_event_has_the_members_that_its_page_prints(harness: Harness) -> None:
    await harness.connected("mail")
    event = await harness.event()
    assert event is not None
    page = (Path(__file__).parents[2] / "docs/embedding.md").read_text("utf-8")
    printed = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    assert printed.keys() == event.keys()
    assert printed["payload"].keys() == event["payload"].keys()
    assert printed["payload"]["oauthAppRef"].keys() == event["payload"]["oauthAppRef"].keys()
