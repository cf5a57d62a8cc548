"""Sets the stage of tests/e2e and takes it down again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import playwright.async_api as browsers
import pytest
import pytest_asyncio

from oauthbroker.testing import Canaries
from tests.e2e import authority, bundle, person, served
from tests.e2e.stage import Stage


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def one_chromium() -> AsyncIterator[browsers.Browser]:
    """The process that all tests of a run share: to start one takes longer than most of them. It belongs to one event
    loop, so that a test with a browser runs on it: `asyncio(loop_scope="session")`."""
    async with person.chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def chromium(one_chromium: browsers.Browser) -> AsyncIterator[browsers.Browser]:
    """A browser without a profile: none is there from an earlier test, and none is left for a later one."""
    assert [] == one_chromium.contexts
    yield one_chromium
    for profile in one_chromium.contexts:
        await profile.close()


@pytest_asyncio.fixture(loop_scope="session")
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, canaries: Canaries, chromium: browsers.Browser
) -> AsyncIterator[Stage]:
    """Everything fresh: the provider's keys, the clients' secrets, the store and its key, the browser's profiles.

    A test says `parametrize("stage", ["apart"], indirect=True)` to have its pages served by `oauthbroker serve`.
    """
    raising = served.apart if getattr(request, "param", "") == "apart" else served.embedded
    listener, apps, clock = served.free_port(), bundle.registrations(), served.LateClock()
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    env = {app.env: app.secret for app in apps.values() if app.secret}
    for secret in env.values():
        canaries.add(secret, "client secret")
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        provider = await stack.enter_async_context(authority.running(app.client(home) for app in apps.values()))
        written = bundle.write(tmp_path, home, provider.issuer, apps.values())
        broker = await stack.enter_async_context(raising(written, listener, env, clock))
        yield Stage(home, broker, provider, clock, apps, chromium, canaries)
