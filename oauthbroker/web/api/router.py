"""The API as routes: one for each path of the table, so that a wrong method is told which ones there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from starlette.routing import BaseRoute

from oauthbroker.model.settings import Settings
from oauthbroker.plugins.running_plugin import PluginRoute
from oauthbroker.services import Services
from oauthbroker.web.api.authentication import Callers
from oauthbroker.web.api.call_table import OPERATIONS, Operation
from oauthbroker.web.api.endpoint import Endpoint
from oauthbroker.web.api.openapi import DOCUMENT
from oauthbroker.web.api.plugin_routes import METADATA, operations_of
from oauthbroker.web.api.proxy import REST, ROUTE, ProxyEndpoint
from oauthbroker.web.html.form_routes import OwnMethods
from oauthbroker.web.middleware.rate_limits import RequestLimits


class ApiRoutes:
    """One route for each path: the broker's own, and those of the plug-ins once they are open."""

    def __init__(self, services: Services, settings: Settings, limits: RequestLimits) -> None:
        callers = Callers(turns=services.turns, api_keys=services.api_keys, settings=settings)
        locale = settings.locale
        self._endpoint = partial(Endpoint, services=services, callers=callers, limits=limits, locale=locale)
        proxy = ProxyEndpoint(services=services, callers=callers, limits=limits, locale=locale)
        self._own = [*self._routes((*OPERATIONS, DOCUMENT)), OwnMethods(ROUTE, proxy), OwnMethods(REST, proxy)]
        self._of_plugins: list[BaseRoute] = []
        self._metadata: list[BaseRoute] = []

    def calls(self) -> list[BaseRoute]:
        return [*self._own, *self._of_plugins]

    def metadata(self) -> list[BaseRoute]:
        """Return what plug-ins have below `/.well-known`: public documents, which every listener serves."""
        return self._metadata

    def open(self, plugins: Mapping[str, Sequence[PluginRoute]]) -> None:
        """Add the routes of the open plug-ins. Raises `configInvalid`."""
        operations = operations_of(plugins)
        self._metadata = self._routes(each for each in operations if each.path.startswith(METADATA))
        self._of_plugins = self._routes(each for each in operations if not each.path.startswith(METADATA))

    def _routes(self, operations: Iterable[Operation]) -> list[BaseRoute]:
        paths: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            paths.setdefault(operation.path, {})[operation.method] = operation
        found = sorted(paths.items(), key=_fixed_first)
        return [OwnMethods(path, self._endpoint(operations=methods)) for path, methods in found]


def _fixed_first(path: tuple[str, dict[str, Operation]]) -> tuple[bool, bool, bool, str]:
    """`/v1/auth-sessions/confirm` before `/v1/auth-sessions/{id}` before `{rest:path}`; the commonest call first."""
    return (":path}" in path[0], "{" in path[0], not path[0].startswith("/v1/tokens"), path[0])
