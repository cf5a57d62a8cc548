"""Two accounts, and two tenants, of one user with each binding and flow: a confirmation for one connects that one alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Turn
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.local_turn import SUBJECT, local_turn
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, device_app, running
from tests.story.binding_kit import (
    broker_login,
    came_back,
    confirm_browser,
    confirming_app,
    corp_turn,
    of_alice,
    settings_for,
)
from tests.story.device_kit import prompt_of, world

BOTH = {"work": "alice", "private": "bob"}
KINDS = pytest.mark.parametrize("kind", ["account", "tenant"])
BINDINGS = ["brokerLogin", "channelCode", "runtimeConfirm"]


def listing(of: Turn, app: str = "mail") -> Turn:
    assert of.auth is not None
    return replace(of, auth=replace(of.auth, accounts={f"OAuthApp/{app}": [*BOTH]}))


@asynccontextmanager
async def bound(
    idp: IdentityProvider, clock: TestClock, binding: str, kind: str
) -> AsyncIterator[tuple[Harness, Turn]]:
    """A broker with this binding, and the turn of a user who has two accounts, or is at home at two tenants."""
    app = confirming_app(idp, binding, several_accounts=kind == "account")
    if kind == "tenant":
        there = replace(app.endpoints, authorization_url=idp.url("/authorize") + "?tenant={tenant}")
        app = replace(app, connect_params=(ConnectParam(name="tenant", title="Your tenant"),), endpoints=there)
    async with IdentityProvider(clock=clock) as corp:
        by_login = binding == "brokerLogin"
        more: dict[str, Any] = {"corp": corp, "login": broker_login(corp)} if by_login else {}
        of = listing(corp_turn() if by_login else of_alice())
        async with running(idp, [app], clock=clock, settings=settings_for(), **more) as harness:
            yield harness, of


async def connected(harness: Harness, of: Turn, account: str, person: str) -> Ready:
    asked = await harness.ask(of=of, account=account)
    assert isinstance(asked, AuthorizationRequired), asked
    page = await came_back(harness, asked, harness.browser(), person)
    assert 200 == page.status, page.text
    if harness.corp is None:
        assert of.auth is not None
        outcome = await confirm_browser(harness, page, of.auth.subjects["user"], of)
        assert "completed" == outcome.status
    ready = await harness.ask(of=of, account=account)
    assert isinstance(ready, Ready), ready
    return ready


@KINDS
@pytest.mark.parametrize("binding", BINDINGS)
async def test_each_account_is_confirmed_for_itself(
    identity_provider: IdentityProvider, test_clock: TestClock, binding: str, kind: str
) -> None:
    async with bound(identity_provider, test_clock, binding, kind) as (harness, of):
        tokens = {}
        for account, person in BOTH.items():
            tokens[account] = (await connected(harness, of, account, person)).access_token
        assert tokens["work"] != tokens["private"]
        for account in BOTH:
            again = await harness.ask(of=of, account=account)
            assert isinstance(again, Ready)
            assert tokens[account] == again.access_token
            assert again.provider_data.get("tenant") == (account if kind == "tenant" else None)


@KINDS
@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_confirmed_account_leaves_the_request_for_the_other_open(
    identity_provider: IdentityProvider, test_clock: TestClock, binding: str, kind: str
) -> None:
    async with bound(identity_provider, test_clock, binding, kind) as (harness, of):
        assert isinstance(await harness.ask(of=of, account="private"), AuthorizationRequired)
        await connected(harness, of, "work", "alice")
        assert ["private"] == [each.account for each in await harness.broker.sessions.list(status="pending")]
        assert isinstance(await harness.ask(of=of, account="private"), AuthorizationRequired)


async def test_a_device_code_is_for_the_account_that_was_asked_for(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    owner = replace(device_app(identity_provider).owner, binding="localOperator")
    app = device_app(identity_provider, several_accounts=True, owner=owner)
    here = world(identity_provider, test_clock, tmp_path, app)
    broker, of = here.start(), listing(local_turn(), "tv")
    codes = {}
    for account in BOTH:
        asked = await broker.broker.oauth(of).get_access_token(f"tv@{account}")
        assert isinstance(asked, AuthorizationRequired), asked
        codes[account] = prompt_of(asked)
    assert codes["work"].user_code != codes["private"].user_code
    for account, person in BOTH.items():
        prompt = codes[account]
        said = await here.idp.device_agree(prompt.verification_uri, prompt.user_code, person)
        assert "connected" in said
        await here.poll()
        assert isinstance(await broker.broker.oauth(of).get_access_token(f"tv@{account}"), Ready)
        versioned = await broker.parts.repository.grant(GrantKey("tv", SUBJECT, account))
        assert versioned is not None
        assert versioned.record.identity == {"alice": "idp:user:U234567", "bob": "idp:user:U345678"}[person]
