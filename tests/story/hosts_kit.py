"""Brokers on several hosts: each has connections of its own to one database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.settings import Limits
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit import postgres
from tests.kit.running_broker import Harness, running, user_app


@asynccontextmanager
async def hosts(
    count: int,
    url: Secret,
    folder: Path,
    idp: IdentityProvider,
    clock: Any = None,
    *,
    limits: Limits | None = None,
    apps: list[App] | None = None,
    **store: Any,
) -> AsyncIterator[list[Harness]]:
    """So many brokers, each with connections of its own, on one database."""
    apps, clock = apps or [user_app(idp)], clock or TestClock()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                running(
                    idp,
                    apps,
                    clock=clock,
                    limits=limits,
                    store=postgres.open_postgres_store(url, folder, **made(store)),
                )
            )
            for _ in range(count)
        ]


def made(parts: dict[str, Any]) -> dict[str, Any]:
    """Each host has a feed of its own: `feed` makes it."""
    return {name: part() if name == "feed" else part for name, part in parts.items()}


def postgres_of(host: Harness) -> PostgresStore:
    assert isinstance(host.store, PostgresStore)
    return host.store
