"""Broker: the object that `open_broker` gives, and all that an embedding runtime needs: docs/embedding.md."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from oauthbroker.api_keys import ApiKeys
from oauthbroker.apps import Bundle
from oauthbroker.audit import AuditWriter, StaticTokenIssued
from oauthbroker.audit.trail import AuditTrail
from oauthbroker.clock import Clock
from oauthbroker.confirming import Confirming
from oauthbroker.consent import Consent
from oauthbroker.context import OAuthContext
from oauthbroker.desk.connections import Connections
from oauthbroker.desk.letters import Letters
from oauthbroker.desk.people import People
from oauthbroker.erasure import Erased, Erasure
from oauthbroker.in_use import Health, InUse
from oauthbroker.inventory import Grants, Secrets, SessionList
from oauthbroker.lifecycle import Life
from oauthbroker.manager import OAuthManager
from oauthbroker.metrics import Metrics
from oauthbroker.pending import Links, Pending
from oauthbroker.queues import Delivery
from oauthbroker.reload import Reload
from oauthbroker.results import SessionOutcome
from oauthbroker.resume import Events, Outcomes
from oauthbroker.scrubber import Scrubber
from oauthbroker.secret import Secret
from oauthbroker.token_call import Caller
from oauthbroker.token_request import AppRef
from oauthbroker.turn import TurnLike, given_turn, locale_of
from oauthbroker.turns import Guest, Turns
from oauthbroker.web.app import Web


@dataclass(frozen=True, slots=True, repr=False)
class Broker:
    """A running broker. Everything a runtime does goes through here; tools get `oauth(turn, tool=...)`."""

    in_use: InUse
    manager: OAuthManager
    consent: Consent
    events: Events
    grants: Grants
    sessions: SessionList
    dead_letters: Letters
    secrets: Secrets
    outcomes: Outcomes
    waiting: Pending
    confirming: Confirming
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    web: ASGIApp
    doors: Web
    life: Life
    reloading: Reload
    checkup: Callable[[], Health]
    turns: Turns
    api_keys: ApiKeys
    people: People
    scrubber: Scrubber
    audit_trail: AuditTrail
    erasure: Erasure
    loop: AbstractEventLoop = field(default_factory=get_running_loop)

    @property
    def connections(self) -> Connections:
        """What is connected for a person: `link` makes a one-time link to the page."""
        return self.people.connections

    @property
    def bundle(self) -> Bundle:
        """The configuration in use."""
        return self.in_use.bundle

    def oauth(self, turn: TurnLike, tool: str | None = None, *, private_links: bool = False) -> OAuthContext:
        """`ctx.oauth` for one turn, or for the JSON of one. `tool` is `Tool/name` or `Tool/name:export`,
        `Extension/name`, `Connection/name` or `Connector/name`, and narrows to what that resource declared; without it,
        it is the runtime's own view of all apps. `private_links`: no answer holds a link, because the runtime delivers
        those of `links`."""
        declared = None
        if tool is not None:
            declared = self.bundle.tools.get(tool, ()) if isinstance(tool, str) else ()
        turn = given_turn(turn)
        caller = Caller(turn, tool, declared, private_links=private_links)
        return OAuthContext(self.manager, caller, locale_of(turn, self.bundle.settings.locale), self.loop)

    def oauth_for(self, guest: Guest) -> OAuthContext:
        """`ctx.oauth` for whoever holds a turn token, as `turns.admit` found it."""
        locale = guest.turn.locale_or(self.bundle.settings.locale)
        return OAuthContext(self.manager, guest.caller, locale, self.loop)

    def static_token(self, connector: str) -> Secret | None:
        """The token that `Connector/<name>` was configured with; None for one that uses an OAuthApp, or none."""
        name = connector.removeprefix("Connector/")
        found = self.bundle.connectors.get(name)
        if found is None or found.static_token is None:
            return None
        self.audit.write(StaticTokenIssued(f"Connector/{name}"), self.clock.now())
        self.scrubber.remember(found.static_token)
        return found.static_token

    def scrub(self, text: str) -> str:
        """What a tool says, with `***` for tokens that this process handed out. A net: docs/embedding.md tells its
        meshes. `scrubber.json` does the same to data."""
        return self.scrubber.text(text)

    async def pending(self, turn: TurnLike, links: Links = "inline") -> dict[str, Any] | None:
        """The `auth.pending` block of a turn, or None when nothing waits for a person. `apart`: without the links,
        which `links` has. Raises nothing: where it cannot be made the log has a line, and what is no turn has none."""
        return await self.waiting.block_or_none(turn, links)

    async def links(self, turn: TurnLike) -> list[dict[str, Any]]:
        """The links that wait for a person, and for whom: to be sent privately, never into the conversation. Raises
        store codes: a link that is not sent leaves its person waiting."""
        return await self.waiting.links(turn)

    async def wait(self, auth_session_id: str, timeout: float = 600) -> SessionOutcome:
        """Waits until an authorization has ended: `completed`, `failed` or `expired`; `pending` after `timeout` s."""
        return await self.outcomes.wait(auth_session_id, timeout)

    async def confirm(self, handle: str, subject: str) -> SessionOutcome:
        """The page that `owner.binding: runtimeConfirm` sends browsers to says who is logged in there; how the
        connection ended. Raises `stateUnknown` (unknown, used, late), `ownerBindingFailed` (somebody else)."""
        return await self.confirming.confirm(handle, subject)

    async def relay_code(self, turn: TurnLike, code: str, *, apps: Collection[AppRef] | None = None) -> SessionOutcome:
        """The person sent the code of `owner.binding: channelCode` in the turn's conversation; how the connection
        ended. `apps`: only these may be meant, None for all. Raises `stateUnknown`.

        Relay no words of a tool or a model: a tool can open the link itself and read the code off the page."""
        return await self.confirming.relay(turn, code, apps)

    async def cancel(self, auth_session_id: str) -> bool:
        """The person said no in the conversation: the link dies, no event. False when there was nothing to cancel."""
        return await self.waiting.cancel(auth_session_id)

    async def revoke(self, app: AppRef, *, subject: str) -> bool:
        """Ends a grant: here at once, at the provider as soon as it answers. False when none was alive."""
        return await self.grants.revoke(app, subject) is not None

    async def erase(self, subject: str, *, patience: float = 0) -> Erased:
        """Revoke a subject's grants and remove all its records, once every provider knows; the audit log stays.

        `done` is False while a provider has still to be told, or a browser is connecting: call again later. A busy
        provider is waited for up to `patience` seconds. `erasure.look` finds the records and changes nothing.
        """
        return await self.erasure.erase(subject, patience=patience)

    async def reload(self, config: str | Path | Bundle | None = None) -> frozenset[str]:
        """Takes a new configuration, by default what the broker was opened with, read anew; the names of the apps
        that are new, gone or different. What is under way finishes with the app it began with.

        Raises ConfigRefused with every problem, or a store code: then the old one stays, and `health` is red.
        """
        return await self.reloading(config)

    def health(self) -> Health:
        """Whether an operator is needed: `ok`, or `red` with the codes of what is wrong."""
        return self.checkup()

    def on_granted(
        self, agent: str, callback: Callable[[Delivery], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Calls back for every event of an agent while the `async with` block runs."""
        return self.events.on_granted(agent, callback)

    def __repr__(self) -> str:
        return f"Broker({len(self.bundle.apps)} apps)"
