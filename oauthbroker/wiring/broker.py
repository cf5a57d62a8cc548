"""The one place that builds a broker: settings -> objects; start, stop. No other file knows how parts fit."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from oauthbroker.apps import Bundle
from oauthbroker.audit import AuditWriter
from oauthbroker.broker import Broker
from oauthbroker.clock import Clock, SystemClock
from oauthbroker.config import Loaded, load, resolve
from oauthbroker.confirming import Confirming
from oauthbroker.desk.troubles import Left
from oauthbroker.erasure import Erasure
from oauthbroker.errors import BrokerError, Code
from oauthbroker.inventory import Secrets, SessionList
from oauthbroker.metrics_folder import MetricsFolder, Sharing
from oauthbroker.pending import Pending
from oauthbroker.records.turn_record import TurnRecord
from oauthbroker.reload import Read, Reload, Source
from oauthbroker.repository import Repository
from oauthbroker.resume import Events, Outcomes
from oauthbroker.settings import Settings
from oauthbroker.turns import Turns
from oauthbroker.web.access_log import json_log
from oauthbroker.wiring.faces import Faces
from oauthbroker.wiring.house import House
from oauthbroker.wiring.rooms import Given, Rooms
from oauthbroker.wiring.storage import AnyStore, default_audit, open_store, reporting, with_keys


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
    lines in the store, and JSON on stderr. `background=False` runs no relay and no sweeper, and does not say which
    checks are off (for short commands); `only` are then the apps it knows, so that nobody else's values are needed, and
    events that are due are queued at its end. Several processes that share a `metrics_folder` answer `/metrics` for all
    of them; each of `workers` processes of one store takes its part of the limits that hold for all.
    Raises ConfigRefused with every problem, or a store code; nothing has been changed then. Leaving the block waits
    for exchanges and commits under way.
    """
    clock, env = clock or SystemClock(), os.environ if env is None else env
    log = log or json_log(sys.stderr, clock)
    async with AsyncExitStack() as stack:
        loaded = config if isinstance(config, Bundle) else load(config)
        if store is None:
            store = open_store(with_keys(loaded.settings, env), env, clock, log)
        repository = Repository(store, reporting(log))
        stack.push_async_callback(repository.close)
        said = loaded if isinstance(loaded, Bundle) else await _resolved(loaded, env, repository, only)
        bundle = _one_of(workers, said)
        audit = audit or default_audit(bundle.settings, store, log)
        stack.callback(audit.close)
        if background:
            _say_what_is_off(bundle.settings, log)

        async def read(given: Source) -> Bundle:
            given = config if given is None else given
            if isinstance(given, Bundle):
                return _one_of(workers, given)
            return _one_of(workers, await _resolved(await asyncio.to_thread(load, given), env, repository, only))

        place = await asyncio.to_thread(MetricsFolder.open, metrics_folder, clock) if metrics_folder else None
        parts = Given(bundle, repository, store.mac, clock, audit, log)
        house = build(parts, whole=only is None, read=read, place=place)
        stack.push_async_callback(house.close)
        if only is not None:
            stack.push_async_callback(house.hand_over)
        await house.start(background=background)
        yield house.broker


def build(given: Given, *, whole: bool = True, read: Read | None = None, place: MetricsFolder | None = None) -> House:
    """`whole`: the configuration names every app there is. `read` takes a configuration anew; `place` is where the
    processes of one store share their figures."""
    repository, clock, audit, log = given.repository, given.clock, given.audit, given.log
    rooms = Rooms.of(given, whole=whole, elsewhere=_circuits_in(place))
    faces = Faces.of(given, rooms, lambda: broker, place)
    in_use, flows = rooms.in_use, rooms.flows
    turns = Turns(repository.shelf("turns", TurnRecord.from_plaintext), lambda: in_use.bundle, clock, rooms.audit)
    erasure = Erasure(
        repository, rooms.revocations, flows.connect, flows.sweep, rooms.queues, turns, rooms.people, clock, rooms.audit
    )

    def follow(changed: Collection[str]) -> None:
        faces.web.follow()
        for name in changed:
            flows.forget_troubles(name)

    broker = Broker(
        in_use=in_use,
        manager=rooms.manager,
        consent=rooms.consent,
        events=Events(rooms.queues, clock, rooms.moved, rooms.life),
        grants=rooms.grants,
        sessions=SessionList(repository),
        dead_letters=rooms.admin.letters,
        secrets=Secrets(repository, clock, audit),
        outcomes=Outcomes(repository, clock, rooms.moved, rooms.life),
        waiting=Pending(in_use.apps, repository, flows.connect, in_use.bundle.settings, clock, log.warning),
        confirming=Confirming(in_use.apps, flows.parking),
        clock=clock,
        audit=rooms.audit,
        metrics=rooms.metrics,
        web=faces.web.both,
        doors=faces.web,
        life=rooms.life,
        reloading=Reload(in_use, read or _as_given, follow, lambda: flows.sweep.end_outdated(in_use.apps.get), log),
        checkup=rooms.health,
        turns=turns,
        api_keys=rooms.api_keys,
        people=rooms.people,
        scrubber=rooms.scrubber,
        audit_trail=rooms.trail,
        erasure=erasure,
    )
    sharing = Sharing(place, rooms.metrics, faces.gauges.of_process, rooms.admin.survey.troubles.left)
    means = rooms.means
    return House(broker, rooms.relay, rooms.upkeep, flows, means.transport, rooms.outbox, sharing, repository, log)


def _circuits_in(place: MetricsFolder | None) -> Callable[[], Awaitable[list[Left]]]:
    """Reads those of the other workers. A folder that cannot be read has none."""

    async def read() -> list[Left]:
        with suppress(OSError):
            return await asyncio.to_thread(place.circuits) if place is not None else []
        return []

    return read


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


def _say_what_is_off(settings: Settings, log: FilteringBoundLogger) -> None:
    for name in _weakenings(settings):
        log.warning("a check is off", weaken=name)
    if settings.admin_loopback:
        log.warning("operators on this machine need no key", setting="admin.loopback")
    for caller in settings.api_socket.callers if settings.api_socket is not None else ():
        setting, roles = "api.socket.callers", sorted(caller.roles)
        log.warning("a user of this machine needs no key", setting=setting, uid=caller.uid, roles=roles)


def _weakenings(settings: Settings) -> list[str]:
    """What is said aloud at start. Pages without TLS, which only loopback may have, set cookies without `Secure`."""
    plain = settings.public_base_url.startswith("http:")
    return sorted(settings.weaken) + (["plainHttpPages"] if plain else [])
