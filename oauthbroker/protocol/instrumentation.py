"""How long providers take and how they answer: every request is timed, counted and traced, and none of it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from oauthbroker.clock import Clock
from oauthbroker.metrics import NO_ANSWER, Metric, Metrics, Timing, status_class
from oauthbroker.protocol.messages import Answer, Request
from oauthbroker.tracing import Span, span


@dataclass(frozen=True, slots=True)
class Watch:
    """Notes requests by app, kind and class of status. The URL is in none of it."""

    metrics: Metrics
    clock: Clock

    async def over(self, request: Request, send: Callable[[], Awaitable[Answer]]) -> Answer:
        """What `send` returns or raises."""
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
