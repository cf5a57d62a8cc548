"""The one place that builds everything: settings -> objects; start, stop. No other file knows how parts fit."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from starlette.routing import BaseRoute
from structlog.typing import FilteringBoundLogger

from oauthbroker.admin import Admin
from oauthbroker.api_keys import ApiKeys
from oauthbroker.apps import Bundle
from oauthbroker.assembly import Flows, Means
from oauthbroker.audit import AuditList, AuditWriter
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.gap import on_failure, trouble_of
from oauthbroker.audit.trail import FileTrail, trail_of
from oauthbroker.broker import Broker
from oauthbroker.clock import Clock, SystemClock
from oauthbroker.config import Loaded, load, resolve
from oauthbroker.config.settings import with_key_file
from oauthbroker.confirming import Confirming
from oauthbroker.consent import Consent
from oauthbroker.errors import BrokerError, Code
from oauthbroker.gauges import Gauges
from oauthbroker.in_use import Health, InUse
from oauthbroker.inspection import Inspection
from oauthbroker.inventory import GrantList, Grants, Secrets, Vault
from oauthbroker.letters import Letters
from oauthbroker.lifecycle import Life
from oauthbroker.manager import OAuthManager
from oauthbroker.metrics import Metric, Metrics
from oauthbroker.metrics_folder import MetricsFolder, Sharing
from oauthbroker.pending import Pending
from oauthbroker.people import People
from oauthbroker.queues import Queues
from oauthbroker.records.api_key import ApiKey
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.reload import Read, Reload, Source
from oauthbroker.repository import KINDS, LEASES, Repository
from oauthbroker.resume import Bell, Events, Outcomes, Relay
from oauthbroker.revocations import Revocations
from oauthbroker.scrubber import Scrubber
from oauthbroker.settings import Settings
from oauthbroker.store.file import FileStore
from oauthbroker.store.kek import EnvKek, FileKek, KeyProvider
from oauthbroker.store.keys import Keyring
from oauthbroker.store.memory import MemoryStore
from oauthbroker.store.read_only import look_at
from oauthbroker.survey import Survey
from oauthbroker.tending import House
from oauthbroker.turns import Turns
from oauthbroker.upkeep import Upkeep
from oauthbroker.web.access_log import json_log
from oauthbroker.web.admin_pages import AdminPages
from oauthbroker.web.api.caller import Callers
from oauthbroker.web.api.routes import api_routes
from oauthbroker.web.app import build_web
from oauthbroker.web.connections_pages import ConnectionsPages
from oauthbroker.web.consent_pages import ConsentPages
from oauthbroker.web.health import Readiness, health_routes
from oauthbroker.web.metrics_page import Scrape, metrics_routes, operators_only

KEY_ENV = "OAUTHBROKER_KEY"
CREDENTIALS_ENV = "CREDENTIALS_DIRECTORY"
CREDENTIAL = "oauthbroker.kek"
AnyStore = FileStore | MemoryStore


@asynccontextmanager
async def open_broker(  # noqa: PLR0913  (each has a default that is right for most)
    config: str | Path | Bundle = "config",
    *,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    store: AnyStore | None = None,
    audit: AuditWriter | None = None,
    log: FilteringBoundLogger | None = None,
    background: bool = True,
    only: Collection[str] | None = None,
    metrics_folder: Path | None = None,
    workers: int = 1,
) -> AsyncIterator[Broker]:
    """A running broker over a configuration folder, or over a `Bundle` built in code.

    `store`, `clock`, `audit` and `log` default to the file store of the settings, the system's clock, a file of JSON
    lines in the store, and JSON on stderr. `background=False` runs no relay and no sweeper (for short commands); `only`
    are then the apps it knows, so that nobody else's values are needed. Several processes that share a
    `metrics_folder` answer `/metrics` for all of them; each of `workers` processes of one store takes its part of the
    limits that hold for all.
    Raises ConfigRefused with every problem, or a store code; nothing has been changed then. Leaving the block waits
    for exchanges and commits under way.
    """
    clock, env = clock or SystemClock(), os.environ if env is None else env
    log = log or json_log(sys.stderr, clock)
    async with AsyncExitStack() as stack:
        loaded = config if isinstance(config, Bundle) else load(config)
        if store is None:
            store = open_store(with_keys(loaded.settings, env), env, clock, log)
        repository = Repository(store, _reporting(log))
        stack.push_async_callback(repository.close)
        bundle = loaded if isinstance(loaded, Bundle) else await _resolved(loaded, env, repository, only)
        bundle = _one_of(workers, bundle)
        audit = audit or _default_audit(bundle.settings, store, log)
        stack.callback(audit.close)
        for name in _weakenings(bundle.settings, pages=background):
            log.warning("a check is off", weaken=name)

        async def read(given: Source) -> Bundle:
            given = config if given is None else given
            if isinstance(given, Bundle):
                return _one_of(workers, given)
            return _one_of(workers, await _resolved(await asyncio.to_thread(load, given), env, repository, only))

        place = await asyncio.to_thread(MetricsFolder.open, metrics_folder, clock) if metrics_folder else None
        house = _build(bundle, repository, store, clock, audit, log, whole=only is None, read=read, place=place)
        stack.push_async_callback(house.close)
        await house.start(background=background)
        yield house.broker


@asynccontextmanager
async def open_vault(
    settings: Settings, *, env: Mapping[str, str] | None = None, clock: Clock | None = None
) -> AsyncIterator[Vault]:
    """The store without a broker: secrets can be set while the configuration still lacks them, and grants be listed
    in a shell that has none of its values. Raises store codes."""
    clock, env = clock or SystemClock(), os.environ if env is None else env
    log = json_log(sys.stderr, clock)
    async with AsyncExitStack() as stack:
        store = open_store(with_keys(settings, env), env, clock, log)
        repository = Repository(store, _reporting(log))
        stack.push_async_callback(repository.close)
        audit = _audit_file(settings, store, log)
        stack.callback(audit.close)
        trail = FileTrail(audit.folder, audit.keys)
        secrets, keys = Secrets(repository, clock, audit), _api_keys(repository, clock, audit)
        yield Vault(secrets, GrantList(repository), keys, trail)


def look_into(settings: Settings, keyring: Keyring, clock: Clock) -> tuple[FileStore, Inspection] | None:
    """The store for a checkup, while a broker may work on it: nothing is written and no lock is taken. None for one
    that no broker has opened yet. Raises store codes."""
    damaged: list[str] = []

    def report(place: str, _: Code) -> None:
        damaged.append(place)

    opened = look_at(Path(settings.store_root), keyring, kinds=KINDS, clock=clock, on_damage=report)
    if opened is None:
        return None
    store, kinds = opened
    repository = Repository(store, report)
    keys = _api_keys(repository, clock, AuditList())
    return store, Inspection(repository, keys, kinds, clock, settings.limits, damaged)


def open_store(settings: Settings, env: Mapping[str, str], clock: Clock, log: FilteringBoundLogger) -> FileStore:
    """The file store of the settings, unlocked. Raises `keyUnknown`, `keyMismatch`, `storePermissions`."""
    root = Path(settings.store_root)
    keyring = Keyring.load(_keyring_path(settings), key_provider(settings, env, log))
    return FileStore.open(
        root,
        keyring,
        kinds=KINDS,
        lease_kinds=LEASES,
        clock=clock,
        on_damage=_reporting(log),
    )


def _reporting(log: FilteringBoundLogger) -> Callable[[str, Code], None]:
    """What is said of entries and records that cannot be read: a kind, the first digits of a name, and why."""
    return lambda place, code: log.error("unreadable", place=place, code=code.value)


def _telling_of_secrets(log: FilteringBoundLogger, metrics: Metrics) -> Callable[[str, int, int], None]:
    """What is said when a provider refuses the client secret in use and takes another one of the list."""

    def tell(app: str, refused: int, works: int) -> None:
        metrics.add(Metric.CLIENT_SECRETS_REFUSED, app)
        log.warning("a client secret is refused, another one of the list works", app=app, refused=refused, works=works)

    return tell


def init_store(settings: Settings, clock: Clock) -> tuple[bool, Path]:
    """Makes the key file (unless there is one) and the keyring; (whether the key is new, where it is).

    Raises `keyExists` where a keyring is: nothing is ever overwritten.
    """
    path, root = Path(settings.key_file), Path(settings.store_root)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    is_new = not path.exists()
    if is_new and _keyring_path(settings).exists():
        raise BrokerError(Code.KEY_UNKNOWN, note="the store has a keyring, but its key file is missing")
    kek = FileKek.create(path, store_root=root) if is_new else FileKek.open(path, store_root=root)
    Keyring.create(_keyring_path(settings), kek, clock=clock)
    return is_new, path


def key_provider(settings: Settings, env: Mapping[str, str], log: FilteringBoundLogger) -> KeyProvider:
    """Where the KEK comes from: the environment (with a warning), a systemd credential, or the key file."""
    if env.get(KEY_ENV):
        log.warning("the key comes from the environment, which keeps it readable; use a key file")
        return EnvKek(env[KEY_ENV])
    root = Path(settings.store_root)
    credential = Path(env[CREDENTIALS_ENV], CREDENTIAL) if env.get(CREDENTIALS_ENV) else None
    if credential is not None and credential.exists():
        return FileKek.open(credential, store_root=root)
    return FileKek.open(Path(settings.key_file), store_root=root)


def with_keys(settings: Settings, env: Mapping[str, str]) -> Settings:
    """The settings with `key_file` filled in from the environment or the default."""
    return replace(settings, key_file=with_key_file(settings, env))


async def _as_given(given: Source) -> Bundle:
    """For a house that was built from a bundle and knows no folder."""
    if not isinstance(given, Bundle):
        raise BrokerError(Code.REQUEST_INVALID, note="nothing to read the configuration from")
    return given


async def _resolved(
    loaded: Loaded, env: Mapping[str, str], repository: Repository, only: Collection[str] | None
) -> Bundle:
    secrets = await repository.secrets() if loaded.secret_keys else {}
    return resolve(loaded, env, secrets, only=only)


def _one_of(workers: int, bundle: Bundle) -> Bundle:
    """What one of so many processes goes by."""
    limits = bundle.settings.limits.shared_by(workers)
    return replace(bundle, settings=replace(bundle.settings, limits=limits))


def _default_audit(settings: Settings, store: AnyStore, log: FilteringBoundLogger) -> AuditWriter:
    """Beside the records; in memory for a store in memory."""
    return AuditList() if isinstance(store, MemoryStore) else _audit_file(settings, store, log)


def _audit_file(settings: Settings, store: FileStore, log: FilteringBoundLogger) -> AuditFile:
    keys = AuditKeys(store.mac)
    return AuditFile(_data(settings), keys, most_bytes=settings.audit_max_bytes, tell=log.warning)


def _weakenings(settings: Settings, *, pages: bool) -> list[str]:
    """What is said aloud at start. Pages without TLS, which only loopback may have, set cookies without `Secure`."""
    plain = pages and settings.public_base_url.startswith("http:")
    return sorted(settings.weaken) + (["plainHttpPages"] if plain else [])


def _data(settings: Settings) -> Path:
    return Path(settings.store_root) / "data"


def _keyring_path(settings: Settings) -> Path:
    return _data(settings) / "keyring"


def _api_keys(repository: Repository, clock: Clock, audit: AuditWriter) -> ApiKeys:
    return ApiKeys(repository.shelf("apikeys", ApiKey.from_plaintext), clock, audit)


def _build(  # noqa: PLR0913  (what open_broker was given or made)
    bundle: Bundle,
    repository: Repository,
    store: AnyStore,
    clock: Clock,
    audit: AuditWriter,
    log: FilteringBoundLogger,
    *,
    whole: bool = True,
    read: Read | None = None,
    place: MetricsFolder | None = None,
) -> House:
    in_use, settings = InUse(bundle), bundle.settings
    apps, metrics, outbox, moved = in_use.apps, Metrics(), Bell(), Bell()

    def wake() -> None:
        outbox.ring()
        moved.ring()

    life, scrubber = Life(wake), Scrubber()
    audit = on_failure(settings.audit_on_failure, audit, clock, metrics, log.warning)
    means = Means.of(settings, repository, clock, audit, metrics, log.warning, _telling_of_secrets(log, metrics))
    flows = Flows.on(means, in_use, wake, whole=whole)
    revocations = Revocations(repository, flows.revoke, apps.get, clock)
    upkeep = Upkeep(repository, flows.refresh, apps.get, clock)
    queues = Queues(repository, clock, settings.limits, metrics)
    relay = Relay(repository, queues, revocations, moved)
    consent = Consent(
        apps, flows.connect, flows.callback, flows.parking, means.discovery, clock, lambda: in_use.bundle.settings
    )

    def health() -> Health:
        unstored = Code.STORE_UNAVAILABLE if flows.keeper.unstored else None
        codes = (in_use.trouble, unstored, trouble_of(audit))
        return Health(tuple(code.value for code in codes if code is not None))

    readiness = Readiness(repository.probe, life, clock)
    gauges = Gauges(apps, flows.circuits, flows.opening.quota, health, queues, clock)
    scrape = Scrape(metrics, gauges, apps, place)
    operators = operators_only(Callers(lambda: broker, settings), loopback=settings.admin_loopback)

    def healthy() -> list[BaseRoute]:
        return health_routes(health, readiness) + metrics_routes(scrape, operators)

    calls = api_routes(lambda: broker, settings, clock)

    def api() -> list[BaseRoute]:
        return calls

    def mac(message: bytes) -> bytes:
        return store.mac("csrf", message.hex())

    grants = Grants(apps, repository, flows.revoke, revocations, flows.importing(means, apps))
    people = People.of(apps, repository, grants, flows.opening, settings, clock, audit)
    consent_pages = ConsentPages(consent, settings, mac, clock)
    connections_pages = ConnectionsPages(people.connections, settings, mac, clock)
    api_keys, trail = _api_keys(repository, clock, audit), trail_of(audit, AuditKeys(store.mac).name)
    survey = Survey(in_use, repository, flows.circuits, people.uses, trail, clock)
    letters = Letters(repository, queues, clock)
    admin = Admin(survey, letters, grants, flows.connect, people.visits, api_keys, clock, audit)
    admin_pages = AdminPages(admin, settings, mac, clock)
    pages = [consent_pages.routes, connections_pages.routes, admin_pages.routes, healthy]
    web = build_web(pages, [healthy, api], settings, clock, log, metrics)

    def follow(changed: Collection[str]) -> None:
        web.follow()
        for name in changed:
            flows.forget_troubles(name)

    manager = OAuthManager(
        apps, repository, flows.opening, flows.connect, flows.refresh, upkeep.in_use, clock, audit, metrics, settings,
        people.uses.note, scrubber.remember,
    )  # fmt: skip
    broker = Broker(
        in_use=in_use,
        manager=manager,
        consent=consent,
        events=Events(queues, clock, moved, life),
        grants=grants,
        secrets=Secrets(repository, clock, audit),
        outcomes=Outcomes(repository, clock, moved, life),
        waiting=Pending(apps, repository, flows.connect, settings, clock),
        confirming=Confirming(apps, flows.parking),
        clock=clock,
        audit=audit,
        metrics=metrics,
        web=web.both,
        doors=web,
        life=life,
        reloading=Reload(in_use, read or _as_given, follow, lambda: flows.sweep.end_outdated(apps.get), log),
        checkup=health,
        turns=Turns(repository.shelf("turns", TurnRecord.from_plaintext), lambda: in_use.bundle, clock, audit),
        api_keys=api_keys,
        people=people,
        scrubber=scrubber,
        audit_trail=trail,
    )
    sharing = Sharing(place, metrics, gauges.of_process)
    return House(broker, relay, upkeep, flows, means.transport, outbox, sharing, log)
