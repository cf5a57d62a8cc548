"""Where a browser is sent: pushed or with all parameters, and the apps for which no address can be built."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.protocol.authorization_request import new_attempt
from oauthbroker.protocol.authorization_urls import AuthorizationUrls
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.testing import TestClock
from tests.unit.protocol.kit import APP, answer

PAR = "https://id.example/par"
CLOCK = TestClock()
ATTEMPT = new_attempt(CLOCK, "L" * 22, cookie=None)


class World:
    """URLs at a provider that may demand pushed requests."""

    def __init__(self, required: bool) -> None:
        self.required, self.pushed = required, 0
        others: Any = self
        self.urls = AuthorizationUrls(others, others, CLOCK)

    async def endpoints(self, app: App) -> Any:
        return app.endpoints

    async def for_authorization(self, app: App) -> Any:
        return app.endpoints, self.required

    async def ask(self, app: App, request: Any, *, kind: str) -> ProviderResponse:
        assert ("push", PAR) == (kind, request(app).url)
        self.pushed += 1
        return answer({"request_uri": "urn:x:1", "expires_in": 60}, 201)


async def outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except BrokerError as error:
        return error.code


def app_that(has_address: bool, never: bool = False) -> App:
    endpoints = replace(APP.endpoints, pushed_authorization_url=PAR if has_address else "")
    return replace(APP, endpoints=endpoints, pushed_authorization="never" if never else APP.pushed_authorization)


@pytest.mark.parametrize(
    ("required", "has_address", "never", "pushes", "usable"),
    [
        (False, False, False, False, True),
        (False, True, False, True, True),
        (True, True, False, True, True),
        (True, False, False, False, False),
        (False, True, True, False, True),
        (True, True, True, False, True),
        (True, False, True, False, True),
    ],
)
async def test_a_request_is_pushed_where_there_is_an_address_and_the_app_does_not_forbid_it(
    required: bool, has_address: bool, never: bool, pushes: bool, usable: bool
) -> None:
    world, app = World(required), app_that(has_address, never)
    assert pushes is await world.urls.pushes(app)
    assert (None if usable else Code.APP_MISCONFIGURED) is await outcome(world.urls.check(app))
    url = await outcome(world.urls.now(app, ATTEMPT, ("read",)))
    if not usable:
        assert Code.APP_MISCONFIGURED is url
        return
    assert isinstance(url, Secret)
    assert ("request_uri=" in url.reveal()) is pushes
    assert (ATTEMPT.state.reveal() in url.reveal()) is not pushes
    assert int(pushes) == world.pushed


async def test_an_app_without_an_authorization_endpoint_is_the_operators_to_fix() -> None:
    app = replace(APP, endpoints=replace(APP.endpoints, authorization_url=""))
    assert Code.APP_MISCONFIGURED is await outcome(World(False).urls.check(app))


@pytest.mark.parametrize("required", [True, False])
async def test_a_url_that_has_to_last_is_not_pushed(required: bool) -> None:
    world = World(required)
    url = await outcome(world.urls.lasting(app_that(True), ATTEMPT, ("read",)))
    assert (Code.APP_MISCONFIGURED is url) is required
    assert 0 == world.pushed
