"""A broker that has worked for some weeks, behind a port, for the browser tests of people's own pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import playwright.async_api as browsers

from oauthbroker.model.turn import ResumeTarget
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.e2e import served
from tests.e2e.person import Person
from tests.kit import planted_records
from tests.kit.running_broker import ALICE, BOB, TEAM, Harness, at, global_app, public, running, turn, user_app


@dataclass
class Desk:
    """The harness, its address, and browsers."""

    harness: Harness
    home: str
    browser: browsers.Browser
    canaries: Canaries

    async def person(self, **profile: object) -> Person:
        return await Person.with_profile(self.browser, self.home, self.canaries, **profile)

    async def visitor(self, **profile: object) -> Person:
        """Alice, on the page of her own and her team's connections."""
        url, _ = await self.harness.broker.connections.link({"user": ALICE, "global": TEAM})
        self.canaries.add(url.rpartition("/")[2], "ticket")
        person = await self.person(**profile)
        await person.open(url)
        await person.page.locator("button.primary").click()
        await person.page.wait_for_url(self.home + "/connections")
        return person

    async def operator(self, **profile: object) -> Person:
        """A signed-in operator."""
        _, key = await self.harness.broker.api_keys.create("ops", {"operator"})
        self.canaries.add(key, "API key")
        person = await self.person(**profile)
        await person.open(self.home + "/admin")
        await person.page.locator("#key").fill(key.reveal())
        await person.page.locator("form:has(#key) button").click()
        await person.page.wait_for_url(self.home + "/admin")
        return person


@asynccontextmanager
async def furnished(
    idp: IdentityProvider, clock: TestClock, canaries: Canaries, browser: browsers.Browser
) -> AsyncIterator[Desk]:
    listener = served.free_port()
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    notes, mail = user_app(idp, "notes", title="Example notes"), user_app(idp, provider="google", title="Google Mail")
    code, board = user_app(idp, "code", provider="github", title="GitHub"), global_app(idp, title="Team board")
    apps = [
        at(idp, home, app)
        for app in (notes, mail, code, replace(board, owner=replace(board.owner, authorizers="anyone")))
    ]
    settings = public(home, admin_loopback=True)
    with listener:
        async with (
            running(idp, apps, clock=clock, settings=settings) as harness,
            served.listening(harness.broker.asgi.app, listener),
        ):
            await _furnish(harness)
            yield Desk(harness, home, browser, canaries)


async def _furnish(harness: Harness) -> None:
    await planted_records.dead_letter(harness, 1, "researcher")
    await planted_records.dead_letter(harness, 2, "planner", "notes")
    await planted_records.grant(harness, "mail", ALICE, scopes=("openid", "read"))
    harness.parts.uses.note(
        (await planted_records.grant(harness, "mail", ALICE)).id, "planner", "Tool/mail", harness.clock.now()
    )
    await planted_records.dead_grant(harness, "notes", ALICE)
    await planted_records.ending_grant(harness, "code", ALICE)
    await planted_records.grant(harness, "team", TEAM, authorized_by="idp:user:U345678")
    await planted_records.ended_grant(harness, "notes", BOB)
    for number in range(60):
        await planted_records.grant(harness, "mail", f"idp:user:U9{number:05d}")
    await harness.ask_link("notes", of=turn(agent="researcher"))
    await harness.ask_link("notes", of=turn(BOB))
    await harness.ask_link("notes", of=turn("idp:user:" + "W" * 300, agent="A" * 200))
    await planted_records.grant(harness, "mail", "idp:user:" + "M" * 300, resume=ResumeTarget("A" * 200, "1"))
    harness.clock.advance(130)
    planted_records.open_circuit(harness, "code")
