"""A marker in `due/` holds nothing that its record does not say: damaged or lost, it blocks no work and is made again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.repository.repository import Repository
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process, ask, complete, connected
from tests.kit.running_broker import ALICE, BOB, user_app

Spoil = Callable[[Path, bytes], None]


@pytest.fixture
async def process(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Process]:
    process = Process.start(
        tmp_path / "store", open_keyring(tmp_path), [user_app(identity_provider)], identity_provider.clock.now()
    )
    yield process
    await process.die()


def flipped(path: Path, _: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])


def emptied(path: Path, _: bytes) -> None:
    path.write_bytes(b"")


def misplaced(path: Path, neighbour: bytes) -> None:
    path.write_bytes(neighbour)


def a_folder(path: Path, _: bytes) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def open_to_others(path: Path, _: bytes) -> None:
    path.chmod(0o644)


REPLACED: list[Spoil] = [flipped, emptied]
KEPT: list[Spoil] = [misplaced, a_folder, open_to_others]


async def marked(process: Process, tmp_path: Path) -> tuple[Path, bytes]:
    """A connected grant with a marker that no work is left for: its file, and the bytes of another record's marker."""
    repository = Repository(process.store)
    for subject in (ALICE, BOB):
        await repository.markers.mark(repository.grant_place(GrantKey("mail", subject)), GrantKey("mail", subject))
    due = tmp_path / "store" / "data" / "due"
    other = (due / repository.grant_place(GrantKey("mail", BOB)).name).read_bytes()
    await asyncio.sleep(0.03)
    return due / repository.grant_place(GrantKey("mail", ALICE)).name, other


async def connected_and_settled(process: Process, idp: IdentityProvider) -> Ready:
    ready = await connected(process, idp)
    await process.tend()
    await process.drain()
    return ready


@pytest.mark.case("65", "67")
@pytest.mark.parametrize("spoil", [*REPLACED, *KEPT], ids=lambda each: each.__name__)
async def test_a_damaged_marker_keeps_no_grant_from_being_revoked(process, identity_provider, tmp_path, spoil):
    ready = await connected_and_settled(process, identity_provider)
    spoil(*await marked(process, tmp_path))
    assert await process.broker.revoke("mail", subject=ALICE)
    assert isinstance(await ask(process), AuthorizationRequired)
    assert not identity_provider.is_alive(ready.access_token)


@pytest.mark.case("65", "67")
@pytest.mark.parametrize("spoil", [*REPLACED, *KEPT], ids=lambda each: each.__name__)
async def test_a_damaged_marker_blocks_neither_connecting_nor_refreshing(process, identity_provider, tmp_path, spoil):
    await connected_and_settled(process, identity_provider)
    spoil(*await marked(process, tmp_path))
    process.clock.advance(7200)
    identity_provider.clock.set(process.clock.now())
    assert isinstance(await ask(process), Ready), "renewed"
    assert await process.broker.revoke("mail", subject=ALICE)
    asked = await ask(process)
    assert isinstance(asked, AuthorizationRequired)
    assert 200 == await complete(process, identity_provider, asked)
    assert isinstance(await ask(process), Ready)


@pytest.mark.case("65")
@pytest.mark.parametrize("spoil", REPLACED, ids=lambda each: each.__name__)
async def test_a_damaged_marker_is_replaced_and_its_event_comes(process, identity_provider, tmp_path, spoil):
    await connected_and_settled(process, identity_provider)
    spoil(*await marked(process, tmp_path))
    assert await process.broker.revoke("mail", subject=ALICE)
    await process.tend()
    await process.drain()
    assert 1 == sum(each.endswith("auth.revoked") for each in process.heard.received)


def lost(path: Path, _: bytes) -> None:
    path.unlink()


@pytest.mark.case("63", "93")
@pytest.mark.parametrize("spoil", [lost, *REPLACED], ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", ["grants", "sessions"])
async def test_a_record_that_lost_its_marker_is_found_and_its_event_comes_once(
    process, identity_provider, tmp_path, kind, spoil
):
    asked = await ask(process)
    assert isinstance(asked, AuthorizationRequired)
    await complete(process, identity_provider, asked, deny=kind == "sessions")
    name = process.store.key(kind, *(["mail", ALICE] if kind == "grants" else [asked.auth_session_id[3:]])).name
    await asyncio.sleep(0.03)
    spoil(tmp_path / "store" / "data" / "due" / name, b"")
    await process.tend()
    await process.drain()
    assert process.heard.received == []
    assert await process.parts.background_refresh.repair() == 1
    assert await process.parts.background_refresh.repair() == 0
    await process.tend()
    await process.drain()
    (received,) = process.heard.received
    assert asked.auth_session_id in received
    process.clock.advance(3600)
    assert await process.parts.background_refresh.repair() == 0, "nothing is left to do"
