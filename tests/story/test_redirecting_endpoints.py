"""An endpoint that redirects is said to redirect, and where: in the operator's log, without a word of the request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.model.apps import Endpoints
from oauthbroker.testing import Canaries, IdentityProvider, TestClock, leave
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import ALICE, Harness, device_app, endpoints_of, global_app, running, user_app

PLACE = "https://login.example/oauth/v2/.../form"


def to_another_place(idp: IdentityProvider, canaries: Canaries, *endpoints: str) -> None:
    text = canaries.mint("redirect").reveal()
    for name in endpoints:
        getattr(idp.script, name).redirect(f"https://login.example/oauth/v2/{text}/form?why={text}", 302, times=FOREVER)


def notes(harness: Harness) -> list[str]:
    return [json.loads(line).get("note", "") for line in harness.log.getvalue().splitlines()]


def assert_said(harness: Harness, endpoint: str) -> None:
    said = f"the {endpoint} endpoint redirects to {PLACE}, which is not followed"
    assert any(said in note for note in notes(harness)), notes(harness)


@pytest.mark.case("22")
@pytest.mark.parametrize(
    ("script", "endpoint", "changes"),
    [
        ("token", "token", {}),
        ("jwks", "key set", {}),
        ("discovery", "metadata", {"endpoints": None}),
        ("par", "pushed authorization", {}),
    ],
)
async def test_a_consent_says_which_endpoint_redirects(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    canaries: Canaries,
    script: str,
    endpoint: str,
    changes: dict[str, Any],
) -> None:
    idp = identity_provider
    if "endpoints" in changes:
        changes = {"endpoints": Endpoints(issuer=idp.issuer)}
    if script == "par":
        changes = {"endpoints": replace(endpoints_of(idp), pushed_authorization_url=idp.url("/par"))}
    async with running(idp, [user_app(idp, **changes)], clock=test_clock) as harness:
        to_another_place(idp, canaries, script)
        asked = await harness.ask()
        if asked.status == "authorization_required":
            person = harness.browser()
            page = await leave(person, asked.authorization_url)
            if page.status == 200:
                page = await harness.connect(asked, browser=person)
            assert page.status >= 400
        assert_said(harness, endpoint)


@pytest.mark.case("22")
async def test_userinfo_and_revocation_say_that_they_redirect(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    async with running(identity_provider, [global_app(identity_provider)], clock=test_clock) as harness:
        to_another_place(identity_provider, canaries, "userinfo", "revoke")
        assert 502 == (await harness.connect(await harness.ask_link("team"))).status
        assert_said(harness, "userinfo")


@pytest.mark.case("22")
async def test_a_refresh_and_a_revocation_say_that_they_redirect(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        await harness.connected()
        to_another_place(identity_provider, canaries, "refresh", "revoke")
        test_clock.advance(7200)
        assert "error" == (await harness.ask()).status
        assert_said(harness, "token")
        await harness.broker.revoke("mail", subject=ALICE)
        assert_said(harness, "revocation")


@pytest.mark.case("22")
async def test_a_device_code_says_which_endpoint_redirects(
    identity_provider: IdentityProvider, test_clock: TestClock, canaries: Canaries
) -> None:
    async with running(identity_provider, [device_app(identity_provider)], clock=test_clock) as harness:
        to_another_place(identity_provider, canaries, "device")
        assert "error" == (await harness.ask("tv")).status
        assert_said(harness, "device authorization")
