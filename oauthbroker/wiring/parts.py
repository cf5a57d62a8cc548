"""The services on the flows: token calls, events, turns, what operators and users see; and the `Broker` over them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.browser_sessions import BrowserSessions
from oauthbroker.access.oauth_contexts import OAuthContexts
from oauthbroker.access.turns import Turns
from oauthbroker.admin.admin_actions import Admin
from oauthbroker.admin.gauges import Gauges, KeyFigures
from oauthbroker.admin.open_circuits import Left, SharedCircuits
from oauthbroker.admin.operator_login import OperatorLogin
from oauthbroker.admin.overview import Overview
from oauthbroker.authorization.expiring import Expiring
from oauthbroker.authorization.pages_service import PagesService
from oauthbroker.authorization.pending_blocks import Pending
from oauthbroker.authorization.retry import RetryService
from oauthbroker.diagnostics.health import HealthCheck
from oauthbroker.events.backends import queues_of
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.events.forwarding.agent_forwarder import ForwardingParts
from oauthbroker.events.forwarding.running import Forwarding
from oauthbroker.events.outbox_relay import Relay
from oauthbroker.events.port import Queues
from oauthbroker.events.waits import Events, Outcomes
from oauthbroker.grants.connections import Connections
from oauthbroker.grants.erasure import Erasure
from oauthbroker.grants.grants import Grants, Secrets, SessionList
from oauthbroker.grants.importing import Importing
from oauthbroker.grants.plugin_erasure import PluginErasure
from oauthbroker.injection.injector import Injector
from oauthbroker.observability.shared_metrics import Sharing
from oauthbroker.protocol.network.api_transport import ApiLimits
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.records.use import GrantUse
from oauthbroker.services import Services
from oauthbroker.tokens.consent_requests import ConsentRequests
from oauthbroker.tokens.credential_rejections import CredentialRejections
from oauthbroker.tokens.grant_uses import Uses
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.tokens.token_call import Calls
from oauthbroker.tokens.token_issuer import TokenIssuer
from oauthbroker.wiring.flows import Flows
from oauthbroker.wiring.plugin_lifecycle import RunningPlugins
from oauthbroker.wiring.storage import api_keys


class Parts(Flows):
    """All parts of one broker."""

    @cached_property
    def manager(self) -> OAuthManager:
        return OAuthManager(
            calls=self.calls,
            repository=self.repository,
            consent_requests=ConsentRequests(
                opening=self.opening,
                authorization_urls=self.authorization_urls,
                metrics=self.metrics,
                settings=self.settings,
            ),
            mcp_clients=self.mcp_clients,
            late_facts=self.late_facts,
            rejections=CredentialRejections(
                repository=self.repository, checks=self.credential_checks, clock=self.clock
            ),
            refresh=self.refresh,
            issuer=self.token_issuer,
            clock=self.clock,
            audit=self.audit,
            metrics=self.metrics,
            settings=self.settings,
            log=self.log,
        )

    @cached_property
    def token_issuer(self) -> TokenIssuer:
        return TokenIssuer(
            calls=self.calls,
            repository=self.repository,
            background=self.background_refresh,
            clock=self.clock,
            audit=self.audit,
            metrics=self.metrics,
            uses=self.uses,
            scrubber=self.scrubber,
        )

    @cached_property
    def calls(self) -> Calls:
        return Calls(self.apps, self.limits.default_min_ttl_seconds)

    @cached_property
    def contexts(self) -> OAuthContexts:
        return OAuthContexts(manager=self.manager, config=self.config, injector=self.injector)

    @cached_property
    def injector(self) -> Injector:
        return Injector(self.api_transport, ApiLimits())

    @cached_property
    def turns(self) -> Turns:
        return Turns(
            records=self.repository.records("turns", TurnRecord.from_plaintext),
            config=self.config,
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def api_keys(self) -> ApiKeys:
        return api_keys(self.repository, self.clock, self.audit)

    @cached_property
    def queues(self) -> Queues:
        return queues_of(
            self.repository, clock=self.clock, limits=self.limits, metrics=self.metrics, notifier=self.changes
        )

    @cached_property
    def relay(self) -> Relay:
        return Relay(repository=self.repository, queues=self.queues, notifier=self.changes)

    @cached_property
    def events(self) -> Events:
        return Events(queues=self.queues, clock=self.clock, notifier=self.changes, life=self.life, config=self.config)

    @cached_property
    def forwarding(self) -> Forwarding:
        parts = ForwardingParts(
            queues=self.queues,
            repository=self.repository,
            clock=self.clock,
            limits=self.limits,
            metrics=self.metrics,
            notifier=self.changes,
            log=self.log,
        )
        return Forwarding(self.config, parts)

    @cached_property
    def outcomes(self) -> Outcomes:
        return Outcomes(repository=self.repository, clock=self.clock, notifier=self.changes, life=self.life)

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
    def pages_service(self) -> PagesService:
        return PagesService(
            apps=self.apps,
            connect=self.connect,
            choices=self.choices,
            callback=self.callback,
            logins=self.logins,
            pending_codes=self.pending_codes,
            credential_entry=self.credential_entry,
            mcp_clients=self.mcp_clients,
            discovery=self.discovery,
            clock=self.clock,
            config=self.config,
        )

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
    def retry_service(self) -> RetryService:
        return RetryService(apps=self.apps, connect=self.connect, opening=self.opening, clock=self.clock)

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
    def uses(self) -> Uses:
        return Uses(self.repository.records("uses", GrantUse.from_plaintext), self.clock)

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
    def overview(self) -> Overview:
        return Overview(
            current=self.config,
            repository=self.repository,
            pages=self.grants.pages,
            shared_circuits=self.shared_circuits,
            uses=self.uses,
            trail=self.audit_trail,
            clock=self.clock,
        )

    @cached_property
    def admin(self) -> Admin:
        return Admin(
            overview=self.overview,
            dead_letters=self.dead_letters,
            grants=self.grants,
            connect=self.connect,
            browser_sessions=self.browser_sessions,
            api_keys=self.api_keys,
            login=self.operator_login,
            clock=self.clock,
            audit=self.audit,
        )

    @cached_property
    def operator_login(self) -> OperatorLogin:
        return OperatorLogin(
            config=self.config,
            discovery=self.discovery,
            authorization_urls=self.authorization_urls,
            claims=self.login_claims,
        )

    @cached_property
    def health_check(self) -> HealthCheck:
        return HealthCheck(
            config=self.config, retry_store=self.retry_store, audit=self.audit, plugins=self.plugins.findings
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
