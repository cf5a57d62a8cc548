"""Two tenants of one provider, each a server of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from oauthbroker import Turn
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.connect_params import ConnectParam
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.browser import Browser, Page
from tests.kit.running_broker import ALICE, BASE, SCOPES, Harness, turn

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


def app_of(names: tuple[str, ...], endpoints: Endpoints, **changes: Any) -> App:
    port = urlsplit(endpoints.issuer).port
    slots = {slot: getattr(endpoints, slot).replace(f":{port}", ":{tenant}") for slot in Endpoints.__slots__}
    app = App(
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
