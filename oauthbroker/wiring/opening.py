"""Open a broker: read its configuration, open its store, build its parts, start them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from oauthbroker.audit.port import AuditWriter
from oauthbroker.broker import Broker
from oauthbroker.config.key_file import with_keys
from oauthbroker.config.reload import Source
from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, ConfigCauseError, check_argument
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.events.forwarding.jetstream import INSTALL
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.forwarders import Nats
from oauthbroker.observability.logging import Log, logger_log
from oauthbroker.observability.shared_metrics import MetricsFolder
from oauthbroker.repository.repository import Repository
from oauthbroker.repository.store_age import StoreAge
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.rotation import KeyRotation
from oauthbroker.wiring.parts import Parts
from oauthbroker.wiring.running import Running
from oauthbroker.wiring.storage import default_audit, open_store, reporting

if TYPE_CHECKING:
    from oauthbroker.config import Loaded
    from oauthbroker.config.written.app_resources import AppResource


@asynccontextmanager
async def open_broker(  # noqa: PLR0913  (each has a default that is right for most)
    config: str | Path | Bundle = "config",
    *,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
    audit: AuditWriter | None = None,
    log: Log | None = None,
    background: bool = True,
    only: Collection[str] | None = None,
    metrics_folder: Path | None = None,
    workers: int = 1,
    apps: Sequence[AppResource] | None = None,
) -> AsyncIterator[Broker]:
    """Run a broker over a configuration folder, or over a `Bundle` built in code. `apps` come on top of a folder, or
    are the whole bundle if there is none.

    `env` defaults to the process's environment and, below it, a `.env` beside the folder. `store`, `clock`, `audit`
    and `log` default to the file store of the settings, the system's clock, a file of JSON lines in the store, and
    the logger `oauthbroker` of `logging`. `background=False` runs no relay and no sweeper, and does not say which
    checks are off (for short commands); `only` are then the apps and plug-ins it knows, so that no other values are
    needed, and events that are due are queued at its end. Several processes that share a `metrics_folder` answer
    `/metrics` for all of them; each of `workers` processes of one store takes its part of the limits that hold for
    all. Raises ConfigInvalidError with every problem, or a store code; nothing has been changed then. Leaving the
    block waits for exchanges and commits under way.
    """
    check_argument(type(workers) is int and workers > 0, "workers", "the number of processes, from 1")
    check_argument(all(hasattr(app, "document") for app in apps or ()), "apps", "what `oauth_app(...)` returned")
    async with open_running(
        config,
        env=_environment(config) if env is None else env,
        clock=clock or SystemClock(),
        store=store,
        audit=audit,
        log=log,
        background=background,
        only=only,
        metrics_folder=metrics_folder,
        workers=workers,
        apps=apps,
    ) as running:
        yield running.broker


@asynccontextmanager
async def open_running(  # noqa: PLR0913  (those of `open_broker`)
    config: str | Path | Bundle,
    *,
    env: Mapping[str, str],
    clock: Clock,
    store: Store | None = None,
    audit: AuditWriter | None = None,
    log: Log | None = None,
    background: bool = True,
    only: Collection[str] | None = None,
    metrics_folder: Path | None = None,
    workers: int = 1,
    apps: Sequence[AppResource] | None = None,
) -> AsyncIterator[Running]:
    """Open a broker with all its parts, as `open_broker` does."""
    log = log or logger_log()
    async with AsyncExitStack() as stack:
        loaded = config if isinstance(config, Bundle) else _load(config, env, apps)
        rotation: KeyRotation | None = None
        age: StoreAge | None = None
        if store is None:
            store, rotation, age = await open_store(with_keys(loaded.settings, env), env, clock, log)
        repository = Repository(store=store, on_damage=reporting(log))
        stack.push_async_callback(repository.close)
        source = ConfigSource(
            config=config, env=env, apps=apps, repository=repository, only=only, workers=workers, log=log
        )
        bundle = await source.resolved(loaded)
        audit = audit or default_audit(bundle.settings, store, clock, log)
        stack.callback(audit.close)
        if background:
            await _say_what_is_odd(bundle, loaded, repository, log)
        parts = Parts(
            bundle=bundle,
            repository=repository,
            mac=store.mac,
            clock=clock,
            audit_log=audit,
            log=log,
            whole=only is None,
            metrics_folder=await _shared_metrics(stack, metrics_folder, clock),
        )
        running = Running(parts, source.read, rotation, age=age)
        stack.push_async_callback(running.close)
        if only is not None:
            stack.push_async_callback(running.hand_over)
        await running.start(background=background)
        if background and only is None:
            await running.open_plugins()
        yield running


async def _shared_metrics(stack: AsyncExitStack, folder: Path | None, clock: Clock) -> MetricsFolder | None:
    """Open the metrics that several processes share, until the stack ends; None without a folder."""
    if folder is None:
        return None
    check_argument(isinstance(folder, Path), "metrics_folder", "a Path")
    shared = await on_thread(partial(MetricsFolder.open, folder, clock), lost=MetricsFolder.close)
    stack.callback(shared.close)
    return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource:
    """Where the configuration of one broker comes from, when it is opened and at each reload."""

    config: str | Path | Bundle
    env: Mapping[str, str]
    apps: Sequence[AppResource] | None
    repository: Repository
    only: Collection[str] | None
    workers: int
    log: Log

    async def read(self, given: Source) -> Bundle:
        given = self.config if given is None else given
        return await self.resolved(
            given if isinstance(given, Bundle) else await asyncio.to_thread(_load, given, self.env, self.apps)
        )

    async def resolved(self, loaded: Loaded | Bundle) -> Bundle:
        """Fill in the values, and take the part of the limits that one of so many processes has."""
        if isinstance(loaded, Bundle):
            bundle = loaded
        else:
            from oauthbroker.config import resolve

            secrets = await self.repository.secrets.all() if loaded.secret_keys else {}
            bundle = resolve(loaded, self.env, secrets, only=self.only)
            for name, draft in loaded.apps.items():
                if draft.dropped and self.only is None:
                    self.log.warning("an app's own endpoints replace its preset's", app=name, dropped=draft.dropped)
        if any(isinstance(each.to, Nats) for each in bundle.forwarders) and find_spec("nats") is None:
            raise ConfigCauseError(INSTALL)
        limits = bundle.settings.limits.shared_by(self.workers)
        return replace(bundle, settings=replace(bundle.settings, limits=limits))


def _environment(config: str | Path | Bundle) -> Mapping[str, str]:
    """Return the process's environment; below it, for a bundle in files, that of the `.env` beside it."""
    if isinstance(config, Bundle):
        return os.environ
    from oauthbroker.config.bundle.server_environment import server_environment

    return server_environment(Path(config))


def _load(folder: str | Path, env: Mapping[str, str], apps: Sequence[AppResource] | None) -> Loaded:
    """Read a folder. Its reader is a third of the start, and a `Bundle` that was built in code needs none."""
    from oauthbroker.config import load

    return load(folder, env, apps)


def _say_what_is_off(bundle: Bundle, log: Log) -> None:
    settings = bundle.settings
    for name in sorted(settings.weaken):
        log.warning("a check is off", weaken=name)
    if settings.public_base_url.startswith("http:"):  # only on loopback: its cookies are set without `Secure`
        log.info("pages without TLS, for browsers of this machine", base=settings.public_base_url)
    for app in (app for app in bundle.apps.values() if app.habits.pkce == "refused"):
        log.warning("a check is off", app=app.name, setting="quirks.pkce")
    if settings.admin_loopback:
        log.warning("operators on this machine need no key", setting="admin.loopback")
    for caller in settings.api_socket.callers if settings.api_socket is not None else ():
        setting, roles = "api.socket.callers", sorted(caller.roles)
        log.warning("a user of this machine needs no key", setting=setting, uid=caller.uid, roles=roles)


async def _say_what_is_odd(bundle: Bundle, loaded: Loaded | Bundle, repository: Repository, log: Log) -> None:
    """Log which checks are off, variables that set nothing, and a standby that may lose changes."""
    _say_what_is_off(bundle, log)
    for unknown in loaded.unknown_variables if not isinstance(loaded, Bundle) else ():
        log.warning("a variable is no setting of the broker", setting=unknown.file, hint=unknown.hint)
    await _say_what_a_failover_loses(repository, log)


async def _say_what_a_failover_loses(repository: Repository, log: Log) -> None:
    with suppress(BrokerError):  # a database that is away is met elsewhere
        if repository.shared is not None and await repository.shared.loses_on_failover():
            log.warning(
                "the standby is not synchronous: a failover may lose changes", setting="synchronous_standby_names"
            )
