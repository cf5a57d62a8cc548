"""Broker: the object that `open_broker` gives, and all that an embedding runtime needs: docs/embedding.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.access.turns import Turns, UnknownApp
from oauthbroker.audit import StaticTokenIssued
from oauthbroker.audit.lines import AuditTrail
from oauthbroker.audit.plugin_entry import PluginAudit, PluginAuditEntry
from oauthbroker.authorization.pending_blocks import Links
from oauthbroker.config.reload import Reload
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import Life
from oauthbroker.core.secret import Secret
from oauthbroker.diagnostics.health import Health, HealthCheck
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.events.port import EventLease
from oauthbroker.events.waits import Events
from oauthbroker.grants.connections import Connections
from oauthbroker.grants.erasure import Erasure
from oauthbroker.grants.found_records import Erased
from oauthbroker.grants.grants import Grants, Secrets, SessionList
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.token_request import AppRef, app_name
from oauthbroker.model.token_results import SessionOutcome
from oauthbroker.model.turn import TurnLike
from oauthbroker.observability.metrics import Metrics
from oauthbroker.observability.transcript_scrubber import Scrubber
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.services import Services
from oauthbroker.tokens.context import OAuthContext

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class WebApps(Protocol):
    """The ASGI applications of a broker: the pages for people, the HTTP API, and app in one."""

    @property
    def pages(self) -> ASGIApp: ...

    @property
    def api(self) -> ASGIApp: ...

    @property
    def app(self) -> ASGIApp: ...


Serves = Callable[["Broker", str | None, int | None], AbstractAsyncContextManager[str]]


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
    asgi: WebApps

    def __init__(  # noqa: PLR0913  (its parts)
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
        plugin_audit: PluginAudit,
        plugin_state: Callable[[str], PluginState],
        serves: Serves,
        serves_at: Callable[[str, int], Awaitable[bool]],
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
        self.asgi = web
        self._services = services
        self._health_check = health_check
        self._reload = reload
        self._plugin_audit = plugin_audit
        self._plugin_state = plugin_state
        self._serves = serves
        self._serves_at = serves_at

    def serving(self, host: str | None = None, port: int | None = None) -> AbstractAsyncContextManager[str]:
        """Serve the pages and the API in this event loop for an `async with` block, which gets the address, such as
        `http://127.0.0.1:8420`. Listens where the configuration says; `host` and `port` replace its `listen`, and port
        0 is a free one. Its end lets requests under way finish. Installs no signal handler.

        Raises `configInvalid`, whose note says why, where it cannot listen, and for a host away from loopback while
        `publicBaseUrl` is a loopback address; `storeUnavailable` once the broker is closed."""
        return self._serves(self, host, port)

    async def serves_at(self, host: str, port: int) -> bool:
        """Return whether a broker of this store listens at an address of this machine. The one that does proves that it
        holds the store's keys; False for every other program, and without an answer in five seconds."""
        return await self._serves_at(host, port)

    @property
    def bundle(self) -> Bundle:
        """The configuration in use."""
        return self._services.config.bundle

    def oauth(self, turn: TurnLike, tool: str | None = None, *, private_links: bool = False) -> OAuthContext:
        """Return `ctx.oauth` for one turn, or for the JSON of one. `tool` is `Tool/name` or `Tool/name:export`,
        `Extension/name`, `Connection/name` or `Connector/name`, and narrows to what that resource declared; without it,
        it is the runtime's own view of all apps. `private_links`: no answer holds a link, because the runtime delivers
        those of `links`."""
        return self._services.contexts.of_turn(turn, tool, private_links=private_links)

    def oauth_for(self, token_holder: TurnTokenHolder) -> OAuthContext:
        """Return `ctx.oauth` for the holder of a turn token, as `turns.admit` returned it."""
        return self._services.contexts.of_turn_token(token_holder)

    def static_token(self, connector: str) -> Secret | None:
        """Return the token that `Connector/<name>` was configured with; None if it uses an app, or no token."""
        name = connector.removeprefix("Connector/")
        found = self.bundle.connectors.get(name)
        if found is None or found.static_token is None:
            return None
        self._services.audit.write(StaticTokenIssued(connector=f"Connector/{name}"), self._services.clock.now())
        self.scrubber.remember(found.static_token)
        return found.static_token

    def scrub(self, text: str) -> str:
        """Return a tool's text with `***` in place of the tokens that this process handed out. docs/embedding.md says
        which it cannot find. `scrubber.json` does the same to data."""
        return self.scrubber.text(text)

    async def pending(self, turn: TurnLike, links: Links = "inline") -> dict[str, Any] | None:
        """Return the `auth.pending` block of a turn; None if nothing waits for the user. `apart` leaves out the links,
        which `links` returns. Never raises: if the block cannot be made, it logs a line and returns None."""
        return await self._services.pending.block_or_none(turn, links)

    async def links(self, turn: TurnLike) -> list[dict[str, Any]]:
        """Return the links that wait for a user, each with its subject. Send them privately, never into the
        conversation. Raises store codes, because a user whose link is not sent would wait in vain."""
        return await self._services.pending.links(turn)

    async def wait(self, auth_session_id: str, timeout: float = 600) -> SessionOutcome:
        """Wait until an authorization has ended: `completed`, `failed` or `expired`; `pending` after `timeout` s."""
        return await self._services.outcomes.wait(auth_session_id, timeout)

    async def confirm(self, handle: str, subject: str) -> SessionOutcome:
        """Finish a connection with the subject that is logged in on the runtime's page, and return its outcome
        (`owner.binding: runtimeConfirm`). Raises `stateUnknown` for an unknown, used or expired handle,
        `ownerBindingFailed` for another subject."""
        return await self._services.pending_codes.confirm(handle, subject)

    async def relay_code(self, turn: TurnLike, code: str, *, apps: Collection[AppRef] | None = None) -> SessionOutcome:
        """Finish a connection with the code that the user sent in the turn's conversation, and return its outcome
        (`owner.binding: channelCode`). `apps` limits the apps that it may belong to; None for all. Raises
        `stateUnknown`.

        Relay only a user's own words, never those of a tool or a model: a tool can open the link and read the code."""
        return await self._services.pending_codes.relay(turn, code, apps)

    async def cancel(self, auth_session_id: str) -> bool:
        """Cancel an authorization because the user declined in the conversation. Its link ends; no event follows. False
        if it had ended already."""
        return await self._services.pending.cancel(auth_session_id)

    async def revoke(self, app: AppRef, *, subject: str, account: str = "") -> bool:
        """Revoke a grant: here at once, at the provider as soon as it answers. False if none was alive.

        Raises `oauthAppNotFound` for an app that is not configured and has no grants, and `requestInvalid`."""
        return await self.grants.revoke(app, subject, account) is not None

    async def forget_client(self, app: AppRef) -> bool:
        """Forget the client that was registered for the app of an MCP server. The next token call registers another
        one, and users consent anew. Return whether there was one. Raises `oauthAppNotFound` for an app that is not
        configured and has none."""
        name = app_name(app)
        found = await self._services.mcp_clients.forget(name)
        if not found and name not in self.bundle.apps:
            raise UnknownApp(name, self.bundle.apps)
        return found

    async def erase(self, subject: str, *, patience: float = 0) -> Erased:
        """Revoke a subject's grants and remove all its records, once every provider knows; the audit log stays.

        `done` is False while a provider has still to be told, a browser is connecting, or work of a plug-in for
        the subject goes on: call again later. A busy provider is waited for up to `patience` seconds.
        `erasure.find_records` finds the records and changes nothing.
        """
        return await self.erasure.erase(subject, patience=patience)

    async def reload(self, config: str | Path | Bundle | None = None) -> frozenset[str]:
        """Replace the configuration, by default by the files that the broker was opened with, read again. Return the
        names of the apps that are new, removed or changed. Work under way finishes with the app it began with.

        Raises ConfigInvalidError with every problem, or a store code: then the old one stays, and `health` is red.
        """
        return await self._reload(config)

    def audit(self, entry: PluginAuditEntry) -> None:
        """Write an entry of a plug-in to the audit log. Raises `storeUnavailable`: then the action must not
        happen. Raises `requestInvalid` for a type that no plug-in in use declared, and for a member of another type."""
        self._plugin_audit(entry)

    def plugin_state(self, plugin: str) -> PluginState:
        """Return the durable values of a plug-in. Raises `requestInvalid` for a plug-in that the configuration does
        not name."""
        if plugin not in self.bundle.settings.plugins:
            note = f"spec.plugins of the Broker does not name {plugin[:64]!r}: add it there"
            raise BrokerError(Code.REQUEST_INVALID, note=note)
        return self._plugin_state(plugin)

    def health(self) -> Health:
        """Return whether an operator is needed: `ok`, or `red` with the codes of the failures."""
        return self._health_check.now()

    def on_granted(
        self, agent: str, callback: Callable[[EventLease], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Call `callback`, an `async def` function, for every event of an agent while the `async with` block runs. What
        it raises is logged, and the event comes again."""
        return self.events.on_granted(agent, callback)

    def __repr__(self) -> str:
        return f"Broker({len(self.bundle.apps)} apps)"
