"""The stage of one story: the broker behind a port, oidc-provider, a browser, and the steps that stories share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import playwright.async_api as browsers

from oauthbroker import AuthorizationRequired, Ready
from oauthbroker.records import AgentEvent
from oauthbroker.testing import Canaries, off_the_record
from oauthbroker.wiring.running import Running
from tests.e2e import bundle
from tests.e2e.authority import Authority
from tests.e2e.person import Person
from tests.e2e.served import LateClock
from tests.kit.running_on import HasRunning

_PATIENCE = 10.0  # seconds


@dataclass
class Stage(HasRunning):
    """Everything a story needs. `home` is the broker's address."""

    home: str
    running: Running
    provider: Authority
    clock: LateClock
    apps: Mapping[str, bundle.Registration]
    chromium: browsers.Browser | None
    canaries: Canaries

    async def person(self, **profile: Any) -> Person:
        """A person with their own browser; `profile` goes to Playwright's `new_context`."""
        assert self.chromium is not None, "this stage was set without a browser"
        return await Person.with_profile(self.chromium, self.home, self.canaries, **profile)

    async def ask(self, app: str, user: str = "alice") -> AuthorizationRequired:
        """A tool's call in a turn of this user's, for which there is no grant."""
        result = await self.broker.oauth(bundle.turn(user), f"Tool/{app}-reader").get_access_token(f"OAuthApp/{app}")
        assert isinstance(result, AuthorizationRequired), result
        return result

    async def token(self, app: str, user: str = "alice") -> Ready:
        """The same call once there is one."""
        result = await self.broker.oauth(bundle.turn(user), f"Tool/{app}-reader").get_access_token(f"OAuthApp/{app}")
        assert isinstance(result, Ready), result
        self.canaries.add(result.access_token, "access token")
        return result

    async def next_event(self) -> AgentEvent:
        """The next event of the agent, taken and acknowledged."""
        delivery = await self.broker.events.lease("planner", wait=_PATIENCE)
        assert delivery is not None, "no event came"
        assert await delivery.ack()
        return delivery.event

    async def connected(self, app: str, user: str = "alice") -> Person:
        """A person who consented: signed in at the provider, with their own grant and no event left."""
        someone = await self.person()
        await someone.agree((await self.ask(app, user)).authorization_url, user)
        assert "auth.granted" == (await self.next_event()).type
        return someone

    async def use(self, token: Ready) -> tuple[int, Any]:
        """What a tool gets at the provider with this token: status and body of its userinfo."""
        headers = {"authorization": f"{token.token_type} {token.access_token.reveal()}"}
        with off_the_record():
            async with httpx2.AsyncClient(trust_env=False) as http:
                answer = await http.get(self.provider.issuer + "/me", headers=headers)
        return answer.status_code, answer.json()
