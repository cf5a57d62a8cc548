"""What the outside touches, put together: the pages for people and operators, the API, the probes, the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.routing import BaseRoute

from oauthbroker.broker import Broker
from oauthbroker.gauges import Gauges
from oauthbroker.metrics_folder import MetricsFolder
from oauthbroker.web.admin_pages import AdminPages
from oauthbroker.web.api.caller import Callers
from oauthbroker.web.api.limits import RequestLimits
from oauthbroker.web.api.routes import api_routes
from oauthbroker.web.app import Web, build_web
from oauthbroker.web.branding import logo_routes
from oauthbroker.web.connections_pages import ConnectionsPages
from oauthbroker.web.consent_pages import ConsentPages
from oauthbroker.web.health import Readiness, health_routes
from oauthbroker.web.metrics_page import Scrape, metrics_routes, operators_only
from oauthbroker.web.retry_pages import RetryPages
from oauthbroker.web.routes import Routes
from oauthbroker.wiring.rooms import Given, Rooms


@dataclass(frozen=True, slots=True)
class Faces:
    """One broker's ASGI applications, and the gauges that they show."""

    web: Web
    gauges: Gauges

    @classmethod
    def of(cls, given: Given, rooms: Rooms, the_broker: Callable[[], Broker], place: MetricsFolder | None) -> Faces:
        """`the_broker` is asked at every request: the broker is made after its faces."""
        settings, clock = given.bundle.settings, given.clock
        gauges = Gauges(
            rooms.in_use.apps, rooms.flows.circuits, rooms.flows.opening.quota, rooms.health, rooms.queues, clock
        )
        probes = _probes(given, rooms, the_broker, Scrape(rooms.metrics, gauges, rooms.in_use.apps, place))
        calls = api_routes(the_broker, settings, clock)

        def api() -> list[BaseRoute]:
            return calls

        web = build_web([*_pages(given, rooms), probes], [probes, api], settings, clock, given.log, rooms.metrics)
        return cls(web, gauges)


def _pages(given: Given, rooms: Rooms) -> list[Routes]:
    """For people, and for operators."""
    settings, clock = given.bundle.settings, given.clock

    def mac(message: bytes) -> bytes:
        return given.mac("csrf", message.hex())

    return [
        ConsentPages(rooms.consent, RetryPages(rooms.retrying, settings, mac, clock), settings, mac, clock).routes,
        ConnectionsPages(rooms.people.connections, settings, mac, clock).routes,
        AdminPages(rooms.admin, settings, mac, clock).routes,
        partial(logo_routes, settings),
    ]


def _probes(given: Given, rooms: Rooms, the_broker: Callable[[], Broker], scrape: Scrape) -> Routes:
    settings = given.bundle.settings
    readiness = Readiness(given.repository.probe, rooms.life, given.clock)
    often = RequestLimits(given.clock, settings.limits.requests_per_minute)
    operators = operators_only(Callers(the_broker, settings), often, loopback=settings.admin_loopback)

    def routes() -> list[BaseRoute]:
        return health_routes(rooms.health, readiness) + metrics_routes(scrape, operators)

    return routes
