"""What users and operators see, over the flows and the calls of agents; and the services of a `Broker`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from oauthbroker.access.browser_sessions import BrowserSessions
from oauthbroker.admin.gauges import Gauges, KeyFigures
from oauthbroker.admin.open_circuits import Left, SharedCircuits
from oauthbroker.authorization.expiring import Expiring
from oauthbroker.authorization.pending_blocks import Pending
from oauthbroker.diagnostics.health import HealthCheck
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.grants.connections import Connections
from oauthbroker.grants.erasure import Erasure
from oauthbroker.grants.grants import Grants, Secrets, SessionList
from oauthbroker.grants.importing import Importing
from oauthbroker.grants.plugin_erasure import PluginErasure
from oauthbroker.observability.shared_metrics import Sharing
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.services import Services
from oauthbroker.wiring.call_parts import CallParts
from oauthbroker.wiring.plugin_lifecycle import RunningPlugins

if TYPE_CHECKING:
    from oauthbroker.wiring.page_parts import PageParts


class Parts(CallParts):
    """All parts of one broker."""

    @cached_property
    def pending(self) -> Pending:
        return Pending(
            apps=self.apps,
            repository=self.repository,
            connect=self.connect,
            settings=self.settings,
            clock=self.clock,
            log=self.log,
        )

    @cached_property
    def pages(self) -> PageParts:
        from oauthbroker.wiring.page_parts import PageParts

        return PageParts(self)

    @cached_property
    def expiring(self) -> Expiring:
        return Expiring(
            apps=self.apps,
            repository=self.repository,
            opening=self.opening,
            settings=self.settings,
            outbox=self.outbox,
            clock=self.clock,
            metrics=self.metrics,
            log=self.log,
        )

    @cached_property
    def grants(self) -> Grants:
        return Grants(
            apps=self.apps,
            repository=self.repository,
            clock=self.clock,
            revoke=self.revoke,
            revocations=self.bulk_revocation,
            importing=self.importing,
        )

    @cached_property
    def importing(self) -> Importing:
        return Importing(
            apps=self.apps,
            repository=self.repository,
            refresh=self.refresh,
            owners=self.owners,
            checks=self.credential_checks,
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def sessions(self) -> SessionList:
        return SessionList(self.repository)

    @cached_property
    def secrets(self) -> Secrets:
        return Secrets(self.repository, self.clock, self.audit_log)

    @cached_property
    def browser_sessions(self) -> BrowserSessions:
        return BrowserSessions(
            records=self.repository.records("browsersessions", BrowserSession.from_plaintext), clock=self.clock
        )

    @cached_property
    def connections(self) -> Connections:
        return Connections(
            apps=self.apps,
            repository=self.repository,
            browser_sessions=self.browser_sessions,
            uses=self.uses,
            grants=self.grants,
            opening=self.opening,
            settings=self.settings,
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def erasure(self) -> Erasure:
        return Erasure(
            repository=self.repository,
            revocations=self.bulk_revocation,
            connect=self.connect,
            finish=self.finish,
            queues=self.queues,
            turns=self.turns,
            browser_sessions=self.browser_sessions,
            uses=self.uses,
            plugins=PluginErasure(self.config, self.plugins.audit),
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(queues=self.queues, clock=self.clock, audit=self.audit)

    @cached_property
    def shared_circuits(self) -> SharedCircuits:
        return SharedCircuits(own=self.circuits, clock=self.clock, elsewhere=self._circuits_of_other_workers)

    @cached_property
    def health_check(self) -> HealthCheck:
        return HealthCheck(
            config=self.config,
            opened_here=self.repository.opened_here,
            outage=self.outage,
            retry_store=self.retry_store,
            audit=self.audit,
            plugins=self.plugins.findings,
        )

    @cached_property
    def plugins(self) -> RunningPlugins:
        return RunningPlugins(
            config=self.config, scrubber=self.scrubber, log=self.log, clock=self.clock, audit_log=self.audit
        )

    @cached_property
    def gauges(self) -> Gauges:
        return Gauges(
            apps=self.apps,
            circuits=self.circuits,
            open_sessions=self.open_sessions,
            health=self.health_check,
            queues=self.queues,
            keys=self.key_figures,
            shared=self.repository.shared,
            clock=self.clock,
        )

    @cached_property
    def key_figures(self) -> KeyFigures:
        return KeyFigures()

    @cached_property
    def sharing(self) -> Sharing:
        return Sharing(
            place=self.metrics_folder,
            metrics=self.metrics,
            now=self.gauges.of_process,
            circuits=self.shared_circuits.left,
        )

    @cached_property
    def services(self) -> Services:
        return Services(
            config=self.config,
            contexts=self.contexts,
            turns=self.turns,
            api_keys=self.api_keys,
            pending=self.pending,
            outcomes=self.outcomes,
            pending_codes=self.pending_codes,
            connections=self.connections,
            sessions=self.sessions,
            grants=self.grants,
            erasure=self.erasure,
            mcp_clients=self.mcp_clients,
            dead_letters=self.dead_letters,
            events=self.events,
            injector=self.injector,
            audit=self.audit,
            clock=self.clock,
            life=self.life,
        )

    async def _circuits_of_other_workers(self) -> list[Left]:
        """Return what the other workers have left. A folder that cannot be read has none."""
        with suppress(OSError):
            if self.metrics_folder is not None:
                return await asyncio.to_thread(self.metrics_folder.circuits)
        return []
