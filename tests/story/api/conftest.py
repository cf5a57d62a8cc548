"""The harness of the API's stories: two apps in user mode, one in global mode, and tools that declared some of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, global_app, running, user_app
from tests.story.api.kit import TOOLS, Callers


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock, tools=TOOLS) as harness:
        yield harness


@pytest.fixture
async def api(harness: Harness) -> Callers:
    return await Callers.of(harness)
