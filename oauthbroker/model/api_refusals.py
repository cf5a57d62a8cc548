"""Refuse a request that an app's `spec.api` does not allow, and name the allowed ones."""

from __future__ import annotations

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.sentences import listed
from oauthbroker.model.provider_api import ApiAccess


class HostForbidden(BrokerError):
    """`apiHostForbidden` that names the host, and those of the app. It never holds a path, a query or a user.
    `of_another`: the app has the host, for another account."""

    def __init__(self, api: ApiAccess, host: str, *, of_another: bool = False) -> None:
        super().__init__(Code.API_HOST_FORBIDDEN, host=host, hosts=listed(api.written_hosts))
        self.hint = "hostOfAnother" if of_another else "hostForbidden" if host else "addressForbidden"


class MethodForbidden(BrokerError):
    """`apiMethodForbidden` that names the app's methods."""

    hint = "methodForbidden"

    def __init__(self, api: ApiAccess) -> None:
        super().__init__(Code.API_METHOD_FORBIDDEN, methods=listed(api.methods))


class PathForbidden(BrokerError):
    """`apiPathForbidden` that names the app's paths, and not that of the request, which may hold anything."""

    hint = "pathForbidden"

    def __init__(self, api: ApiAccess) -> None:
        super().__init__(Code.API_PATH_FORBIDDEN, paths=listed(api.paths))
