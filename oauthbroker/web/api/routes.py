"""The API as routes: one for each path of the table, so that a wrong method is told which ones there are."""

from __future__ import annotations

from starlette.routing import BaseRoute

from oauthbroker.clock import Clock
from oauthbroker.settings import Settings
from oauthbroker.web.api.caller import Callers
from oauthbroker.web.api.doors import TheBroker
from oauthbroker.web.api.endpoint import Endpoint
from oauthbroker.web.api.limits import RequestLimits
from oauthbroker.web.api.openapi import DOCUMENT
from oauthbroker.web.api.operations import OPERATIONS, Operation
from oauthbroker.web.shortcut import OwnMethods


def api_routes(the_broker: TheBroker, settings: Settings, clock: Clock) -> list[BaseRoute]:
    """`the_broker` is asked at every request: the broker is made after its pages."""
    callers, limits = Callers(the_broker, settings), RequestLimits(clock, settings.limits.requests_per_minute)
    paths: dict[str, dict[str, Operation]] = {}
    for operation in (*OPERATIONS, DOCUMENT):
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [
        OwnMethods(path, Endpoint(found, the_broker, callers, limits, settings.locale).answer, found)
        for path, found in sorted(paths.items(), key=_fixed_first)
    ]


def _fixed_first(path: tuple[str, dict[str, Operation]]) -> tuple[bool, bool, str]:
    """`/v1/auth-sessions/confirm` before `/v1/auth-sessions/{id}`; what is called most is found first."""
    return ("{" in path[0], not path[0].startswith("/v1/tokens"), path[0])
