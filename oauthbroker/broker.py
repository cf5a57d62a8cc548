"""Broker: the object that `open_broker` gives, and all that an embedding runtime needs: docs/embedding.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from starlette.types import ASGIApp

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.turns import Guest, Turns
from oauthbroker.audit import StaticTokenIssued
from oauthbroker.audit.lines import AuditTrail
from oauthbroker.authorization.pending import Links
from oauthbroker.config.reload import Reload
from oauthbroker.core.lifecycle import Life
from oauthbroker.core.secret import Secret
from oauthbroker.events.port import EventLease
from oauthbroker.events.waits import Events
from oauthbroker.model.apps import Bundle
from oauthbroker.model.results import SessionOutcome
from oauthbroker.model.token_request import AppRef
from oauthbroker.model.turn import TurnLike
from oauthbroker.observability.metrics import Metrics
from oauthbroker.observability.scrubber import Scrubber
from oauthbroker.operations.connections import Connections
from oauthbroker.operations.dead_letters import DeadLetters
from oauthbroker.operations.erasure import Erased, Erasure
from oauthbroker.operations.grants import Grants, Secrets, SessionList
from oauthbroker.operations.health import Health, HealthCheck
from oauthbroker.operations.services import Services
from oauthbroker.tokens.context import OAuthContext


class WebApps(Protocol):
    """The ASGI applications of a broker: the pages for people, the HTTP API, and both in one."""

    @property
    def pages(self) -> ASGIApp: ...

    @property
    def api(self) -> ASGIApp: ...

    @property
    def both(self) -> ASGIApp: ...


class Broker:
    """A running broker. Everything a runtime does goes through here; tools get `oauth(turn, tool=...)`.

    The public names are the ones of docs/embedding.md.
    """

    events: Events
    grants: Grants
    sessions: SessionList
    connections: Connections
    dead_letters: DeadLetters
    turns: Turns
    api_keys: ApiKeys
    erasure: Erasure
    secrets: Secrets
    metrics: Metrics
    scrubber: Scrubber
    audit_trail: AuditTrail
    life: Life
    doors: WebApps

    def __init__(
        self,
        *,
        services: Services,
        secrets: Secrets,
        metrics: Metrics,
        scrubber: Scrubber,
        audit_trail: AuditTrail,
        health_check: HealthCheck,
        reload: Reload,
        web: WebApps,
    ) -> None:
        self.events = services.events
        self.grants = services.grants
        self.sessions = services.sessions
        self.connections = services.connections
        self.dead_letters = services.dead_letters
        self.turns = services.turns
        self.api_keys = services.api_keys
        self.erasure = services.erasure
        self.secrets = secrets
        self.metrics = metrics
        self.scrubber = scrubber
        self.audit_trail = audit_trail
        self.life = services.life
        self.doors = web
        self._services = services
        self._health_check = health_check
        self._reload = reload

    @property
    def web(self) -> ASGIApp:
        """The pages and the API in one application."""
        return self.doors.both

    @property
    def bundle(self) -> Bundle:
        """The configuration in use."""
        return self._services.config.bundle

    def oauth(self, turn: TurnLike, tool: str | None = None, *, private_links: bool = False) -> OAuthContext:
        """`ctx.oauth` for one turn, or for the JSON of one. `tool` is `Tool/name` or `Tool/name:export`,
        `Extension/name`, `Connection/name` or `Connector/name`, and narrows to what that resource declared; without it,
        it is the runtime's own view of all apps. `private_links`: no answer holds a link, because the runtime delivers
        those of `links`."""
        return self._services.contexts.of_turn(turn, tool, private_links=private_links)

    def oauth_for(self, guest: Guest) -> OAuthContext:
        """`ctx.oauth` for whoever holds a turn token, as `turns.admit` found it."""
        return self._services.contexts.of_guest(guest)

    def static_token(self, connector: str) -> Secret | None:
        """The token that `Connector/<name>` was configured with; None for one that uses an OAuthApp, or none."""
        name = connector.removeprefix("Connector/")
        found = self.bundle.connectors.get(name)
        if found is None or found.static_token is None:
            return None
        self._services.audit.write(StaticTokenIssued(f"Connector/{name}"), self._services.clock.now())
        self.scrubber.remember(found.static_token)
        return found.static_token

    def scrub(self, text: str) -> str:
        """What a tool says, with `***` for tokens that this process handed out. A net: docs/embedding.md tells its
        meshes. `scrubber.json` does the same to data."""
        return self.scrubber.text(text)

    async def pending(self, turn: TurnLike, links: Links = "inline") -> dict[str, Any] | None:
        """The `auth.pending` block of a turn, or None when nothing waits for a person. `apart`: without the links,
        which `links` has. Raises nothing: where it cannot be made the log has a line, and what is no turn has none."""
        return await self._services.pending.block_or_none(turn, links)

    async def links(self, turn: TurnLike) -> list[dict[str, Any]]:
        """The links that wait for a person, and for whom: to be sent privately, never into the conversation. Raises
        store codes: a link that is not sent leaves its person waiting."""
        return await self._services.pending.links(turn)

    async def wait(self, auth_session_id: str, timeout: float = 600) -> SessionOutcome:
        """Waits until an authorization has ended: `completed`, `failed` or `expired`; `pending` after `timeout` s."""
        return await self._services.outcomes.wait(auth_session_id, timeout)

    async def confirm(self, handle: str, subject: str) -> SessionOutcome:
        """The page that `owner.binding: runtimeConfirm` sends browsers to says who is logged in there; how the
        connection ended. Raises `stateUnknown` (unknown, used, late), `ownerBindingFailed` (somebody else)."""
        return await self._services.parked_codes.confirm(handle, subject)

    async def relay_code(self, turn: TurnLike, code: str, *, apps: Collection[AppRef] | None = None) -> SessionOutcome:
        """The person sent the code of `owner.binding: channelCode` in the turn's conversation; how the connection
        ended. `apps`: only these may be meant, None for all. Raises `stateUnknown`.

        Relay no words of a tool or a model: a tool can open the link itself and read the code off the page."""
        return await self._services.parked_codes.relay(turn, code, apps)

    async def cancel(self, auth_session_id: str) -> bool:
        """The person said no in the conversation: the link dies, no event. False when there was nothing to cancel."""
        return await self._services.pending.cancel(auth_session_id)

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
        return await self._reload(config)

    def health(self) -> Health:
        """Whether an operator is needed: `ok`, or `red` with the codes of what is wrong."""
        return self._health_check.now()

    def on_granted(
        self, agent: str, callback: Callable[[EventLease], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Calls back for every event of an agent while the `async with` block runs."""
        return self.events.on_granted(agent, callback)

    def __repr__(self) -> str:
        return f"Broker({len(self.bundle.apps)} apps)"
