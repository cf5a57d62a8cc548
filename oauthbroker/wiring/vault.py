"""The store without a broker: for commands, and for a checkup beside a broker that works."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from oauthbroker.audit import AuditList
from oauthbroker.audit.trail import FileTrail
from oauthbroker.checkup.inspection import Inspection
from oauthbroker.clock import Clock, SystemClock
from oauthbroker.desk.letters import Letters
from oauthbroker.errors import Code
from oauthbroker.inventory import GrantList, Secrets, SessionList, Vault
from oauthbroker.metrics import Metrics
from oauthbroker.queues import Queues
from oauthbroker.repository import KINDS, Repository
from oauthbroker.settings import Settings
from oauthbroker.store.file import FileStore
from oauthbroker.store.keys import Keyring
from oauthbroker.store.read_only import look_at
from oauthbroker.web.access_log import json_log
from oauthbroker.wiring.storage import api_keys, audit_file, open_store, reporting, with_keys


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
        repository = Repository(store, reporting(log))
        stack.push_async_callback(repository.close)
        audit = audit_file(settings, store, log)
        stack.callback(audit.close)
        trail = FileTrail(audit.folder, audit.keys)
        secrets, keys = Secrets(repository, clock, audit), api_keys(repository, clock, audit)
        queues = Queues(repository, clock, settings.limits, Metrics())
        dead_letters = Letters(repository, queues, clock, audit)
        yield Vault(secrets, GrantList(repository, clock), SessionList(repository), dead_letters, keys, trail)


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
    repository = Repository(store, report, kinds)
    keys = api_keys(repository, clock, AuditList())
    return store, Inspection(repository, keys, kinds, clock, settings.limits, damaged)
