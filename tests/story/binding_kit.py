"""People, runtimes and attackers for `owner.binding`: what every mode's tests play with."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker import Turn
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.broker_login import LOGIN_NAME, BrokerLogin
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import AuthorizationRequired, SessionOutcome
from oauthbroker.testing import Browser, IdentityProvider, TestClock, leave
from oauthbroker.testing.browser import Page
from oauthbroker.testing.provider.types import Client as Registration
from tests.kit.running_broker import BASE, SUBS, Harness, running, turn, user_app
from tests.unit.web import kit

RUNTIME = "https://runtime.test/oauth/confirm"
ALICE, MALLORY = "acme:user:7", "acme:user:666"  # accounts of the runtime's own: no provider knows them
CODE = re.compile(r"\b([2-9A-HJ-NP-Z]{4}-[2-9A-HJ-NP-Z]{4})\b")
CALLBACK = "/login/callback"
OF_CORP = "corp:user:{sub}"
CORP_ALICE, CORP_MALLORY = "corp:user:U234567", "corp:user:U666666"
HTTPS_BASE = "https://broker.test"


def confirming_app(idp: IdentityProvider, binding: str, name: str = "mail", **changes: Any) -> App:
    """An app whose provider says nothing about our subjects: only the binding confirms."""
    return user_app(idp, name, **{"owner": Owner(binding=binding, confirm_url=RUNTIME), **changes})  # type: ignore[arg-type]


def settings_for(**more: Any) -> Settings:
    return Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), **more)


def broker_login(corp: IdentityProvider, base: str = BASE, **changes: Any) -> BrokerLogin:
    """The broker's own login at `corp`, which identifies a person at the company and says nothing about their mail."""
    try:
        client = corp.client("broker")
    except KeyError:
        client = corp.register(Registration("broker", redirect_uris=(base + CALLBACK,)))
    app = App(
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
async def confirming_harness(
    idp: IdentityProvider, clock: TestClock, binding: str, *, app: App | None = None, **more: Any
) -> AsyncIterator[Harness]:
    """A harness with one app of this binding."""
    apps = [app or confirming_app(idp, binding)]
    async with running(idp, apps, clock=clock, **{"settings": settings_for(), **more}) as harness:
        yield harness


def of_alice(**more: Any) -> Turn:
    return turn(user=ALICE, team=None, **more)


def of_mallory() -> Turn:
    return turn(user=MALLORY, team=None, agent="minion", instance="mallorys.1")


async def came_back(harness: Harness, asked: AuthorizationRequired, browser: Browser, account: str = "alice") -> Page:
    """A person went all the way and agreed; the page after the callback."""
    return await harness.connect(asked, account, browser)


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


async def confirm_browser(harness: Harness, page: Page, subject: str, of: Turn | None = None) -> SessionOutcome:
    """What the honest runtime does with a browser of `subject`'s that came to this page: its page confirms who is
    logged in, or its conversation relays what the person read."""
    if CODE.search(page.text):
        return await harness.broker.relay_code(
            of or replace(of_alice(), auth=turn(user=subject, team=None).auth), code_on(page)
        )
    return await harness.broker.confirm(handle_on(page), subject)


def corp_turn(name: str = "alice", **more: Any) -> Turn:
    return turn(user=f"corp:user:{SUBS[name]}", team=None, **more)


def login_app(idp: IdentityProvider, **changes: Any) -> App:
    return confirming_app(idp, "brokerLogin", **changes)


def in_corp(harness: Harness) -> IdentityProvider:
    assert harness.corp is not None
    return harness.corp


async def at_the_login(harness: Harness, asked: AuthorizationRequired, person: Browser) -> str:
    """The person pressed the button; where that leads."""
    page = await leave(person, asked.authorization_url)
    assert 200 == page.status, page.text
    assert page.next_url is not None
    assert page.next_url.startswith(in_corp(harness).url("/authorize?"))
    return page.next_url


async def login_callback(
    harness: Harness, asked: AuthorizationRequired, person: Browser, account: str = "alice"
) -> str:
    """The person logged in; the login's callback, not visited."""
    await at_the_login(harness, asked, person)
    return await harness.logged_in(asked, person, account)


async def relay_refused(harness: Harness, code: str, of: Turn | None = None, **more: object) -> Code:
    with pytest.raises(BrokerError) as caught:
        await harness.broker.relay_code(of or of_alice(), code, **more)  # type: ignore[arg-type]
    return caught.value.code


def another_code(code: str) -> str:
    """A code of the same shape that differs in its last place."""
    return code[:-1] + ("3" if code[-1] == "2" else "2")


async def raw_callback(harness: Harness, url: str, *cookies: str) -> kit.Answer:
    headers = [("cookie", cookie) for cookie in cookies]
    return await kit.ask(
        harness.broker.asgi.app,
        "/oauth/callback/mail",
        query=urlsplit(url).query.encode(),
        host="broker.test",
        headers=headers,
    )
