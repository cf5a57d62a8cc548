"""The ASGI applications of a broker: pages for people and operators, the API, the probes, the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.routing import BaseRoute

from oauthbroker.plugins.running_plugin import RunningPlugin
from oauthbroker.web.api.authentication import Callers
from oauthbroker.web.api.router import ApiRoutes
from oauthbroker.web.api.warm_tokens import WarmTokens
from oauthbroker.web.app import Web, build_web
from oauthbroker.web.gate.browsers import Browsers
from oauthbroker.web.gate.csrf import Mac
from oauthbroker.web.gate.readiness import Readiness, health_routes
from oauthbroker.web.html.branding import logo_routes
from oauthbroker.web.html.form_routes import Routes
from oauthbroker.web.middleware.access_log import RequestLog
from oauthbroker.web.middleware.rate_limits import RequestLimits
from oauthbroker.web.pages.admin_pages import AdminPages
from oauthbroker.web.pages.connections_pages import ConnectionsPages
from oauthbroker.web.pages.consent_pages import ConsentPages
from oauthbroker.web.pages.ending_pages import EndingPages
from oauthbroker.web.pages.metrics_page import OperatorsOnly, Scrape, metrics_routes
from oauthbroker.web.pages.retry_pages import RetryPages
from oauthbroker.web.pages.start_pages import docs_routes, start_routes
from oauthbroker.wiring.admin_parts import AdminParts
from oauthbroker.wiring.parts import Parts


class WebParts:
    """Makes the applications of a broker from its parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._limits = RequestLimits(parts.clock, parts.limits.requests_per_minute)
        self._routes = ApiRoutes(parts.services, parts.settings, self._limits)
        self._mac: Mac = lambda message: parts.mac("csrf", message.hex())
        self._admin = AdminPages(
            admin=AdminParts(parts).admin, settings=parts.settings, mac=self._mac, clock=parts.clock
        )

    def open(self, plugins: Mapping[str, RunningPlugin]) -> None:
        """Add the routes and pages of the open plug-ins. Raises `configInvalid`."""
        self._routes.open({name: plugin.routes for name, plugin in plugins.items()})
        self._admin.open({name: plugin.pages for name, plugin in plugins.items()})

    def web(self) -> Web:
        parts, routes = self._parts, self._routes
        probes, start = _probes(parts), partial(start_routes, parts.settings.locale)
        return build_web(
            pages=[*self._pages(), probes, routes.metadata, start],
            api=[routes.calls, probes, routes.metadata, docs_routes, start],
            settings=parts.settings,
            clock=parts.clock,
            log=parts.log,
            metrics=parts.metrics,
            warm=self._warm_tokens,
        )

    def _warm_tokens(self, hosts: frozenset[str]) -> WarmTokens:
        parts = self._parts
        return WarmTokens(
            hosts=hosts,
            https=parts.settings.public_base_url.startswith("https:"),
            turns=parts.turns,
            issuer=parts.token_issuer,
            limits=self._limits,
            log=RequestLog(parts.clock, parts.log, parts.metrics),
        )

    def _pages(self) -> list[Routes]:
        """Return the pages for people, and for operators."""
        parts, settings, mac, clock = self._parts, self._parts.settings, self._mac, self._parts.clock
        browsers = Browsers(settings, mac, clock)
        retry = RetryPages(retrying=parts.pages.retry, browsers=browsers)
        connections = ConnectionsPages(connections=parts.connections, settings=settings, mac=mac, clock=clock)
        return [
            ConsentPages(
                consent=parts.pages.service,
                retry=retry,
                browsers=browsers,
                reconnect=parts.expiring.open,
            ).routes,
            EndingPages(consent=parts.pages.service, browsers=browsers, enter=connections.enter).routes,
            connections.routes,
            self._admin.routes,
            partial(logo_routes, settings),
        ]


def _probes(parts: Parts) -> Routes:
    settings = parts.settings
    scrape = Scrape(metrics=parts.metrics, gauges=parts.gauges, apps=parts.apps, folder=parts.metrics_folder)
    may_degrade = parts.repository.may_degrade
    readiness = Readiness(
        parts.repository.probe,
        parts.life,
        parts.clock,
        may_degrade=may_degrade,
        outage=parts.outage,
        log=parts.log,
    )
    operators = OperatorsOnly(
        callers=Callers(turns=parts.turns, api_keys=parts.api_keys, settings=settings),
        limits=RequestLimits(parts.clock, settings.limits.requests_per_minute),
        clock=parts.clock,
        loopback=settings.admin_loopback,
    )

    def routes() -> list[BaseRoute]:
        return health_routes(parts.health_check, readiness, parts.mac) + metrics_routes(scrape, operators)

    return routes
