"""A grant that ends by itself: its end is read, kept and shown, and `auth.expiring` comes once before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from oauthbroker.model.apps import OAuthApp
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, running, stored_grant, to_the_end, user_app

DAY = 86_400


class Stage:
    """Brokers with the app `mail`, on one store where a test wants two. Nothing runs in the background."""

    def __init__(self, idp: IdentityProvider, clock: TestClock, stack: AsyncExitStack) -> None:
        self.idp, self.clock, self.stack = idp, clock, stack

    async def play(self, store: Any = None, **habits: Any) -> Harness:
        app = user_app(self.idp)
        app = replace(app, habits=replace(app.habits, **habits))
        made = running(self.idp, [app], clock=self.clock, store=store, background=False)
        return await self.stack.enter_async_context(made)


@pytest.fixture
async def stage(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(identity_provider, test_clock, stack)


async def noticed(harness: Harness) -> list[dict[str, Any]]:
    """Return the notices that leave now."""
    await harness.parts.expiring.run_pass()
    await harness.parts.relay.once()
    found = list[dict[str, Any]]()
    while (event := await harness.event(wait=0)) is not None:
        found.append(event)
    return [event for event in found if event["type"] == "auth.expiring"]


async def test_the_end_of_a_refresh_token_is_told_once_seven_days_before_it(stage: Stage) -> None:
    harness = await stage.play()
    stage.idp.script.token.fields(refresh_token_expires_in=100 * DAY)
    await harness.connected()
    end = (await stored_grant(harness)).ends.at
    assert stage.clock.now() + timedelta(days=100) == end
    assert [] == await noticed(harness)
    stage.clock.advance(93 * DAY - 60)
    assert [] == await noticed(harness)
    stage.clock.advance(120)
    (event,) = await noticed(harness)
    assert end.isoformat().startswith(event["payload"]["endsAt"].removesuffix("Z"))
    assert {"oauthAppRef", "provider", "subject", "authSessionId", "grantId", "endsAt", "connectUrl"} == set(event["payload"])
    assert [] == await noticed(harness), "once"
    assert 1 == harness.broker.metrics.value(Metric.GRANTS_ENDING, "mail")
    (summary,) = [grant async for grant in harness.broker.grants.list()]
    assert event["payload"]["endsAt"] == summary.endsAt
