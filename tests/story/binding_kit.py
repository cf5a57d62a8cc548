"""People, runtimes and attackers for `owner.binding`: what every mode's tests play with."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from oauthbroker import Turn
from oauthbroker.apps import (
    LOGIN_NAME,
    BrokerLogin,
    Client,
    Endpoints,
    Habits,
    IdentityRule,
    OAuthApp,
    Owner,
    Redirect,
)
from oauthbroker.results import AuthorizationRequired, SessionOutcome
from oauthbroker.settings import Settings
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.testing.provider.nouns import Client as Registration
from tests.house import BASE, House, running, turn, user_app

RUNTIME = "https://runtime.test/oauth/confirm"
ALICE, MALLORY = "acme:user:7", "acme:user:666"  # accounts of the runtime's own: no provider knows them
CODE = re.compile(r"\b([2-9A-HJ-NP-Z]{4}-[2-9A-HJ-NP-Z]{4})\b")


def parked_app(idp: IdentityProvider, binding: str, name: str = "mail", **changes: Any) -> OAuthApp:
    """An app whose provider says nothing about our subjects: only the binding vouches."""
    return user_app(idp, name, **{"owner": Owner(binding=binding), **changes})  # type: ignore[arg-type]


def settings_for(**more: Any) -> Settings:
    return Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), **{"confirm_url": RUNTIME, **more})


CALLBACK = "/login/callback"
OF_CORP = "corp:user:{sub}"
CORP_ALICE, CORP_MALLORY = "corp:user:U234567", "corp:user:U666666"


def broker_login(corp: IdentityProvider, base: str = BASE, **changes: Any) -> BrokerLogin:
    """The broker's own login at `corp`, which says who somebody is at the company and nothing about their mail."""
    try:
        client = corp.client("broker")
    except KeyError:
        client = corp.register(Registration("broker", redirect_uris=(base + CALLBACK,)))
    app = OAuthApp(
        name=LOGIN_NAME,
        provider="oidc",
        flow="authorizationCode",
        subject_mode="user",
        client=Client(client.client_id, client.client_secret),
        endpoints=Endpoints(issuer=corp.issuer),
        scopes=(),
        redirect=Redirect(CALLBACK, base),
        owner=Owner(user_identity=IdentityRule("idToken", OF_CORP)),
        habits=Habits(always_scopes=("openid",)),
    )
    return BrokerLogin(app, **changes)


@asynccontextmanager
async def parking(
    idp: IdentityProvider, clock: TestClock, binding: str, *, app: OAuthApp | None = None, **more: Any
) -> AsyncIterator[House]:
    """A house with one app of this binding."""
    apps = [app or parked_app(idp, binding)]
    async with running(idp, apps, clock=clock, **{"settings": settings_for(), **more}) as house:
        yield house


def of_alice(**more: Any) -> Turn:
    return turn(user=ALICE, team=None, **more)


def of_mallory() -> Turn:
    return turn(user=MALLORY, team=None, agent="minion", instance="mallorys.1")


async def came_back(house: House, asked: AuthorizationRequired, browser: Browser, account: str = "alice") -> Page:
    """A person went all the way and agreed; the page after the callback."""
    return await house.connect(asked, account, browser)


def handle_on(page: Page) -> str:
    """The handle that this page takes along to the runtime's page, and nothing else."""
    assert page.next_url is not None, page.text
    parts = urlsplit(page.next_url)
    assert page.next_url.startswith(RUNTIME), page.next_url
    ((name, handle),) = parse_qsl(parts.query)
    assert name == "handle"
    return handle


def code_on(page: Page) -> str:
    """The code that this page shows."""
    (code,) = set(CODE.findall(page.text))
    return str(code)


async def vouch(house: House, page: Page, subject: str, of: Turn | None = None) -> SessionOutcome:
    """What the honest runtime does with a browser of `subject`'s that came to this page: its page confirms who is
    logged in, or its conversation relays what the person read."""
    if CODE.search(page.text):
        return await house.broker.relay_code(
            of or replace(of_alice(), auth=turn(user=subject, team=None).auth), code_on(page)
        )
    return await house.broker.confirm(handle_on(page), subject)
