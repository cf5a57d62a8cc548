"""The store of tests that do not name one: in memory, or in PostgreSQL with `--store postgres`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from oauthbroker.core.clock import Clock
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Store
from oauthbroker.store.memory import MemoryStore


def _in_memory(clock: Clock) -> Store:
    return MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)


class _Kind(NamedTuple):
    make: Callable[[Clock], Store]
    confirms: bool


_kinds = [_Kind(_in_memory, confirms=True)]


def default_store(clock: Clock) -> Store:
    """Make an empty store."""
    return _kinds[-1].make(clock)


def confirms() -> bool:
    """Tell whether such a store knows by itself that a version is the newest one, so that a token can be handed out at
    once. PostgreSQL is asked, which is one round trip (docs/scaling.md)."""
    return _kinds[-1].confirms


@contextmanager
def in_postgres() -> Iterator[None]:
    """Use a private PostgreSQL server within the block. Each store empties the database that the one before used."""
    from tests.kit.postgres import open_postgres_store, server

    with server() as running, TemporaryDirectory() as folder:
        running.new_database("story")

        def empty(_: Clock) -> Store:
            running.empty("story")
            return open_postgres_store(running.url("story"), Path(folder))

        _kinds.append(_Kind(empty, confirms=False))
        try:
            yield
        finally:
            _kinds.pop()
