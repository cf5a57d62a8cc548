"""Run the demo's steps: the agent asks, waits on its queue, receives the outcome, and goes on."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from oauthbroker import AuthorizationRequired, Broker, Failed, Turn
from oauthbroker.cli.demo.agent import AGENT, Fetched, call_tool, first_turn
from oauthbroker.cli.demo.bundle import APP
from oauthbroker.cli.demo.printing import Telling
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import Code
from oauthbroker.events.port import EventLease

PATIENCE_SECONDS = 600
ASK = f'ctx.oauth.get_access_token("OAuthApp/{APP}")'


@dataclass(frozen=True, slots=True)
class StoryEnd:
    """How the demo ended; `to_json` is the last line of `--auto`."""

    status: Literal["ready", "denied", "failed", "timeout"]
    event: str | None = None
    tool: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "event": self.event, "tool": self.tool}


class Story:
    """One run of the demo. `link` is set when the agent has shown it."""

    def __init__(self, broker: Broker, telling: Telling, *, api: str, subject: str) -> None:
        self._broker = broker
        self.telling = telling
        self._api = api
        self._subject = subject
        self.link: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> StoryEnd:
        """Run until the tool has its data, the user declines, or ten minutes have passed."""
        self.telling.step('Alice writes to the agent: "Anything new?" It calls its tool.')
        turn, last = first_turn(self._subject), None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    found = await self._turn(turn)
                    if not isinstance(found, AuthorizationRequired):
                        return await self._end(turn, found, last)
                    delivery = await self._next_event()
                    last, turn = delivery.type, delivery.event.turn  # the same conversation and subjects
                    self._hear(delivery)
                    await delivery.ack()
                    if last == "auth.denied":
                        self.telling.ending("You said no. Nothing was connected, and the agent knows.")
                        return StoryEnd("denied", last)
        except TimeoutError:
            self.telling.ending("No browser came for ten minutes, so the demo ends here. Run it again any time.")
            return StoryEnd("timeout", last)
        finally:
            self.link.cancel()

    async def _turn(self, turn: Turn) -> Fetched | AuthorizationRequired | Failed:
        self.telling.says("messages", ASK)
        found = await call_tool(self._broker, turn, self._api)
        match found:
            case AuthorizationRequired():
                self.telling.says("broker", f"{found.status}: {found.message}")
                self.telling.says("agent", "shows this link in the chat and ends its turn:")
                self.telling.link(found.authorization_url, found.expires_at)
                if not self.link.done():
                    self.link.set_result(found.authorization_url)
            case Fetched():
                self.telling.says("broker", f"ready: a token for {' '.join(found.scopes)} (it is not shown)")
                self.telling.fetched(found, "/" + self._api.partition("//")[2].partition("/")[2])
            case Failed():
                self.telling.says("broker", f"error {found.code.value}: {found.message}", style="red")
        return found

    async def _next_event(self) -> EventLease:
        while True:
            delivery = await self._broker.events.lease(AGENT, wait=30)
            if delivery is not None:
                return delivery

    def _hear(self, delivery: EventLease) -> None:
        match delivery.type:
            case "auth.granted":
                self.telling.step("You agreed. The broker checked whose account came back, and sealed the grant.")
                self.telling.says("queue", "auth.granted for planner: a new turn begins by itself")
            case "auth.denied":
                self.telling.step("The agent hears of it.")
                self.telling.says("queue", "auth.denied for planner")
            case other:
                code = Code(delivery.event.payload.get("code", Code.EXCHANGE_FAILED))
                self.telling.step("That did not work, and nothing was stored.")
                self.telling.says("queue", f"{other} for planner, {code.value}: {code.sentence()}")
                self.telling.says("agent", "asks once more")

    async def _end(self, turn: Turn, found: Fetched | Failed, last: str | None) -> StoryEnd:
        if isinstance(found, Failed) or found.status != 200:
            self.telling.ending("The tool could not do its work.")
            return StoryEnd("failed", last)
        self.telling.step("The next call needs no consent.")
        again = await call_tool(self._broker, turn, self._api)
        self.telling.says("messages", ASK)
        self.telling.says(
            "broker", f"{'ready' if isinstance(again, Fetched) else 'asked again'}, from the sealed grant"
        )
        self.telling.ending(
            "That is the whole story.",
            "The records lie sealed in store/demo, and its key is gone already. The demo's configuration and log",
            "are there too, to be read. Next: `oauthbroker providers show NAME`, `oauthbroker init`.",
        )
        return StoryEnd("ready", last, found.body)
