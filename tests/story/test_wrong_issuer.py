"""An app whose issuer is wrong, or whose metadata leaves nowhere to go: the tool is told, and no person gets a link
that leads to an error page. The requests of `doctor` to providers, and its findings on issuers and audiences."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.diagnostics.findings import Finding
from oauthbroker.diagnostics.probing import probing
from oauthbroker.model.apps import App, Client, Endpoints, Owner
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Failed
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import Harness, device_app, endpoints_of, public, running, user_app
from tests.story.binding_kit import broker_login, login_app, settings_for

BASE = "https://broker.example"


def learning(idp: IdentityProvider, **changes: Any) -> App:
    """An app with only its issuer."""
    return user_app(idp, endpoints=Endpoints(issuer=idp.issuer), **changes)


def notes(harness: Harness) -> list[str]:
    said = [json.loads(line) for line in harness.log.getvalue().splitlines()]
    return [line["note"] for line in said if line.get("event") == "no links for now"]


# what the tool is told


WRONG: dict[str, Callable[[IdentityProvider], Any]] = {
    "another issuer": lambda idp: idp.script.discovery.fields(times=FOREVER, issuer=f"{idp.issuer}/"),
    "no metadata there": lambda idp: idp.script.discovery.answer(404, times=FOREVER),
    "no PKCE": lambda idp: idp.script.discovery.fields(times=FOREVER, code_challenge_methods_supported=["plain"]),
    "no authorization endpoint": lambda idp: idp.script.discovery.fields(times=FOREVER, authorization_endpoint=None),
    "pushing without a place": lambda idp: idp.script.discovery.fields(
        times=FOREVER, require_pushed_authorization_requests=True
    ),
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG)
async def test_a_tool_gets_no_link_that_leads_to_an_error_page(
    identity_provider: IdentityProvider, test_clock: TestClock, spoil: Callable[[IdentityProvider], Any]
) -> None:
    spoil(identity_provider)
    async with running(identity_provider, [learning(identity_provider)], clock=test_clock) as harness:
        for _ in range(3):
            result = await harness.ask()
            assert isinstance(result, Failed), result
            assert (Code.APP_MISCONFIGURED, False) == (result.code, result.retryable)
        assert 1 == len(notes(harness)), "the log says why, once"
        assert 0 == await harness.store.count("sessions")
        identity_provider.script.reset()
        test_clock.advance(24 * 3600 + 1)  # what a provider says of itself is good for a day
        assert 200 == (await harness.connect(await harness.ask_link())).status


async def test_a_link_that_was_open_before_is_not_given_out_again(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = learning(identity_provider)
    async with running(identity_provider, [app], clock=test_clock) as one:
        await one.ask_link()
        identity_provider.script.discovery.fields(times=FOREVER, issuer="https://other.example")
        async with running(identity_provider, [app], clock=test_clock, store=one.store) as another:
            assert isinstance(await another.ask(), Failed)


@pytest.mark.rule("12.5.1-5")
@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_provider_that_does_not_answer_is_no_reason_to_give_no_link(
    identity_provider: IdentityProvider, test_clock: TestClock, status: int
) -> None:
    """It may answer when the person follows the link."""
    identity_provider.script.discovery.answer(status, times=FOREVER)
    async with running(identity_provider, [learning(identity_provider)], clock=test_clock) as harness:
        asked = await harness.ask_link()
        identity_provider.script.reset()
        test_clock.advance(31)
        assert 200 == (await harness.connect(asked)).status
        assert [] == notes(harness)


async def test_a_wrong_issuer_of_the_brokers_own_login_is_told_the_tool_too(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    with IdentityProvider(clock=test_clock) as corp:
        more: dict[str, Any] = {"settings": settings_for(), "corp": corp, "login": broker_login(corp)}
        corp.script.discovery.fields(times=FOREVER, issuer="https://other.example")
        async with running(identity_provider, [login_app(identity_provider)], clock=test_clock, **more) as harness:
            result = await harness.ask()
            assert isinstance(result, Failed)
            assert Code.APP_MISCONFIGURED is result.code


def test_the_words_of_a_wrong_configuration_do_not_say_that_the_client_was_refused() -> None:
    """The code also stands for a wrong issuer, an endpoint that is missing and a request that was refused."""
    english, korean = (Code.APP_MISCONFIGURED.sentence(locale) for locale in ("en", "ko"))
    assert "issuer" in english
    assert "발급자" in korean
    assert "refuse" not in english
    assert "거부" not in korean


# what doctor asks and says


async def findings_of(idp: IdentityProvider, *apps: App) -> list[Finding]:
    settings = replace(public("http://127.0.0.1:8420"))
    async with probing(settings, SystemClock()) as probe:
        return await probe.providers(apps)


async def test_doctor_says_which_issuer_was_found(identity_provider: IdentityProvider) -> None:
    found = f"{identity_provider.issuer}/realms/acme"
    identity_provider.script.discovery.fields(times=FOREVER, issuer=found)
    [finding] = await findings_of(identity_provider, learning(identity_provider))
    assert "failure" == finding.severity
    assert found in finding.text
    assert found in finding.hint


@pytest.mark.parametrize("said", [None, 7, "", "no address", "https://a b", "https://x\n", "https://" + "a" * 5000])
async def test_doctor_repeats_no_issuer_that_is_no_address(identity_provider: IdentityProvider, said: object) -> None:
    identity_provider.script.discovery.fields(times=FOREVER, issuer=said)
    [finding] = await findings_of(identity_provider, learning(identity_provider))
    assert "names another issuer" in finding.text
    assert "Check endpoints.issuer." == finding.hint


USED: dict[str, tuple[Callable[[IdentityProvider], App], set[str]]] = {
    "a person's app": (user_app, {"authorize", "token", "jwks", "revoke"}),
    "one that reads userinfo": (
        lambda idp: user_app(idp, owner=replace(user_app(idp).owner, user_identity=_from_userinfo(idp))),
        {"authorize", "token", "jwks", "revoke", "userinfo"},
    ),
    "one that is never revoked": (
        lambda idp: user_app(idp, revocation=Revocation(kind="none")),
        {"authorize", "token", "jwks"},
    ),
    "one that pushes": (
        lambda idp: user_app(idp, endpoints=replace(endpoints_of(idp), pushed_authorization_url=idp.url("/par"))),
        {"authorize", "token", "jwks", "revoke", "par"},
    ),
    "one that never pushes": (
        lambda idp: user_app(
            idp,
            endpoints=replace(endpoints_of(idp), pushed_authorization_url=idp.url("/par")),
            pushed_authorization="never",
        ),
        {"authorize", "token", "jwks", "revoke"},
    ),
    "a device code": (device_app, {"device", "token", "jwks", "revoke"}),
    "a client that asks for itself": (
        lambda idp: user_app(idp, flow="clientCredentials", subject_mode="global", owner=Owner()),
        {"token", "revoke"},
    ),
}


def _from_userinfo(idp: IdentityProvider) -> Any:
    rule = user_app(idp).owner.user_identity
    return replace(rule, source="userInfo") if rule is not None else None


@pytest.mark.parametrize("make, used", USED.values(), ids=USED)
async def test_doctor_asks_only_what_the_app_uses(
    identity_provider: IdentityProvider, make: Callable[[IdentityProvider], App], used: set[str]
) -> None:
    """An endpoint that only another flow has may be down, or wrong, for all that this app cares."""
    identity_provider.par = "offered"
    app = make(identity_provider)
    [finding] = await findings_of(identity_provider, app)
    assert "ok" == finding.severity
    asked = {seen.endpoint for seen in identity_provider.requests}
    assert used == asked - {"discovery"}
    assert ("discovery" in asked) is (app.flow != "clientCredentials")


@pytest.mark.parametrize(
    "audience, says", [("issuer", "the issuer"), ("tokenEndpoint", "the token endpoint"), ("endpoint", "endpoint that")]
)
async def test_doctor_says_whom_an_assertion_is_for(
    identity_provider: IdentityProvider, audience: Any, says: str
) -> None:
    client = Client("client-mail", Secret("a key"), "private_key_jwt", assertion_audience=audience)
    first, second = await findings_of(identity_provider, user_app(identity_provider, client=client))
    assert ("ok", "ok") == (first.severity, second.severity)
    assert says in second.text
    assert "client.assertionAudience" in second.text
    assert not [it for it in await findings_of(identity_provider, user_app(identity_provider)) if "audience" in it.text]


@pytest.mark.rule("12.5.1-5")
async def test_an_app_with_all_its_endpoints_sends_no_request_before_it_gives_a_link(
    identity_provider: IdentityProvider,
) -> None:
    identity_provider.script.discovery.fields(times=FOREVER, issuer="https://other.example")
    async with running(identity_provider, [user_app(identity_provider)]) as harness:
        assert isinstance(await harness.ask(), AuthorizationRequired)
        assert 0 == identity_provider.count("discovery")
