"""Connections of one user that come from elsewhere, and move from one store to another: each stays as it was."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Ready
from oauthbroker.core.clock import SystemClock
from oauthbroker.grants.import_lines import validate
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.keys.rotation import LEASE_KIND
from oauthbroker.store.migration.archive import Export, Import
from oauthbroker.store.postgres.connection_pool import ConnectionPool
from oauthbroker.store.postgres.postgres_store import PostgresStore
from oauthbroker.store.postgres.schema import KeyringTable
from oauthbroker.testing import Authority, IdentityProvider, TestClock
from tests.kit import postgres
from tests.kit.raw_world import World
from tests.kit.running_broker import BOB, Harness, turn
from tests.story.accounts_kit import Stage, cold, stage_of

Kinds = dict[str, Any]
STORED: Kinds = {"kinds": KINDS, "lease_kinds": (*LEASES, LEASE_KIND)}


@pytest.fixture
def world(postgres_server: postgres.Server, tmp_path: Path) -> Iterator[World]:
    postgres_server.empty_database("migration")
    yield World(tmp_path, postgres_server)
    postgres_server.run("drop database migration with (force)")


@pytest.fixture
async def stage(
    world: World,
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Stage]:
    """The connections of a user, in files."""
    files, authority = FileStore(world.folder / "files", world.ring, clock=test_clock, **STORED), Authority(tmp_path)
    async with stage_of(identity_provider, test_clock, authority, monkeypatch, files) as made:
        yield made


async def grants_in(harness: Harness) -> dict[GrantKey, Grant]:
    return {it.record.key: it.record async for it in harness.repository.grants()}


async def check_all(stage: Stage, there: Harness) -> None:
    """Every connection has its own token there, a refresh included."""
    for each in stage.all:
        ready = await there.broker.oauth(stage.turn()).get_access_token(each.ref, ["read"])
        assert isinstance(ready, Ready), (each.ref, ready)
        owners = [it.ref for it in stage.pairs[each.app] if await it.owns(ready.access_token)]
        assert [each.ref] == owners


@asynccontextmanager
async def opened(world: World, place: str, clock: TestClock) -> AsyncIterator[Any]:
    if place == "database":
        url = world.server.url("migration")
        store: Any = PostgresStore(ConnectionPool(url), KeyringTable(url, world.kek).load(), **STORED)
    else:
        store = FileStore(world.folder / place, world.ring, clock=clock, **STORED)
    yield store


def archived(world: World, source: str, target: str) -> None:
    """Export one place, and restore the archive in another one."""
    with closing(world.place(source)) as here, closing(world.place(target, make=True)) as there:
        export = Export(store=here, document=here.keyring() or b"", ring=world.ring, known=KINDS, clock=SystemClock())
        lines = list(export.lines())

        def opens(document: bytes) -> Keyring:
            return Keyring.opened(document, world.kek)

        def read(reader: Any) -> None:
            for line in lines:
                reader.write(line)

        Import(target=there, opened=opens, known=KINDS, clock=SystemClock()).run(read)
        there.set_mark(None, expect=there.mark())


Moves = Callable[[World, str, str], Any]
WAYS: dict[str, list[tuple[str, Moves]]] = {
    "to PostgreSQL": [("database", World.move)],
    "to PostgreSQL and back": [("database", World.move), ("files", World.move)],
    "by an archive": [("others", archived)],
    "by an archive to PostgreSQL": [("database", archived)],
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_store_that_moves_keeps_each_connection(stage: Stage, world: World, way: str) -> None:
    before, place = await grants_in(stage.harness), "files"
    assert 6 == len(before)
    await stage.harness.store.close()
    for target, move in WAYS[way]:
        await asyncio.to_thread(move, world, place, target)
        place = target
    async with opened(world, place, stage.harness.clock) as store, cold(stage, store) as there:
        assert before == await grants_in(there)
        await check_all(stage, there)
        stage.harness.clock.advance(3 * 3600)
        await check_all(stage, there)
        ended = stage.pairs["shop"][0]
        assert await there.broker.revoke("shop", subject=stage.user, account=ended.account)
        left = [each for each in stage.all if each != ended]
        for each in left:
            assert isinstance(await there.broker.oauth(stage.turn()).get_access_token(each.ref, ["read"]), Ready)


async def test_two_hosts_of_one_database_agree_on_each_connection(stage: Stage, world: World) -> None:
    await stage.harness.store.close()
    await asyncio.to_thread(world.move, "files", "database")
    clock = stage.harness.clock
    async with (
        opened(world, "database", clock) as first,
        opened(world, "database", clock) as second,
        cold(stage, first) as one,
        cold(stage, second) as two,
    ):
        await check_all(stage, one)
        await check_all(stage, two)
        for ended, kept in stage.pairs.values():
            assert await one.broker.revoke(ended.app, subject=stage.user, account=ended.account)
            asked = await two.broker.oauth(stage.turn()).get_access_token(ended.ref, ["read"])
            assert isinstance(asked, AuthorizationRequired)
            ready = await two.broker.oauth(stage.turn()).get_access_token(kept.ref, ["read"])
            assert isinstance(ready, Ready)
            assert await kept.owns(ready.access_token)


# --- import


async def taken(stage: Stage, line: dict[str, Any], *, over: bool = False) -> str:
    stream = io.BytesIO(json.dumps(line).encode())
    found = validate(stream, stage.harness.broker.bundle.apps, stage.harness.clock.now())
    assert [] == found.problems
    [incoming] = found.incoming
    return await stage.harness.broker.grants.importing.import_grant(incoming, replace=over)


async def refresh_token_of(stage: Stage, number: int) -> str:
    """Return the refresh token of one of the user's shops."""
    each = stage.pairs["shop"][number]
    versioned = await stage.harness.repository.grant(GrantKey(each.app, stage.user, each.account))
    assert versioned is not None
    token = versioned.record.token
    assert token is not None
    assert token.refresh_token is not None
    return token.refresh_token.reveal()


async def test_connections_are_imported_beside_each_other(stage: Stage) -> None:
    """Those that turns name, and the one whose tenant a user would type: each goes to its own tenant."""
    one, two = stage.pairs["shop"]
    base: dict[str, Any] = {"app": "shop", "subject": BOB}
    tokens = [await refresh_token_of(stage, number) for number in (0, 1)]
    named = base | {"connection": two.account, "refreshToken": tokens[1]}
    typed = base | {"connectParams": {"tenant": one.account}, "refreshToken": tokens[0]}
    assert ["imported", "imported"] == [await taken(stage, line) for line in (named, typed)]
    assert ["there", "there"] == [await taken(stage, line) for line in (named, typed)]
    unnamed = await stage.harness.ask("shop", ["read"], turn(user=BOB))
    assert isinstance(unnamed, Ready), unnamed
    assert {"tenant": one.account} == dict(unnamed.provider_data)
    assert one.provider.is_alive(unnamed.access_token)
    bob = replace(stage, user=BOB)
    ready = await bob.ask(two)
    assert isinstance(ready, Ready)
    assert two.provider.is_alive(ready.access_token)
    assert [1, 1] == [each.provider.count("refresh_token") for each in (one, two)]


async def test_a_typed_connection_is_taken_over_by_another_tenant_only_when_told(stage: Stage) -> None:
    one, two = stage.pairs["shop"]
    lines = [
        {"app": "shop", "subject": BOB, "connectParams": {"tenant": each.account}, "refreshToken": token}
        for each, token in ((one, await refresh_token_of(stage, 0)), (two, await refresh_token_of(stage, 1)))
    ]
    assert "imported" == await taken(stage, lines[0])
    assert "kept" == await taken(stage, lines[1])
    assert "replaced" == await taken(stage, lines[1], over=True)
    ready = await stage.harness.ask("shop", ["read"], turn(user=BOB))
    assert isinstance(ready, Ready), ready
    assert {"tenant": two.account} == dict(ready.provider_data)
    assert [0, 1] == [each.provider.count("refresh_token") for each in (one, two)]
    assert await stage.harness.broker.revoke("shop", subject=BOB)
    await stage.harness.broker.grants.revoke_each([], patience=5)
    assert not two.provider.is_alive(ready.access_token)
