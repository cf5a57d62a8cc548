"""The house most stories need: one app in user mode, one in global mode, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from oauthbroker.testing import IdentityProvider
from tests.house import House, global_app, running, user_app


@pytest.fixture
async def house(identity_provider: IdentityProvider) -> AsyncIterator[House]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps) as house:
        yield house
