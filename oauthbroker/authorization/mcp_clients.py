"""Learn the issuer of an app's MCP server, and get the app a client there. The app is then one like any other.

The result is stored, so that all processes use the same client, and a broker that starts again knows it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from oauthbroker.authorization.client_registrations import ClientRegistrations
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.client_registration import client_document, client_document_url
from oauthbroker.protocol.protected_resource import ProtectedResources
from oauthbroker.records.registered_client import GOOD, RegisteredClient
from oauthbroker.repository.repository import Repository

FAILURE_SECONDS: Final = 30
UNKNOWN_SECONDS: Final = 600  # that a server refuses a client before it is given up: a fault that passes ends no grant
_REGISTERS: Final = frozenset({Code.MCP_REGISTRATION_NEEDED, Code.MCP_UNSUPPORTED})
PROVIDER_CALLS: Final = 9  # challenge, two documents of the server, three of the issuer, registration, two probes


@dataclass(slots=True, kw_only=True)
class McpClients:
    """Completes the apps of MCP servers. `document_base` is where the documents of clients are served."""

    repository: Repository
    resources: ProtectedResources
    registrations: ClientRegistrations
    config: CurrentConfig
    clock: Clock
    limits: Limits
    log: Log
    document_base: str
    _failed: dict[str, tuple[App, float, BrokerError]] = field(default_factory=dict)
    _unknown: dict[str, tuple[str, float]] = field(default_factory=dict)  # since when a server refuses which client

    async def sync(self) -> None:
        """Complete all apps as the store knows them by now: other processes learn, too."""
        for app in list(self.config.apps.values()):
            if app.mcp is not None:
                await self._stored(app)

    def document(self, app: App) -> dict[str, Any] | None:
        """Return the document of an app's client. None for an app that needs none, and where no server could fetch
        it."""
        place = client_document_url(self.document_base, app.name)
        return client_document(app, place) if place and app.mcp is not None and not app.mcp.has_client else None

    async def complete(self, app: App, *, new_session: bool = False) -> App:
        """Return the app with its issuer and client. The server is asked if the store does not know them, and before a
        new session once a day.

        Raises `mcpMetadataMissing`, `mcpPkceMissing`, `mcpRegistrationNeeded`, `mcpUnsupported`, `appMisconfigured`,
        the codes of a provider that does not answer, and store codes. A failure is repeated without a request: for half
        a minute, and for ten where the next one would ask for another registration.
        """
        if app.mcp is None:
            return app
        known = await self._stored(app)
        if known is None or (new_session and known[1].is_to_check(self.clock.now())):
            failed = await self._failure_of(app)
            if failed is not None and (known is None or not failed.retryable):
                raise BrokerError(failed.code, note=failed.note, retry_after_seconds=failed.retry_after_seconds)
            known = await self._stored(app)
        if known is None:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        if new_session:  # the sync after the write may have failed, and a grant is of no use without its client
            await self.repository.sync("clients")
        return known[0]

    async def first_scopes(self, app: App) -> tuple[str, ...]:
        """Return the scopes that the app's server asks for first. Empty if that is unknown. Raises as `complete`."""
        await self.complete(app)
        found = await self.repository.clients.get(app.name)
        return () if found is None else found.first_scopes

    async def answered(self, app: App, *, refused: bool) -> None:
        """Note whether a server knows a registered client. After a refusal it is asked before the next link; after ten
        minutes of them the client is given up, and the next token call registers another one."""
        if not refused or app.mcp is None or app.mcp.has_client:
            self._unknown.pop(app.name, None)
            return
        now, mine = self.clock.monotonic(), app.client.client_id
        client, since = self._unknown.get(app.name, ("", now))
        self._unknown[app.name] = mine, since if client == mine else now
        if client != mine or now - since < UNKNOWN_SECONDS:
            await self.recheck(app.name, until=self.clock.now(), client_id=mine)
            return
        with suppress(BrokerError):  # the next refusal tries it again
            found = await self.repository.clients.get(app.name)
            if found is not None and found.client_id == mine:
                await self.repository.clients.remove(app.name)
                self.log.warning("a registered client is unknown to its server, and is given up", app=app.name)

    async def recheck(self, name: str, *, until: datetime | None = None, client_id: str = "") -> bool:
        """Ask the server again before the next link of an app: the last one led nowhere, perhaps to an error page for a
        client that the server has forgotten. Return whether it will be: not if it was asked after `until`, by default
        ten minutes ago, and not if another client than `client_id` is in use by now. Raises nothing."""
        app = self.config.apps.get(name)
        if app is None or app.mcp is None:
            return False
        until = until or self.clock.now() - timedelta(seconds=UNKNOWN_SECONDS)
        with suppress(BrokerError):  # another link that leads nowhere asks for another look
            async with self.repository.registration(name, wait=0):
                found = await self.repository.clients.get(name)
                if found is None or client_id not in {"", found.client_id}:
                    return False
                if found.looked_at <= until and not found.is_to_check(self.clock.now()):
                    await self.repository.clients.replace(replace(found, looked_at=found.looked_at - GOOD))
                    return True
        return False

    async def forget(self, name: str) -> bool:
        """Forget the issuer and client of an app. Return whether there were any."""
        async with self.repository.registration(name, wait=PROVIDER_CALLS * self.limits.provider_seconds):
            found = await self.repository.clients.get(name)
            if found is not None:
                await self.repository.clients.remove(name)
            else:  # perhaps it was removed a moment ago: the answer says that it is gone
                await self.repository.sync("clients")
        self._failed.pop(name, None)
        return found is not None

    async def _failure_of(self, app: App) -> BrokerError | None:
        """Ask the server and store its answers, under a lease. Return the failure, if it fails."""
        if (recent := self._recent_failure(app)) is not None:
            return recent
        async with self.repository.registration(app.name, wait=PROVIDER_CALLS * self.limits.provider_seconds):
            known, recent = await self._stored(app), self._recent_failure(app)  # of a call that came before
            if recent is not None or (known is not None and not known[1].is_to_check(self.clock.now())):
                return recent
            try:
                asked = await self._asked(app, known and known[1])
            except BrokerError as error:
                refused = error.with_traceback(None)
                rest = UNKNOWN_SECONDS if refused.code in _REGISTERS else FAILURE_SECONDS
                self._failed[app.name] = app, self.clock.monotonic() + rest, refused
            else:
                await self.repository.clients.replace(asked)
                return None
        self.log.warning("an MCP server is not usable", app=app.name, code=refused.code.value, note=refused.note)
        return refused

    def _recent_failure(self, app: App) -> BrokerError | None:
        failed = self._failed.get(app.name)
        is_recent = failed is not None and failed[0].mcp == app.mcp and self.clock.monotonic() < failed[1]
        return failed[2] if failed is not None and is_recent else None

    async def _stored(self, app: App) -> tuple[App, RegisteredClient] | None:
        """Return the app as the store completes it. None if the store does not know it, or another one of its name."""
        found = await self.repository.clients.get(app.name)
        if found is None:
            self.config.learn(app.name, lambda each: each)
            return None
        now = self.clock.now()
        in_use = self.config.learn(app.name, lambda each: found.complete(each) if found.fits(each, now) else each)
        if not found.fits(app, now):
            return None
        mine = found.complete(app)
        return in_use if in_use == mine and in_use is not None else mine, found

    async def _asked(self, app: App, old: RegisteredClient | None) -> RegisteredClient:
        assert app.mcp is not None  # noqa: S101  (asked before)
        server = await self.resources.of(app, app.mcp.url)
        issuer = server.issuer_for(app, old.issuer if old is not None else "")
        blank = RegisteredClient(
            app=app.name,
            url=app.mcp.url,
            issuer=issuer,
            redirect_uri=app.redirect.uri,
            looked_at=self.clock.now(),
        )
        listed = (await self.registrations.discovery.metadata(app.learnt(issuer, app.client))).scopes
        blank = replace(blank, first_scopes=server.first_scopes(app, listed))
        if old is not None and old.issuer == issuer:
            return await self.registrations.checked(app, old, blank)
        return await self.registrations.new(app, blank)
