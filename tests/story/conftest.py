"""The harnesses most stories need: two apps in user mode, one in global mode; in memory, or on files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from oauthbroker.model.apps import App
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.stores import open_keyring
from tests.kit.broker_process import Process
from tests.kit.running_broker import Harness, file_store, global_app, running, user_app
from tests.story.keys_kit import KeyApi, key_api
from tests.story.revocation_kit import Start


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock) as harness:
        yield harness


@pytest.fixture
async def filed(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> AsyncIterator[Harness]:
    """The same on a file store below `tmp_path`, where `tree(tmp_path)` shows every byte. Nothing runs in the
    background: each change there comes from the test's own steps."""
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    store = file_store(tmp_path, test_clock)
    async with running(identity_provider, apps, clock=test_clock, store=store, background=False) as harness:
        yield harness


@pytest.fixture
async def api() -> AsyncIterator[KeyApi]:
    async with key_api() as api:
        yield api


@pytest.fixture
async def start(identity_provider: IdentityProvider, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a broker on the same files; its relay runs when the test says so."""
    ring, started = open_keyring(tmp_path), list[Process]()

    def one(apps: Iterable[App]) -> Process:
        process = Process.start(tmp_path / "store", ring, apps, identity_provider.clock.now())
        started.append(process)
        return process

    yield one
    for process in started:
        await process.die()
