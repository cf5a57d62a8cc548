"""One app for many tenants: the parameters of a connection, named by the turn or typed by the person."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Owner
from oauthbroker.model.connection_facts import CallbackFact, ConnectionFacts
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.types import Client as Registration
from tests.kit.running_broker import ALICE, BASE, endpoints_of, running, turn
from tests.story.tenants_kit import CALLBACK, Tenants, app_of


@pytest.fixture
async def tenants(test_clock: TestClock) -> AsyncIterator[Tenants]:
    async with IdentityProvider(clock=test_clock) as one, IdentityProvider(clock=test_clock) as two:
        idps = {str(urlsplit(idp.base_url).port): idp for idp in (one, two)}
        for name, idp in idps.items():
            uri = BASE + CALLBACK.replace("{tenant}", name)
            idp.register(Registration("client-shop", Secret("the-secret-of-shop"), redirect_uris=(uri,)))
        app = app_of(tuple(idps), endpoints_of(one))
        async with running(one, [app], clock=test_clock) as harness:
            yield Tenants(harness, idps)


async def test_a_person_types_the_tenant_and_every_request_goes_there(tenants: Tenants) -> None:
    first, second = tenants.names
    ready = await tenants.connect(typed=second)
    assert {"tenant": second} == ready.provider_data
    assert 0 == tenants.idps[first].count("authorization_code")
    assert 1 == tenants.idps[second].count("authorization_code")
    versioned = await tenants.harness.repository.grant(GrantKey("shop", ALICE))
    assert versioned is not None
    assert {"tenant": second} == versioned.record.params


async def test_two_tenants_of_one_user_are_two_accounts(tenants: Tenants) -> None:
    first, second = tenants.names
    one, two = await tenants.connect(first), await tenants.connect(second)
    assert (first, second) == (one.provider_data["tenant"], two.provider_data["tenant"])
    assert tenants.idps[first].is_alive(one.access_token)
    assert tenants.idps[second].is_alive(two.access_token)
    assert not tenants.idps[first].is_alive(two.access_token)


async def test_a_refresh_and_a_revocation_go_to_the_tenant_of_the_grant(tenants: Tenants) -> None:
    first, second = tenants.names
    await tenants.connect(first)
    await tenants.connect(second)
    tenants.harness.clock.advance(3 * 3600)
    assert isinstance(await tenants.ask(second), Ready)
    assert (0, 1) == tuple(tenants.idps[name].count("refresh_token") for name in tenants.names)
    assert await tenants.harness.broker.revoke("shop", subject=ALICE, account=second)
    assert (0, 1) == tuple(min(1, tenants.idps[name].count("revoke")) for name in tenants.names)
    assert isinstance(await tenants.ask(first), Ready), "the other one goes on"


async def test_the_revocations_of_a_tenant_that_is_gone_hold_up_no_other_ones(tenants: Tenants) -> None:
    first, second = tenants.names
    gone = tenants.idps[first]
    await tenants.connect(first)
    await tenants.connect(second)
    gone.script.revoke.close_after_accept(times=FOREVER)
    revoke, tell_all = tenants.harness.broker.grants.revoke, tenants.harness.parts.bulk_revocation
    assert "later" == await revoke("shop", ALICE, account=first)
    for _ in range(3):
        tenants.harness.clock.advance(60)
        await tell_all.run_pass()
    assert gone.count("revoke") > 3
    assert "done" == await revoke("shop", ALICE, account=second)


@pytest.mark.parametrize("typed", ["", "1", "127.0.0.1", "x.example", "../1", "a/b", "@evil", "80#", "80?x="])
async def test_a_value_that_is_no_tenant_is_asked_for_again_and_nothing_is_sent(tenants: Tenants, typed: str) -> None:
    asked = await tenants.ask("")
    assert isinstance(asked, AuthorizationRequired)
    page = await tenants.press(asked, tenants.harness.browser(), **{"param.tenant": typed})
    assert 400 == page.status
    assert "cannot be used" in page.text
    assert [0, 0] == [len(idp.requests) for idp in tenants.idps.values()]


async def test_a_turn_names_no_tenant_that_the_app_does_not_take(tenants: Tenants) -> None:
    base = turn()
    assert base.auth is not None
    of = replace(base, auth=replace(base.auth, accounts={"shop": ["evil.example"]}))
    refused = await tenants.harness.ask("shop", of=of)
    assert isinstance(refused, Failed)
    assert Code.ACCOUNT_FORBIDDEN is refused.code


async def test_a_code_that_comes_to_the_path_of_another_tenant_is_not_redeemed(tenants: Tenants) -> None:
    """A hostile tenant sends a person on to the honest server with the state of its own session: the honest server
    returns the browser to the honest path, where that session's code must not be sent to the hostile token address."""
    honest, hostile = tenants.names
    asked = await tenants.ask("")
    assert isinstance(asked, AuthorizationRequired)
    browser = tenants.harness.browser()
    page = await tenants.press(asked, browser, **{"param.tenant": hostile})
    callback = await tenants.agree(page, hostile, browser)
    moved = callback.replace(f"/shop/{hostile}?", f"/shop/{honest}?")
    assert moved != callback
    page = await browser.follow(moved)
    assert page.status >= 400
    assert [0, 0] == [idp.count("authorization_code") for idp in tenants.idps.values()]


async def test_a_tenant_that_the_operator_removed_needs_consent_again(tenants: Tenants) -> None:
    first, second = tenants.names
    await tenants.connect(second)
    app = tenants.harness.broker.bundle.apps["shop"]
    left = replace(app, connect_params=(replace(app.connect_params[0], one_of=(first,)),))
    bundle = tenants.harness.broker.bundle
    await tenants.harness.broker.reload(replace(bundle, apps={"shop": left}))
    refused = await tenants.ask(second)
    assert isinstance(refused, Failed)
    assert Code.ACCOUNT_FORBIDDEN is refused.code
    tenants.harness.clock.advance(3 * 3600)
    assert 0 == tenants.idps[second].count("refresh_token")


async def test_another_tenant_is_another_connection_and_the_old_one_is_ended_at_its_own(tenants: Tenants) -> None:
    first, second = tenants.names
    old = await tenants.connect(typed=first)
    assert await tenants.harness.broker.revoke("shop", subject=ALICE)
    new = await tenants.connect(typed=second)
    assert not tenants.idps[first].is_alive(old.access_token)
    assert tenants.idps[second].is_alive(new.access_token)


async def test_more_scopes_are_asked_for_at_the_same_tenant(tenants: Tenants) -> None:
    _, second = tenants.names
    asked = await tenants.harness.ask("shop", ["read"], of=tenants.turn(), account="")
    assert isinstance(asked, AuthorizationRequired)
    browser = tenants.harness.browser()
    page = await tenants.press(asked, browser, **{"param.tenant": second})
    page = await browser.follow(await tenants.agree(page, second, browser))
    while page.location is not None:
        page = await browser.follow()
    more = await tenants.harness.ask("shop", ["read", "write"], of=tenants.turn(), account="")
    assert isinstance(more, AuthorizationRequired)
    page = await tenants.harness.browser().open(more.authorization_url)
    assert "param.tenant" not in page.form("decision").names, "it is not asked for again"
    assert f"127.0.0.1:{second}" in page.text


async def test_a_signed_callback_names_the_shop_of_its_session_or_no_code_is_redeemed(tenants: Tenants) -> None:
    """Shopify: the query is signed with the client's secret, which is the same for all shops."""
    broker = tenants.harness.broker
    facts = ConnectionFacts(callback={"shop": CallbackFact(one_of=("{tenant}.shops.example",))}, hmac=True)
    signed = replace(broker.bundle.apps["shop"], facts=facts)
    first, second = tenants.names
    async with running(tenants.idps[first], [signed], clock=tenants.harness.clock) as harness:
        here = Tenants(harness, tenants.idps)
        for named, status in ((second, Code.CALLBACK_FACT_INVALID.status), (first, 303)):
            asked, browser = await here.ask(first), harness.browser()
            back = await here.agree(await here.press(asked, browser), first, browser)
            shop = f"{back}&shop={named}.shops.example"
            assert Code.CALLBACK_MALFORMED.status == (await browser.follow(shop)).status
            before = here.idps[first].count("authorization_code")
            assert status == (await browser.follow(signature_of(shop))).status
            assert (before if named == second else before + 1) == here.idps[first].count("authorization_code")
        ready = await here.ask(first)
        assert isinstance(ready, Ready)
        assert {"tenant": first, "shop": f"{first}.shops.example"} == ready.provider_data


def signature_of(url: str) -> str:
    pairs = sorted(parse_qsl(urlsplit(url).query))
    text = "&".join(f"{name}={value}" for name, value in pairs)
    return f"{url}&hmac={hmac.new(b'the-secret-of-shop', text.encode(), sha256).hexdigest()}"


async def test_a_client_without_a_user_gets_a_token_of_each_tenant(test_clock: TestClock) -> None:
    """The turn names the tenant; without it no address is known, and nothing is sent."""
    async with IdentityProvider(clock=test_clock) as one, IdentityProvider(clock=test_clock) as two:
        idps = {str(urlsplit(idp.base_url).port): idp for idp in (one, two)}
        for idp in idps.values():
            idp.register(Registration("client-shop", Secret("the-secret-of-shop"), redirect_uris=(BASE,)))
        app = app_of(tuple(idps), endpoints_of(one), flow="clientCredentials", subject_mode="global", owner=Owner())
        async with running(one, [app], clock=test_clock) as harness:
            tenants = Tenants(harness, idps)
            refused = await tenants.ask()
            assert isinstance(refused, Failed)
            assert Code.ACCOUNT_REQUIRED is refused.code
            assert [0, 0] == [idp.count("token") for idp in idps.values()]
            for name, idp in idps.items():
                for _ in range(3):  # the stored one, too
                    ready = await tenants.ask(name)
                    assert isinstance(ready, Ready), ready
                    assert idp.is_alive(ready.access_token)
                    assert {"tenant": name} == ready.provider_data
                assert 1 == idp.count("token")
