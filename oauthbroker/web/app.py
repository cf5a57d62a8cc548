"""The ASGI applications: the people's pages, the API, and app in one, each behind the same gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log
from oauthbroker.observability.metrics import Metrics
from oauthbroker.web.api.warm_tokens import WarmTokens
from oauthbroker.web.gate.public_path import BelowPublicPath, public_path
from oauthbroker.web.gate.request_limits import Gate, allowed_hosts, own_hosts
from oauthbroker.web.html.branding import Brand, Branded
from oauthbroker.web.html.form_routes import Paths, Routes
from oauthbroker.web.middleware.access_log import RequestLog
from oauthbroker.web.middleware.forwarded import Proxies


def plain(kind: type[Starlette]) -> type[Starlette]:
    """Starlette as it was made. Automatic instrumentation puts a subclass in its place, which writes whole URLs into
    spans, and ours carry tickets and codes."""
    return next(each for each in kind.__mro__ if each.__module__ == "starlette.applications")


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """Each may be mounted below the path of `publicBaseUrl`, and else finds it by itself. `app` is for one listener
    that serves everything."""

    pages: Starlette
    api: Starlette
    app: Starlette
    _parts: tuple[tuple[Paths, tuple[Routes, ...]], ...]

    def follow(self) -> None:
        """Follow a change of the configuration. A request under way goes on with the app it came for."""
        for paths, parts in self._parts:
            paths.follow(_all(parts))


def build_web(
    pages: Sequence[Routes],
    api: Sequence[Routes],
    settings: Settings,
    clock: Clock,
    log: Log,
    metrics: Metrics,
    warm: Callable[[frozenset[str]], WarmTokens],
) -> Web:
    """`pages` and `api` say which routes there are; each is asked again after the configuration has changed. `warm`
    makes the warm calls of the API for the hosts that an application answers for."""
    app = (*api, *(each for each in pages if each not in api))  # the API is called a thousand times for each page
    parts = (tuple(pages), tuple(api), app)
    hosts = allowed_hosts(settings.public_base_url, settings.allowed_hosts)
    of_api = hosts | own_hosts(settings.api_host, settings.api_port) if settings.api_port else hosts
    paths = [Paths(_all(each)) for each in parts]
    first, second, third = (
        _application(each, known, settings, RequestLog(clock, log, metrics), log)
        for each, known in zip(paths, (hosts, of_api, hosts), strict=True)
    )
    second.state.warm_tokens, third.state.warm_tokens = warm(of_api), warm(hosts)
    return Web(pages=first, api=second, app=third, _parts=tuple(zip(paths, parts, strict=True)))


def warm_tokens_of(web: ASGIApp) -> WarmTokens | None:
    """Return the warm calls of an application that `build_web` made. None for another one, and for the pages alone."""
    found = getattr(getattr(web, "state", None), "warm_tokens", None)
    return found if isinstance(found, WarmTokens) else None


def _application(paths: Paths, hosts: frozenset[str], settings: Settings, requests: RequestLog, log: Log) -> Starlette:
    """Build an application. Its layers are our own: Starlette would add a fence against faults, which the gate is."""
    app, brand = plain(Starlette)(), Brand.of(settings)
    app.router = paths
    gate = Gate(
        paths,
        hosts=hosts,
        locale=settings.locale,
        log=log,
        requests=requests,
        proxies=Proxies(settings.trusted_proxies),
        seconds=settings.limits.request_seconds,
        https=settings.public_base_url.startswith("https:"),
    )
    served: ASGIApp = gate if brand is None else Branded(gate, brand=brand)
    base = public_path(settings.public_base_url)
    app.middleware_stack = BelowPublicPath(served, paths, base) if base else served
    return app


def _all(parts: Sequence[Routes]) -> list[BaseRoute]:
    return [route for part in parts for route in part()]
