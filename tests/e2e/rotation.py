"""The stage where refresh tokens are good for one use: people who agree over plain HTTP, brokers that can be killed."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import httpx2
import playwright.async_api as browsers

from oauthbroker import AuthorizationRequired, Ready
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import TokenResult
from oauthbroker.testing import Browser, Canaries, leave, off_the_record
from oauthbroker.testing.browser import Page
from tests.e2e import authority, bundle, served
from tests.e2e.stage import Stage
from tests.faults.storm_kit import Nursery, end, start

RESOURCE = "https://notes.example/api"  # the provider (node/provider.mjs) knows it too
_MOST_PAGES = 15


@dataclass(frozen=True)
class Offline(bundle.Registration):
    """A client that goes on while its person is away: `offline_access`, which has to be consented to every time
    (OpenID Connect Core section 11). `resource` is whom its tokens are for (RFC 8707); "" for userinfo."""

    scopes: tuple[str, ...] = ("profile", "team")
    resource: str = ""

    def app(self, name: str, issuer: str) -> dict[str, Any]:
        return {
            **super().app(name, issuer),
            "scopes": list(self.scopes),
            "options": {"authorize": {"prompt": "consent"}},
            "quirks": {"alwaysScopes": ["openid", "offline_access"]},
            **({"resource": self.resource} if self.resource else {}),
        }


@dataclass
class Scene(Stage):
    """A stage whose people have no window: `connected` goes through the provider's pages as plain HTTP."""

    env: dict[str, str] = field(default_factory=dict, repr=False)
    folder: Path = Path()
    browsers: dict[str, Browser] = field(default_factory=dict)

    async def ask_for_token(self, app: str, user: str = "alice") -> TokenResult:
        """The tool's call, with any outcome."""
        result = await self.broker.oauth(bundle.turn(user), f"Tool/{app}-reader").get_access_token(f"OAuthApp/{app}")
        if isinstance(result, Ready):
            self.canaries.add(result.access_token, "access token")
        return result

    async def report(self, app: str, token: Ready) -> TokenResult:
        """The tool says that this token of alice's was answered with 401."""
        oauth = self.broker.oauth(bundle.turn(), f"Tool/{app}-reader")
        return await oauth.report_rejected(f"OAuthApp/{app}", token.access_token)

    async def agree(self, asked: AuthorizationRequired, user: str = "alice") -> None:
        """From the link to the page that says so. The provider knows the browser from the second time on."""
        browser = self.browsers.setdefault(user, Browser(canaries=self.canaries))
        page = await leave(browser, asked.authorization_url)
        for _ in range(_MOST_PAGES):
            if page.url.startswith(self.home + "/connected/"):
                return
            page = await _next(browser, page, user)
        raise AssertionError(f"no end after {_MOST_PAGES} pages; the last one said: {page.text[:200]}")

    async def grant(self, *apps: str, user: str = "alice") -> list[Ready]:
        """The first token of each app, once this person has agreed."""
        for app in apps:
            await self.agree(await self.ask(app, user), user)
            assert "auth.granted" == (await self.next_event()).type
        return [await self.token(app, user) for app in apps]

    async def refresh_token(self, app: str) -> Secret:
        """What a thief with our key would find in alice's grant."""
        versioned = await self.parts.repository.grant(GrantKey(app, self.apps[app].subject))
        assert versioned is not None
        assert versioned.record.token is not None
        assert versioned.record.token.refresh_token is not None
        return versioned.record.token.refresh_token

    async def redeem(self, client: str, refresh_token: Secret) -> httpx2.Response:
        """What the provider answers a public client past the broker."""
        form = {"grant_type": "refresh_token", "client_id": client, "refresh_token": refresh_token.reveal()}
        with off_the_record():
            async with httpx2.AsyncClient(trust_env=False) as http:
                return await http.post(self.provider.issuer + "/token", data=form)

    async def refreshes(self, client: str) -> tuple[int, int, int]:
        """(refresh requests that gave tokens, refresh tokens used up, grants ended) at the provider, by client."""
        success = await self.provider.events("grant.success", client=client, grant="refresh_token")
        consumed = await self.provider.events("refresh_token.consumed", client=client)
        return len(success), len(consumed), len(await self.provider.events("grant.revoked", client=client))


class Brokers(Nursery):
    """The storm's nursery, with brokers on the files of a scene."""

    @classmethod
    @asynccontextmanager
    async def at(cls, scene: Scene, hear: Callable[[list[str]], None]) -> AsyncIterator[Self]:
        brokers = cls(await start("tests.e2e.rotation_worker"), hear)
        try:
            brokers.order(json.dumps({"folder": str(scene.folder), "env": scene.env}))
            yield brokers
        finally:
            await end(brokers._process)
            await brokers._listening


@asynccontextmanager
async def scene(
    folder: Path, canaries: Canaries, *names: str, chromium: browsers.Browser | None = None
) -> AsyncIterator[Scene]:
    """The provider and a broker with these apps, everything fresh; people have browsers where there is a Chromium."""
    listener, clock, apps = served.free_port(), served.LateClock(), {name: _registrations()[name] for name in names}
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    env = {app.env: app.secret for app in apps.values() if app.secret}
    for secret in env.values():
        canaries.add(secret, "client secret")
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        clients = [app.client(home) for app in apps.values()]
        provider = await stack.enter_async_context(authority.running(clients, rotating=True))
        canaries.outside.add(provider.issuer)  # its pages are not ours to keep clean
        written = bundle.write(folder, home, provider.issuer, apps.values())
        broker = await stack.enter_async_context(served.embedded(written, listener, env, clock))
        yield Scene(home, broker, provider, clock, apps, chromium, canaries, env, folder)


def audience(access_token: str) -> Any:
    """Whom a token says that it is for (RFC 9068 section 2.2); None for one that is not to be read."""
    parts = access_token.split(".")
    return json.loads(base64.urlsafe_b64decode(parts[1] + "==")).get("aud") if len(parts) == 3 else None


def _registrations() -> dict[str, Offline]:
    made = [
        Offline(**{each.name: getattr(known, each.name) for each in fields(known)} | {"twin": ""})
        for known in bundle.registrations().values()
    ]
    made.append(Offline("notes", "user", "none", "Example notebook", scopes=("notes:read",), resource=RESOURCE))
    return {registration.name: registration for registration in made}


async def _next(browser: Browser, page: Page, user: str) -> Page:
    assert page.status < 400, page.text[:200]
    if page.next_url:
        return await browser.follow()
    if "login" in {name for form in page.document.forms for name in form.names}:
        return await browser.submit({"login": user, "password": "any password"})
    return await browser.submit(form=page.form("prompt"))
