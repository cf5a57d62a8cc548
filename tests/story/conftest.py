"""The houses most stories need: two apps in user mode, one in global mode; in memory, or on files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker.testing import IdentityProvider, TestClock
from tests.house import House, file_store, global_app, running, user_app


@pytest.fixture
async def house(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[House]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock) as house:
        yield house


@pytest.fixture
async def filed(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> AsyncIterator[House]:
    """The same on a file store below `tmp_path`, where `tree(tmp_path)` shows every byte."""
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, store=file_store(tmp_path, test_clock)) as house:
        yield house
