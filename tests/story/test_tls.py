"""Case 35 through the story: an endpoint whose certificate is bad gets nothing, and nothing in the configuration helps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from oauthbroker.config.written.resource_specs import models_in
from oauthbroker.core.errors import Code
from oauthbroker.diagnostics.probing import probing
from oauthbroker.model.apps import App, IdentityRule, Owner
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.testing import Authority, Browser, IdentityProvider, TestClock, leave
from oauthbroker.testing.authority import Fault
from oauthbroker.wiring import foundation
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, Harness, endpoints_of, running, user_app
from tests.kit.written_forms import SPECS
from tests.story.client_credentials_kit import MACHINE, machine_app, team_turn

pytestmark = pytest.mark.case("35")
FAULTS: dict[Fault, str] = {
    "expired": "it has expired by this machine's clock",
    "notYetValid": "it is not valid yet by this machine's clock",
    "wrongHost": "it is for another host",
    "otherAddress": "it is for another host",
    "selfSigned": "it is signed by itself",
}


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """One that our brokers trust for every request, so that a certificate is refused for its own fault."""
    authority = Authority(tmp_path)
    monkeypatch.setattr(Trusting, "ca", authority.file.read_text())
    monkeypatch.setattr(foundation, "Transport", Trusting)
    return authority


class Trusting(Transport):
    ca = ""

    async def send(self, request: ProviderRequest, **bounds: Any) -> ProviderResponse:
        return await super().send(replace(request, ca=self.ca), **bounds)


@asynccontextmanager
async def impostor(authority: Authority, fault: Fault) -> AsyncIterator[IdentityProvider]:
    """Who listens where an endpoint is said to be, with a certificate that must not be accepted."""
    async with IdentityProvider(tls=authority.issue(fault), clock=TestClock()) as there:
        yield there


def lines(harness: Harness, route: str) -> list[dict[str, Any]]:
    said = [json.loads(line) for line in harness.log.getvalue().splitlines()]
    return [line for line in said if line.get("route") == route and "code" in line]


def moved(app: App, **endpoints: str) -> App:
    return replace(app, endpoints=replace(app.endpoints, **endpoints))


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_code_is_not_sent_to_an_endpoint_with_a_bad_certificate(
    identity_provider: IdentityProvider, authority: Authority, fault: Fault
) -> None:
    async with impostor(authority, fault) as there:
        app = moved(user_app(identity_provider), token_url=there.url("/token"))
        async with running(identity_provider, [app]) as harness:
            asked = await harness.ask_link()
            assert_error_page(await harness.connect(asked), Code.PROVIDER_UNREACHABLE)
            assert (None, Code.PROVIDER_UNREACHABLE) == (await harness.grant(), (await harness.session(asked)).failure)
            assert ["providerUnreachable"] == [event["payload"]["code"] for event in await harness.events()]
            [line] = lines(harness, "/oauth/callback/mail")
            assert f"TLS: the provider's certificate is refused, {FAULTS[fault]}" == line["note"]
        assert [] == there.requests


async def test_a_refresh_token_is_not_sent_either_and_nothing_is_lost(
    identity_provider: IdentityProvider, test_clock: TestClock, authority: Authority
) -> None:
    """It surely was not sent, so it is as good as before, and no intent lies about."""
    app = user_app(identity_provider)
    async with impostor(authority, "expired") as there:
        bad = moved(app, refresh_url=there.url("/token"))
        async with running(identity_provider, [bad], clock=test_clock) as harness:
            await harness.connected()
            before = await harness.grant()
            test_clock.advance(3600)
            for _ in range(3):
                result = await harness.ask()
                assert isinstance(result, Failed)
                assert (Code.PROVIDER_UNREACHABLE, True) == (result.code, result.retryable)
            after = await harness.grant()
            assert before is not None
            assert after is not None
            assert (before.token, None) == (after.token, after.refresh_state.intent)
            assert "it has expired" in harness.log.getvalue()
        assert [] == there.requests


async def test_neither_is_a_clients_own_secret(identity_provider: IdentityProvider, authority: Authority) -> None:
    async with impostor(authority, "selfSigned") as there:
        app = moved(machine_app(identity_provider), token_url=there.url("/token"))
        async with running(identity_provider, [app]) as harness:
            result = await harness.ask(MACHINE, None, team_turn())
            assert isinstance(result, Failed)
            assert Code.PROVIDER_UNREACHABLE is result.code
        assert [] == there.requests


@pytest.mark.parametrize("endpoint", ["jwks_url", "user_info_url", "pushed_authorization_url", "revoke_url"])
async def test_every_other_endpoint_is_held_to_the_same(
    identity_provider: IdentityProvider, authority: Authority, endpoint: str
) -> None:
    async with impostor(authority, "wrongHost") as there:
        app = moved(user_app(identity_provider), **{endpoint: there.url("/x")})
        if endpoint == "user_info_url":
            owner = Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))
            app = replace(app, owner=owner)
        async with running(identity_provider, [app]) as harness:
            asked = await harness.ask_link()
            if endpoint == "revoke_url":
                await harness.connect(asked)
                await harness.broker.revoke("mail", subject=ALICE)
                grant = await harness.grant()
                assert grant is not None
                assert "pending" == grant.revocation
            else:
                page = await (
                    leave(harness.browser(), asked.authorization_url)
                    if endpoint.startswith("pushed")
                    else harness.connect(asked)
                )
                assert_error_page(page, Code.PROVIDER_UNREACHABLE)
        assert [] == there.requests


async def test_discovery_is_held_to_the_same(identity_provider: IdentityProvider, authority: Authority) -> None:
    async with impostor(authority, "otherAddress") as there:
        app = user_app(identity_provider)
        app = replace(app, endpoints=replace(app.endpoints, issuer=there.base_url, token_url=""))
        async with running(identity_provider, [app]) as harness:
            page = await harness.browser().open((await harness.ask_link()).authorization_url)
            assert_error_page(page, Code.PROVIDER_UNREACHABLE)
        assert [] == there.requests


USERINFO = Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))


@pytest.mark.parametrize("discovers", [False, True])
async def test_an_app_with_an_authority_of_its_own_reaches_every_endpoint_by_it(
    test_clock: TestClock, tmp_path: Path, discovers: bool
) -> None:
    """The same story by TLS from end to end: metadata, keys, a pushed request, token, userinfo, refresh, revocation. An
    app beside it that does not name the authority gets nowhere, and learns nothing from the other's connections."""
    authority = Authority(tmp_path)
    async with IdentityProvider(tls=authority.issue(), clock=test_clock) as idp:
        endpoints = replace(endpoints_of(idp), pushed_authorization_url=idp.url("/par"))
        if discovers:
            endpoints = replace(endpoints, issuer=idp.issuer, token_url="", jwks_url="")
        app = user_app(idp, endpoints=endpoints, owner=USERINFO, pushed_authorization="required")
        app = replace(app, provider_ca=authority.file.read_text())
        beside = replace(user_app(idp, "beside", endpoints=endpoints, owner=USERINFO), pushed_authorization="required")
        async with running(idp, [app, beside], clock=test_clock) as harness:
            browser = Browser(apps={harness.origin: harness.broker.asgi.app}, trust=authority.file)
            await harness.connect(await harness.ask_link(), browser=browser)
            test_clock.advance(3600)
            assert isinstance(await harness.ask(), Ready)
            await harness.broker.revoke("mail", subject=ALICE)
            paths = {request.path for request in idp.requests}
            assert {"/par", "/token", "/userinfo", "/revoke"} <= paths
            assert discovers is any("well-known" in path for path in paths)
            asked = await harness.ask_link("beside")
            page = await (
                harness.browser().open(asked.authorization_url)
                if discovers
                else leave(harness.browser(), asked.authorization_url)
            )
            assert_error_page(page, Code.PROVIDER_UNREACHABLE)
            assert "its authority is not trusted here" in harness.log.getvalue()


async def test_doctor_asks_with_the_authority_of_each_app(test_clock: TestClock, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = Settings(weaken=frozenset({"plainHttpProvider"}))
    async with IdentityProvider(tls=authority.issue(), clock=test_clock) as idp, probing(settings, test_clock) as probe:
        app, beside = user_app(idp), user_app(idp, "beside")
        found = await probe.providers([replace(app, provider_ca=authority.file.read_text()), beside])
    severities = {(finding.about, finding.severity) for finding in found}
    assert ("mail", "ok") in severities
    assert ("beside", "failure") in severities
    assert ("mail", "failure") not in severities


def fields(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, info in model.model_fields.items():
        found |= {name}.union(*(fields(inner) for inner in models_in(info.annotation)))
    return found


MORE_TRUST = {"trusted_proxies", "provider_ca"}  # who speaks for clients; the authorities beside the system's
OF_KEYS = {"verify"}  # the request that checks a typed key


def test_no_setting_speaks_of_verification() -> None:
    """What cannot be written cannot be switched off. `weaken` has one word, and TLS stays verified under it: the
    brokers of the stories above all have it."""
    words = ("tls", "ssl", "verif", "insecure", "cert", "trust", "authority", "_ca")
    names = set().union(*(fields(model) for model in SPECS.values())) - MORE_TRUST - OF_KEYS
    assert set() == {name for name in names if any(word in name for word in words)}
