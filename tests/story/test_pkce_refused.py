"""An app whose provider refuses PKCE: its operator says so, and a code of another person still connects nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App, Endpoints, IdentityRule, Owner
from oauthbroker.model.provider_habits import Habits
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.callback_pages import assert_error_page
from tests.kit.running_broker import ALICE, BOB, Harness, endpoints_of, running, turn, user_app

BY_ACCOUNT = Owner(user_identity=IdentityRule("userInfo", "idp:user:{sub}"))
BY_NONCE = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))


def without_pkce(idp: IdentityProvider, owner: Owner) -> App:
    """An app at a provider that answers any part of PKCE with a refusal. With an identity from userinfo it names no
    issuer, as OAuth providers without OpenID do not."""
    has_nonce = owner is BY_NONCE
    habits = Habits(pkce="refused", always_scopes=("openid",) if has_nonce else (), issuer_promised=has_nonce)
    endpoints = endpoints_of(idp) if has_nonce else replace(endpoints_of(idp), issuer="", jwks_url="")
    app = user_app(idp, habits=habits, owner=owner, endpoints=endpoints)
    idp.change(app.client.client_id, pkce="refused")
    offer(idp, None)
    if not has_nonce:  # and sends no `iss`, which an app without an issuer refuses
        idp.script.authorize.alter(lambda found: {k: v for k, v in found.items() if k != "iss"}, times=None)
    return app


def offer(idp: IdentityProvider, methods: list[str] | None) -> None:
    """Let the provider's metadata list these methods of PKCE; None for no such member."""
    name = "code_challenge_methods_supported"
    more = {} if methods is None else {name: methods}
    idp.script.discovery.reset()
    idp.script.discovery.alter(lambda found: {k: v for k, v in found.items() if k != name} | more, times=None)


@pytest.fixture(params=[BY_ACCOUNT, BY_NONCE], ids=["account", "nonce"])
async def linked(
    request: pytest.FixtureRequest, identity_provider: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Harness]:
    app = without_pkce(identity_provider, request.param)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        yield harness


@pytest.mark.case("18")
async def test_such_a_provider_is_connected_and_neither_challenge_nor_verifier_is_sent(linked: Harness) -> None:
    await linked.connected()
    assert all("code_challenge" not in seen.form for seen in linked.idp.seen("authorize"))
    (exchange,) = linked.idp.seen("authorization_code")
    assert not exchange.has_code_verifier
    assert '"setting": "quirks.pkce"' in linked.log.getvalue()


@pytest.mark.case("18")
@pytest.mark.rule("12.5.6-4")
async def test_a_code_of_another_person_connects_nothing_without_pkce_too(linked: Harness) -> None:
    """An attacker brings their own code to the victim's callback, with the victim's state and cookie; and a stolen code
    of the victim to their own. What tells is whose account, or whose nonce, comes back."""
    hers, his = await linked.ask_link(), await linked.ask_link(of=turn(user=BOB))
    alice, bob = linked.browser(), linked.browser()
    hers_back = await linked.way_back(hers, alice)
    his_back = await linked.way_back(his, bob, "bob")
    code, other = (dict(parse_qsl(urlsplit(url).query))["code"] for url in (hers_back, his_back))
    nonce_tells = linked.broker.bundle.apps["mail"].owner is BY_NONCE
    expected = Code.ID_TOKEN_INVALID if nonce_tells else Code.SUBJECT_MISMATCH
    assert_error_page(await alice.follow(hers_back.replace(code, other)), expected)
    assert_error_page(await bob.follow(his_back.replace(other, code)), expected)
    assert (None, None) == (await linked.grant(subject=ALICE), await linked.grant(subject=BOB))
    assert 0 == linked.idp.living_tokens("client-mail"), "what came along is revoked"


async def test_an_issuer_whose_metadata_lists_s256_is_not_asked_without_it(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    app = without_pkce(identity_provider, BY_NONCE)
    assert all(getattr(app.endpoints, slot) for slot in Endpoints.__slots__[:2]), "no other reason to read the metadata"
    offer(identity_provider, ["plain", "S256"])
    async with running(identity_provider, [app], clock=test_clock) as harness:
        refused = await harness.ask()
        assert Code.APP_MISCONFIGURED is refused.code
        assert "remove quirks.pkce" in harness.log.getvalue()
        assert [] == harness.idp.seen("authorize")
