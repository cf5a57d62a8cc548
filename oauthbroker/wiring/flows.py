"""The floors below the manager, put together: what every part needs, and the flows that stand on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oauthbroker.apps import BrokerLogin, OAuthApp
from oauthbroker.audit import AuditWriter
from oauthbroker.circuit import Circuits
from oauthbroker.clock import Clock
from oauthbroker.flows.callback import Callback
from oauthbroker.flows.connect import Connect
from oauthbroker.flows.device import DeviceCodes
from oauthbroker.flows.exchange import Exchange
from oauthbroker.flows.fetch import Fetch
from oauthbroker.flows.finish import Finish
from oauthbroker.flows.login import Logins
from oauthbroker.flows.opening import Opening
from oauthbroker.flows.parking import Parking
from oauthbroker.flows.polling import Polling
from oauthbroker.flows.refresh import Refresh
from oauthbroker.flows.revoke import Revoke
from oauthbroker.flows.sweep import Sweep
from oauthbroker.importing import Importing
from oauthbroker.in_use import InUse
from oauthbroker.keeper import Keeper, Tell
from oauthbroker.kin import Kin
from oauthbroker.metrics import Metrics
from oauthbroker.protocol.asker import Asker, Notice
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.identity import OwnerReader
from oauthbroker.protocol.redeem import Redeemer
from oauthbroker.protocol.transport import Transport
from oauthbroker.protocol.watch import Watch
from oauthbroker.protocol.way_out import WayOut
from oauthbroker.quota import OpenSessions
from oauthbroker.reach import Reach
from oauthbroker.renewing import Renewing
from oauthbroker.repository import Repository
from oauthbroker.settings import Limits, Settings


@dataclass(frozen=True, slots=True)
class Means:
    """What every part may use: the store's records, the provider's endpoints, time, and the three kinds of notes."""

    repository: Repository
    transport: Transport
    discovery: Discovery
    asker: Asker
    owners: OwnerReader
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    limits: Limits
    tell: Tell

    @classmethod
    def of(
        cls,
        settings: Settings,
        repository: Repository,
        clock: Clock,
        audit: AuditWriter,
        metrics: Metrics,
        tell: Tell,
        on_changed: Notice,
    ) -> Means:
        limits = settings.limits
        plain_http = "plainHttpProvider" in settings.weaken
        reach = Reach(settings.provider_networks)
        transport = Transport(plain_http_loopback=plain_http, reach=reach, watch=Watch(metrics, clock))
        discovery = Discovery(transport, clock, limits)
        asker = Asker(transport, clock, limits, on_changed)
        owners = OwnerReader(transport, discovery, clock, limits)
        return cls(repository, transport, discovery, asker, owners, clock, audit, metrics, limits, tell)


@dataclass(frozen=True, slots=True)
class Flows:
    """One broker's flows, with what outlives one call of them: circuits, and what a bad disk has not taken yet."""

    opening: Opening
    connect: Connect
    callback: Callback
    exchange: Exchange
    logins: Logins
    parking: Parking
    polling: Polling
    refresh: Refresh
    revoke: Revoke
    sweep: Sweep
    keeper: Keeper
    circuits: tuple[Circuits, ...]

    @classmethod
    def on(cls, means: Means, in_use: InUse, wake: Callable[[], None], *, whole: bool) -> Flows:
        """`wake` is called when an event waits to be queued. `whole`: the configuration names every app there is."""
        repository, asker, discovery, tell = means.repository, means.asker, means.discovery, means.tell
        clock, audit, metrics, limits = means.clock, means.audit, means.metrics, means.limits
        apps, expired_events = in_use.apps, in_use.bundle.settings.expired_events
        kin = Kin(repository, clock, apps if whole else None)
        finish = Finish(repository, means.owners, clock, audit, metrics, kin.learn, wake, tell)
        quota = OpenSessions(limits)
        of_revoke, of_devices = Circuits(clock), Circuits(clock)
        of_refresh = Circuits(clock, limits.provider_concurrency)
        revoke = Revoke(repository, asker, discovery, clock, audit, limits, kin, of_revoke, wake, tell)
        polling = Polling(
            repository, asker, discovery, finish, revoke.tokens, apps.get, quota.ended, clock, limits, tell,
            expired_events,
        )  # fmt: skip
        devices = DeviceCodes(asker, means.transport.check_url, discovery, of_devices, clock, tell, polling.watch)
        keeper = Keeper(clock, metrics, tell)
        renewing = Renewing(repository, keeper, revoke.tokens, revoke.late, clock, audit, metrics, tell)
        exchange = Exchange(asker, discovery, finish, revoke.tokens, quota.ended, clock, limits)
        way_out = WayOut(asker, discovery, clock)

        def login() -> BrokerLogin | None:
            return in_use.bundle.login

        redeemer, fetch = Redeemer(asker, means.owners, clock), Fetch(repository, asker, discovery, clock)
        return cls(
            opening=Opening(repository, finish, quota, devices, way_out, login, clock, audit, limits, tell),
            connect=Connect(repository, way_out, discovery, finish, quota, clock, audit),
            callback=Callback(repository, discovery, finish, exchange, quota.ended, login, clock),
            exchange=exchange,
            logins=Logins(
                repository, discovery, way_out, means.owners, finish, exchange, login, apps.get, quota.ended, clock
            ),
            parking=Parking(repository, finish, exchange, apps.get, quota.ended, clock),
            polling=polling,
            refresh=Refresh(repository, discovery, redeemer, fetch, renewing, of_refresh, clock, limits, tell),
            revoke=revoke,
            sweep=Sweep(repository, finish, quota.ended, clock, limits, expired_events, polling.watch),
            keeper=keeper,
            circuits=(of_revoke, of_devices, of_refresh),
        )

    def importing(self, means: Means, apps: Mapping[str, OAuthApp]) -> Importing:
        """What takes over grants of another system; renewals and revocations know of each."""
        return Importing(apps, means.repository, self.refresh, means.clock, means.audit, self.revoke.kin.learn)

    def forget_troubles(self, app: str) -> None:
        """The app was mended: it is asked for at once, whatever went wrong with it before."""
        for each in self.circuits:
            each.worked(app)
