"""What every part of one broker stands on: its configuration, records, time, notes, and the way to providers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.lines import AuditTrail
from oauthbroker.audit.on_failure import AuditAnyway
from oauthbroker.audit.port import AuditWriter
from oauthbroker.authorization.client_registrations import ClientRegistrations
from oauthbroker.authorization.mcp_clients import McpClients
from oauthbroker.core.clock import CertainTime, Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.lifecycle import Life, Notifier
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.observability.repeats import StoreOutage
from oauthbroker.observability.shared_metrics import MetricsFolder
from oauthbroker.observability.transcript_scrubber import Scrubber
from oauthbroker.protocol.authorization_urls import AuthorizationUrls
from oauthbroker.protocol.client_requests import ClientRequests
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.fact_requests import FactReader
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.protocol.network.api_transport import ApiTransport
from oauthbroker.protocol.network.instrumentation import Instrumentation
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.protocol.protected_resource import ProtectedResources
from oauthbroker.repository.repository import Repository


@dataclass(kw_only=True, eq=False, repr=False)
class Foundation:
    """The given objects, and the ones that need only these. Each part is built when it is first asked for.

    `mac` computes 32 bytes that only a holder of this store's keyring can compute. `audit_log` is the audit log as it
    was given. `whole`: the configuration names every app of the store. `metrics_folder` is where the processes of one
    store share their figures.
    """

    bundle: Bundle
    repository: Repository
    mac: Callable[..., bytes]
    clock: Clock
    audit_log: AuditWriter
    log: Log
    whole: bool = True
    metrics_folder: MetricsFolder | None = None

    def __post_init__(self) -> None:
        self.certain = CertainTime(self.clock)  # counts from the start of the process

    @property
    def settings(self) -> Settings:
        """What the Broker resource said when the broker was opened: a reload does not change it."""
        return self.bundle.settings

    @property
    def limits(self) -> Limits:
        return self.bundle.settings.limits

    @cached_property
    def config(self) -> CurrentConfig:
        return CurrentConfig(self.bundle)

    @property
    def apps(self) -> dict[str, App]:
        return self.config.apps

    @cached_property
    def metrics(self) -> Metrics:
        return Metrics()

    @cached_property
    def outage(self) -> StoreOutage:
        return StoreOutage(self.clock, self.log)

    @cached_property
    def scrubber(self) -> Scrubber:
        return Scrubber()

    @cached_property
    def outbox(self) -> Notifier:
        """Notifies when an event waits to be queued. `changes` notifies with it."""
        return Notifier(then=self.changes)

    @cached_property
    def changes(self) -> Notifier:
        """Notifies when anything has changed that a caller may wait for."""
        return Notifier()

    @cached_property
    def life(self) -> Life:
        return Life(self.outbox)

    @cached_property
    def audit(self) -> AuditWriter:
        """The audit log, with the setting for a log that cannot be written."""
        if self.settings.audit_on_failure == "continue":
            return AuditAnyway(kept=self.audit_log, clock=self.clock, metrics=self.metrics, tell=self.log.warning)
        return self.audit_log

    @cached_property
    def audit_trail(self) -> AuditTrail:
        return self.audit.trail(AuditKeys(self.mac).name)

    @cached_property
    def transport(self) -> Transport:
        return Transport(
            plain_http_loopback="plainHttpProvider" in self.settings.weaken,
            reach=ProviderNetworks(self.settings.provider_networks),
            proxy=self.settings.outgoing_proxy,
            watch=Instrumentation(self.metrics, self.clock),
        )

    @cached_property
    def api_transport(self) -> ApiTransport:
        return ApiTransport(self.transport)

    @cached_property
    def discovery(self) -> Discovery:
        return Discovery(self.transport, self.clock, self.limits)

    @cached_property
    def mcp_clients(self) -> McpClients:
        return McpClients(
            repository=self.repository,
            resources=ProtectedResources(transport=self.transport, limits=self.limits),
            registrations=ClientRegistrations(
                discovery=self.discovery,
                transport=self.transport,
                clock=self.clock,
                limits=self.limits,
                log=self.log,
                document_base=self.settings.public_base_url,
            ),
            config=self.config,
            clock=self.clock,
            limits=self.limits,
            log=self.log,
            document_base=self.settings.public_base_url,
        )

    @cached_property
    def client_requests(self) -> ClientRequests:
        return ClientRequests(
            transport=self.transport,
            clock=self.clock,
            limits=self.limits,
            on_changed=self._another_secret_works,
            registrations=self.mcp_clients,
        )

    @cached_property
    def owners(self) -> OwnerReader:
        return OwnerReader(transport=self.transport, discovery=self.discovery, clock=self.clock, limits=self.limits)

    @cached_property
    def fact_reader(self) -> FactReader:
        return FactReader(transport=self.transport, discovery=self.discovery, limits=self.limits, log=self.log)

    @cached_property
    def authorization_urls(self) -> AuthorizationUrls:
        return AuthorizationUrls(self.client_requests, self.discovery, self.clock)

    def _another_secret_works(self, app: str, refused: int, works: int) -> None:
        """Note that a provider refuses the client secret in use and takes another one of the list."""
        self.metrics.add(Metric.CLIENT_SECRETS_REFUSED, app)
        self.log.warning(
            "a client secret is refused, another one of the list works", app=app, refused=refused, works=works
        )
