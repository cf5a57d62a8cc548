"""The manager's floor, put together: what answers, what is tended in the background, what people and operators see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from oauthbroker.api_keys import ApiKeys
from oauthbroker.apps import Bundle
from oauthbroker.audit import AuditWriter
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.gap import on_failure, trouble_of
from oauthbroker.audit.trail import AuditTrail, trail_of
from oauthbroker.clock import Clock
from oauthbroker.consent import Consent
from oauthbroker.desk.admin import Admin
from oauthbroker.desk.letters import Letters
from oauthbroker.desk.people import People
from oauthbroker.desk.survey import Survey
from oauthbroker.desk.troubles import Left, Troubles, alone
from oauthbroker.errors import Code
from oauthbroker.in_use import Health, InUse
from oauthbroker.inventory import Grants
from oauthbroker.lifecycle import Life
from oauthbroker.manager import OAuthManager
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.queues import Queues
from oauthbroker.repository import Repository
from oauthbroker.resume import Bell, Relay
from oauthbroker.retrying import Retrying
from oauthbroker.revocations import Revocations
from oauthbroker.scrubber import Scrubber
from oauthbroker.token_call import Calls
from oauthbroker.upkeep import Upkeep
from oauthbroker.wiring.flows import Flows, Means
from oauthbroker.wiring.storage import api_keys


@dataclass(frozen=True, slots=True)
class Given:
    """What a broker stands on. `mac` makes 32 bytes that only brokers with this store's keyring can make."""

    bundle: Bundle
    repository: Repository
    mac: Callable[..., bytes]
    clock: Clock
    audit: AuditWriter
    log: FilteringBoundLogger


@dataclass(frozen=True, slots=True)
class Rooms:
    """One broker's rooms, and the flows below them. `outbox` rings when an event waits to be queued, `moved` when
    anything has changed that somebody may wait for."""

    in_use: InUse
    life: Life
    scrubber: Scrubber
    metrics: Metrics
    audit: AuditWriter
    trail: AuditTrail
    outbox: Bell
    moved: Bell
    means: Means
    flows: Flows
    manager: OAuthManager
    consent: Consent
    retrying: Retrying
    queues: Queues
    relay: Relay
    upkeep: Upkeep
    revocations: Revocations
    grants: Grants
    api_keys: ApiKeys
    people: People
    admin: Admin

    @classmethod
    def of(cls, given: Given, *, whole: bool, elsewhere: Callable[[], Awaitable[list[Left]]] = alone) -> Rooms:
        """`whole`: the configuration names every app there is. `elsewhere`: the circuits of other workers."""
        in_use, repository, clock, log = InUse(given.bundle), given.repository, given.clock, given.log
        apps, settings = in_use.apps, given.bundle.settings
        metrics, outbox, moved, scrubber = Metrics(), Bell(), Bell(), Scrubber()

        def wake() -> None:
            outbox.ring()
            moved.ring()

        audit = on_failure(settings.audit_on_failure, given.audit, clock, metrics, log.warning)
        trail = trail_of(audit, AuditKeys(given.mac).name)
        means = Means.of(settings, repository, clock, audit, metrics, log.warning, _telling_of_secrets(log, metrics))
        flows = Flows.on(means, in_use, wake, whole=whole)
        revocations = Revocations(repository, flows.revoke, apps.get, clock)
        upkeep = Upkeep(repository, flows.refresh, apps.get, clock)
        queues = Queues(repository, clock, settings.limits, metrics)
        grants = Grants(apps, repository, clock, flows.revoke, revocations, flows.importing(means, apps))
        keys = api_keys(repository, clock, audit)
        people = People.of(apps, repository, grants, flows.opening, settings, clock, audit)
        survey = Survey(in_use, repository, Troubles(flows.circuits, clock, elsewhere), people.uses, trail, clock)
        letters = Letters(repository, queues, clock, audit)
        return cls(
            in_use=in_use,
            life=Life(wake),
            scrubber=scrubber,
            metrics=metrics,
            audit=audit,
            trail=trail,
            outbox=outbox,
            moved=moved,
            means=means,
            flows=flows,
            manager=OAuthManager(
                Calls(apps, settings.limits.default_min_ttl_seconds), repository, flows.opening, flows.connect,
                flows.refresh, upkeep.in_use, clock, audit, metrics, settings, people.uses.note, scrubber.remember,
                log.error,
            ),
            consent=Consent(
                apps, flows.connect, flows.callback, flows.logins, flows.parking, means.discovery, clock,
                lambda: in_use.bundle,
            ),
            retrying=Retrying(apps, flows.connect, flows.opening, clock),
            queues=queues,
            relay=Relay(repository, queues, revocations, moved),
            upkeep=upkeep,
            revocations=revocations,
            grants=grants,
            api_keys=keys,
            people=people,
            admin=Admin(survey, letters, grants, flows.connect, people.visits, keys, clock, audit),
        )  # fmt: skip

    def health(self) -> Health:
        """Whether an operator is needed."""
        unstored = Code.STORE_UNAVAILABLE if self.flows.keeper.unstored else None
        codes = (self.in_use.trouble, unstored, trouble_of(self.audit))
        return Health(tuple(code.value for code in codes if code is not None))


def _telling_of_secrets(log: FilteringBoundLogger, metrics: Metrics) -> Callable[[str, int, int], None]:
    """What is said when a provider refuses the client secret in use and takes another one of the list."""

    def tell(app: str, refused: int, works: int) -> None:
        metrics.add(Metric.CLIENT_SECRETS_REFUSED, app)
        log.warning("a client secret is refused, another one of the list works", app=app, refused=refused, works=works)

    return tell
