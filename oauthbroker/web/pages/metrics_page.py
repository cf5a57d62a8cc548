"""`GET /metrics`: our figures in Prometheus' text format, for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from oauthbroker.admin.gauges import PATIENCE_SECONDS, Gauges
from oauthbroker.core.bounded_cache import Bounded
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import digest_of
from oauthbroker.observability.metrics import FROM_THE_START, SECONDS, Gauge, Labels, Metric, Metrics, Name, Timing
from oauthbroker.observability.shared_metrics import MetricFigures, MetricsFolder
from oauthbroker.web.api.authentication import Callers, address_of, bearer, id_of, known, may
from oauthbroker.web.html.form_routes import route
from oauthbroker.web.middleware.forwarded import is_local
from oauthbroker.web.middleware.rate_limits import RequestLimits
from oauthbroker.web.middleware.security_headers import security_headers

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

PATH = "/metrics"
REMEMBERED_SECONDS = 3600.0
MOST_REMEMBERED = 100  # keys that read the metrics
N = TypeVar("N", bound=Name)
V = TypeVar("V")
Admit = Callable[[Request], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """All figures as they are now: this process', and the others' out of the `folder` that they share."""

    metrics: Metrics
    gauges: Gauges
    apps: Mapping[str, object]
    folder: MetricsFolder | None

    async def __call__(self) -> MetricFigures:
        """Raises `storeUnavailable` when the folder cannot be read: figures of half the processes would look as if the
        other half had begun anew."""
        figures = await self._others()
        figures.metrics.absorb(self.metrics.to_json())
        for metric in (each for each in Metric if each.labels in {(), ("app",)}):
            for labels in [(app,) for app in self.apps] if metric.labels else [()]:
                figures.metrics.counts[metric, labels] += 0  # a series that is there before its first event has a rate
        for key in FROM_THE_START:
            figures.metrics.counts[key] += 0
        figures.add(self.gauges.of_process())
        figures.now |= await self.gauges.of_store()
        return figures

    async def _others(self) -> MetricFigures:
        if self.folder is None:
            return MetricFigures()
        try:
            return await asyncio.to_thread(self.folder.others)
        except OSError:
            failed = BrokerError(Code.STORE_UNAVAILABLE, note="the folder of the metrics")
        raise failed


def metrics_routes(scrape: Scrape, admit: Admit) -> list[BaseRoute]:
    """`admit` raises for callers that may not read."""

    async def answer(request: Request) -> Response:
        await admit(request)
        body, kind = text_of(await scrape())
        return Response(body, headers={**security_headers(), "content-type": kind})

    return [route(PATH, answer, "GET")]


@dataclass(slots=True, kw_only=True)
class OperatorsOnly:
    """Admits operators by key or over the socket; where `loopback` is on, also callers of this machine without a key.

    While the store is away no key can be checked, and the figures are wanted most: a key that was good within the last
    REMEMBERED_SECONDS still reads, also if the store does not answer within PATIENCE_SECONDS.
    """

    callers: Callers
    limits: RequestLimits
    clock: Clock
    loopback: bool
    _good: Bounded[str, tuple[str, float]] = field(default_factory=lambda: Bounded(MOST_REMEMBERED))

    async def __call__(self, request: Request) -> None:
        """Raises `unauthenticated`, `notAllowed`, `turnEnded`, `rateLimited`, and store codes."""
        if self.loopback and "authorization" not in request.headers and is_local(request):
            self.limits.called(address_of(request))
            return
        key = digest_of(bearer(request))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):  # shielded: a statement that is cancelled may take its time
                caller = await asyncio.shield(known(request, self.callers, self.limits))
        except BrokerError as error:
            refused = error
        except TimeoutError:
            refused = BrokerError(Code.STORE_UNAVAILABLE, note="the store does not answer in time")
        else:
            if not may(caller, {"operator"}):
                raise BrokerError(Code.NOT_ALLOWED)
            self._good.keep(key, (id_of(caller), self.clock.monotonic()))
            return
        if refused.code is Code.UNAUTHENTICATED:
            self._good.pop(key)
        caller_id, at = self._good.get(key) or ("", -inf)
        if refused.code is not Code.STORE_UNAVAILABLE or self.clock.monotonic() - at >= REMEMBERED_SECONDS:
            raise refused
        self.limits.called(caller_id)


def text_of(figures: MetricFigures) -> tuple[bytes, str]:
    """Return the body and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry(auto_describe=False)  # of our own: without the figures of other libraries
    registry.register(_Collector(figures))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, figures: MetricFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        metrics = self._figures.metrics
        for metric in Metric:
            counter = CounterMetricFamily(metric.value, metric.about, labels=metric.labels)
            for labels, count in _series(metrics.counts, metric):
                counter.add_metric(labels, count)
            yield counter
        for timing in Timing:
            histogram = HistogramMetricFamily(timing.value, timing.about, labels=timing.labels)
            for labels, times in _series(metrics.times, timing):
                histogram.add_metric(labels, _cumulative(times.buckets), times.seconds)
            yield histogram
        for gauge in Gauge:
            family = GaugeMetricFamily(gauge.value, gauge.about, labels=gauge.labels)
            for labels, value in _series(self._figures.now, gauge):
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterable[Family]:
        return []


def _series(found: Mapping[tuple[N, Labels], V], name: N) -> list[tuple[Labels, V]]:
    return sorted(
        ((labels, value) for (each, labels), value in found.items() if each is name), key=lambda pair: pair[0]
    )


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    return [*zip((*map(str, SECONDS), "+Inf"), map(float, accumulate(buckets)), strict=True)]
