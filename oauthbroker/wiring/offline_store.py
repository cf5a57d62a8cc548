"""The store without a broker: for commands, and for diagnostics beside a broker that works."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from oauthbroker.audit.memory import AuditList
from oauthbroker.audit.trail import FileTrail
from oauthbroker.config.key_file import with_keys
from oauthbroker.core.clock import Clock, SystemClock
from oauthbroker.core.errors import Code
from oauthbroker.diagnostics.inspection import Inspection
from oauthbroker.events.backends import queues_of
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.grants.grants import GrantList, Secrets, SessionList, Vault
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import logger_log
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.repository.store_age import StoreAge
from oauthbroker.store.file.read_only import look_at
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.wiring.storage import (
    api_keys,
    audit_file,
    data_of,
    database_store,
    open_store,
    reporting,
)
from oauthbroker.wiring.store_place import naming_store


@asynccontextmanager
async def open_vault(
    settings: Settings,
    *,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Vault]:
    """Open the store without a broker: secrets can be set while the configuration still lacks them, and grants be
    listed in a shell that has none of its values. Raises store codes."""
    clock, env = clock or SystemClock(), os.environ if env is None else env
    log = logger_log()
    async with AsyncExitStack() as stack:
        stack.enter_context(naming_store(settings, env))
        store, *_ = await open_store(with_keys(settings, env), env, clock, log)
        repository = Repository(store=store, on_damage=reporting(log))
        stack.push_async_callback(repository.close)
        audit = audit_file(settings, store, log)
        stack.callback(audit.close)
        trail = FileTrail(audit.folder, audit.keys)
        queues = queues_of(repository, clock=clock, limits=settings.limits)
        yield Vault(
            secrets=Secrets(repository, clock, audit),
            grants=GrantList(repository, clock),
            sessions=SessionList(repository),
            dead_letters=DeadLetters(queues=queues, clock=clock, audit=audit),
            api_keys=api_keys(repository, clock, audit),
            audit=trail,
        )


def look_into(
    settings: Settings, keyring: Keyring, *, env: Mapping[str, str], clock: Clock
) -> tuple[Store, Inspection] | None:
    """Open the store for diagnostics, while a broker may work on it: nothing is written and no lock is taken. None for
    one that no broker has opened yet. Raises store codes."""
    damaged: list[str] = []

    def report(place: str, _: Code) -> None:
        damaged.append(place)

    store: Store
    if settings.store_url_env:
        store, kinds = database_store(settings, keyring, env=env, on_damage=report), frozenset(KINDS)
    else:
        found = look_at(Path(settings.store_root), keyring, kinds=KINDS, clock=clock, on_damage=report)
        if found is None:
            return None
        store, kinds = found
    repository = Repository(store=store, on_damage=report, kinds=kinds)
    return store, Inspection(
        repository=repository,
        age=StoreAge(store=store, store_id=keyring.store_id, data=data_of(settings), clock=clock),
        keys=api_keys(repository, clock, AuditList()),
        kinds=kinds,
        clock=clock,
        limits=settings.limits,
        damaged=damaged,
    )
