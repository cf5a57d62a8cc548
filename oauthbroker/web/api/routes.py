"""The API as routes: one for each path of the table, so that a wrong method is told which ones there are."""

from __future__ import annotations

from starlette.routing import BaseRoute

from oauthbroker.model.settings import Settings
from oauthbroker.operations.services import Services
from oauthbroker.web.api.caller import Callers
from oauthbroker.web.api.endpoint import Endpoint
from oauthbroker.web.api.openapi import DOCUMENT
from oauthbroker.web.api.operations import OPERATIONS, Operation
from oauthbroker.web.limits import RequestLimits
from oauthbroker.web.routes import OwnMethods


def api_routes(services: Services, settings: Settings, limits: RequestLimits) -> list[BaseRoute]:
    """Return one route for each path of the API."""
    callers = Callers(turns=services.turns, api_keys=services.api_keys, settings=settings)
    paths: dict[str, dict[str, Operation]] = {}
    for operation in (*OPERATIONS, DOCUMENT):
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [
        OwnMethods(path, Endpoint(found, services, callers, limits, settings.locale).answer)
        for path, found in sorted(paths.items(), key=_fixed_first)
    ]


def _fixed_first(path: tuple[str, dict[str, Operation]]) -> tuple[bool, bool, str]:
    """`/v1/auth-sessions/confirm` before `/v1/auth-sessions/{id}`; the most frequent call is found first."""
    return ("{" in path[0], not path[0].startswith("/v1/tokens"), path[0])
