"""Time, count and trace every request to a provider. Requests and answers are not stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.observability.metrics import NO_ANSWER, Metric, Metrics, Timing, status_class
from oauthbroker.observability.tracing import Span, span
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse


@dataclass(frozen=True, slots=True)
class Instrumentation:
    """Records requests by app, kind and class of status, without the URL."""

    metrics: Metrics
    clock: Clock

    async def over(self, request: ProviderRequest, send: Callable[[], Awaitable[ProviderResponse]]) -> ProviderResponse:
        """Call `send`, record its outcome, and return or raise the same."""
        began, status = self.clock.monotonic(), NO_ANSWER
        try:
            with span(Span.PROVIDER, app=request.app, kind=request.kind) as spanned:
                answer = await send()
                status = status_class(answer.status)
                spanned.set(status=answer.status)
                return answer
        finally:
            self.metrics.time(Timing.PROVIDER_REQUEST, self.clock.monotonic() - began, request.app, request.kind)
            self.metrics.add(Metric.PROVIDER_REQUESTS, request.app, request.kind, status)
