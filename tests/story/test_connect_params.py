"""One app for many tenants: the parameters of a connection, named by the turn or typed by the person."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker import Turn
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Client, Endpoints, IdentityRule, OAuthApp, Owner, Redirect
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.connection_facts import CallbackFact, ConnectionFacts
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.browser import Browser, Page
from oauthbroker.testing.provider.types import Client as Registration
from tests.kit.running_broker import ALICE, BASE, SCOPES, Harness, endpoints_of, running, turn

CALLBACK = "/oauth/callback/shop/{tenant}"


@dataclass
class Tenants:
    """Two tenants of one provider, each a server of its own: a tenant's name is its port. `harness.idp` is the first."""

    harness: Harness
    idps: Mapping[str, IdentityProvider]

    @property
    def names(self) -> list[str]:
        return [*self.idps]

    async def ask(self, account: str | None = None, user: str = ALICE) -> Any:
        return await self.harness.ask("shop", of=self.turn(user), account=account)

    def turn(self, user: str = ALICE) -> Turn:
        base = turn(user=user)
        assert base.auth is not None
        return replace(
            base, auth=replace(base.auth, accounts={"OAuthApp/shop": {"allowed": ["", *self.names], "default": ""}})
        )

    async def press(self, asked: AuthorizationRequired, browser: Browser, **fields: str) -> Page:
        await browser.open(asked.authorization_url)
        return await browser.submit({"decision": "continue", **fields}, form=browser.page.form("decision"))

    async def agree(self, page: Page, tenant: str, browser: Browser, person: str = "alice") -> str:
        """Return the URL at which the provider sends the browser back."""
        [url, *_] = [link for link in page.document.links if link.startswith(self.idps[tenant].base_url)]
        return await self.idps[tenant].agree(url, person, browser=browser)

    async def connect(
        self, account: str | None = None, *, typed: str = "", person: str = "alice", user: str = ALICE
    ) -> Ready:
        asked = await self.ask(account, user)
        assert isinstance(asked, AuthorizationRequired), asked
        browser = self.harness.browser()
        fields = {"param.tenant": typed} if typed else {}
        page = await self.press(asked, browser, **fields)
        assert 200 == page.status, page.text
        page = await browser.follow(await self.agree(page, typed or account or "", browser, person))
        while page.location is not None:
            page = await browser.follow()
        assert 200 == page.status, page.text
        ready = await self.ask(account, user)
        assert isinstance(ready, Ready), ready
        return ready


def app_of(names: tuple[str, ...], endpoints: Endpoints, **changes: Any) -> OAuthApp:
    port = urlsplit(endpoints.issuer).port
    slots = {slot: getattr(endpoints, slot).replace(f":{port}", ":{tenant}") for slot in Endpoints.__slots__}
    app = OAuthApp(
        name="shop",
        provider="oidc",
        flow="authorizationCode",
        subject_mode="user",
        client=Client("client-shop", Secret("the-secret-of-shop")),
        endpoints=Endpoints(**slots),
        scopes=SCOPES,
        redirect=Redirect(CALLBACK, BASE),
        owner=Owner(
            binding="localOperator", user_identity=IdentityRule("idToken", "shop:{connectParams.tenant}:{sub}")
        ),
        habits=Habits(always_scopes=("openid",)),
        revocation=Revocation(reach="token"),
        connect_params=(ConnectParam(name="tenant", title="Your shop", one_of=names),),
    )
    return replace(app, **changes)


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
