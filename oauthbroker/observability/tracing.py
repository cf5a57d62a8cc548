"""Spans for OpenTelemetry, where the host program has set it up: a closed set of names and attributes, never a secret,
a subject, or an id that tells people apart.

OpenTelemetry is looked up, not imported: as long as the host program has not imported its API, it is not set up, and a
span then costs one look into a dict.
"""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from oauthbroker.core.errors import BrokerError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_API = "opentelemetry.trace"
_CONTEXT = "opentelemetry.context"
_QUIET = ("suppress_instrumentation", "suppress_http_instrumentation")


class Span(StrEnum):
    """Every span there is."""

    HTTP = "oauthbroker.http"  # a request to this server
    TOKEN = "oauthbroker.token"  # a token call, or the report of a rejected token
    REFRESH = "oauthbroker.refresh"  # refreshing or fetching a grant's token
    PROVIDER = "oauthbroker.provider"  # one request to a provider
    CALLBACK = "oauthbroker.callback"  # the provider sent a browser back
    COMMIT = "oauthbroker.commit"  # a grant and its event are being stored
    RELAY = "oauthbroker.relay"  # one record's events go to their queue
    REVOKE = "oauthbroker.revoke"  # a provider is told that a grant has ended


class Attributes(TypedDict, total=False):
    """Every attribute there is. Values are our own words and numbers; an empty one is left out."""

    app: str  # as the configuration names it
    code: str  # of docs/errors.md
    outcome: str
    kind: str
    route: str  # a template, never a path
    method: str
    status: int


KEYS = {
    "app": "oauthbroker.app",
    "code": "oauthbroker.code",
    "outcome": "oauthbroker.outcome",
    "kind": "oauthbroker.kind",
    "route": "http.route",
    "method": "http.request.method",
    "status": "http.response.status_code",
}
ERROR_TYPE = "error.type"  # the class of an exception that is not ours; never its text


class _Nothing:
    """The span while spans are not collected."""

    __slots__ = ()

    def set(self, **attributes: Unpack[Attributes]) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_NOTHING = _Nothing()


def span(name: Span, /, *, traceparent: str = "", **attributes: Unpack[Attributes]) -> _Nothing | _OpenSpan:
    """Open a span around the block, below the one that is open. `traceparent` (W3C Trace Context) makes it a child of a
    caller's. Of an exception that leaves the block only its code is kept, or its class."""
    tracer = _tracer() if _API in sys.modules else None
    if tracer is None:
        return _NOTHING
    return _OpenSpan(tracer=tracer, name=name, traceparent=traceparent, attributes=attributes)


class _OpenSpan:
    __slots__ = ("_attributes", "_name", "_span", "_token", "_traceparent", "_tracer")

    def __init__(self, *, tracer: Tracer, name: Span, traceparent: str, attributes: Attributes) -> None:
        self._tracer, self._name, self._traceparent, self._attributes = tracer, name, traceparent, attributes

    def __enter__(self) -> Self:
        from opentelemetry import context, trace

        kinds = {Span.HTTP: trace.SpanKind.SERVER, Span.PROVIDER: trace.SpanKind.CLIENT}
        around = _parent(self._traceparent)
        self._span = self._tracer.start_span(
            self._name.value, around, kinds.get(self._name, trace.SpanKind.INTERNAL), _plain(self._attributes)
        )
        inside = trace.set_span_in_context(self._span, around)
        if self._name is Span.PROVIDER:  # an HTTP library that is instrumented would send our trace on
            for key in _QUIET:
                inside = context.set_value(key, True, inside)
        self._token = context.attach(inside)
        return self

    def set(self, **attributes: Unpack[Attributes]) -> None:
        self._span.set_attributes(_plain(attributes))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        from opentelemetry import context, trace

        context.detach(self._token)
        if isinstance(error, BrokerError):
            self.set(code=error.code.value)
        elif kind is not None:
            self._span.set_attribute(ERROR_TYPE, kind.__name__)
        if kind is not None and not issubclass(kind, asyncio.CancelledError):
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()


def is_traced() -> bool:
    """Return whether a span would be more than a look into a dict."""
    return _API in sys.modules and _tracer() is not None


def _tracer() -> Tracer | None:
    """Return the tracer that the host program has set up, or None."""
    trace: Any = sys.modules.get(_API)
    if trace is None or _CONTEXT not in sys.modules:
        return None
    look = getattr(trace, "get_tracer_provider", None)
    if look is None or not hasattr(trace, "NoOpTracerProvider"):  # its import is under way at this moment
        return None
    provider = look()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    tracer: Tracer = provider.get_tracer("oauthbroker")
    return tracer


def _parent(traceparent: str) -> Any:
    """Return the context that a caller's header names, and nothing else of it; None for the one we are in."""
    if not traceparent:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())


def _plain(attributes: Attributes) -> dict[str, str | int]:
    return {KEYS[key]: value for key, value in attributes.items() if isinstance(value, (str, int)) and value != ""}
