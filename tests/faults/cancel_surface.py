"""The public surface, found in the product itself: the coroutines of `Broker` and of what the manual names of it, the
operations of the API, and the pages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from oauthbroker.broker import Broker
from oauthbroker.events.port import EventLease
from oauthbroker.grants.connections import Connections
from oauthbroker.grants.importing import Importing
from oauthbroker.tokens.context import OAuthContext
from oauthbroker.web.api.call_table import OPERATIONS

MANUAL = Path(__file__).parents[2] / "docs" / "embedding.md"
REACHED = {
    "oauth": OAuthContext, "delivery": EventLease, "connections": Connections, "grants.importing": Importing,
}  # fmt: skip
"""What methods and properties give, which no field of `Broker` names."""


def public() -> set[str]:
    """Names as the table of actions covers them, without the pages."""
    parts: dict[str, type] = {"": Broker, **REACHED, **dict(_fields())}
    names = {f"{part}.{name}".lstrip(".") for part, kind in parts.items() for name in _coroutines(kind)}
    return names | {f"http {operation.id}" for operation in OPERATIONS}


def pages(broker: Broker) -> set[str]:
    """Every page that it serves, as method and path."""
    served: Any = broker.asgi.pages
    routes = [(method, route.path) for route in served.routes for method in route.methods or ()]
    return {f"page {method} {path}" for method, path in routes}


def _fields() -> Iterator[tuple[str, type]]:
    manual = MANUAL.read_text("utf-8")
    for name, kind in get_type_hints(Broker).items():
        if f"broker.{name}" in manual and inspect.isclass(kind):
            yield name, kind


def _coroutines(kind: type) -> Iterator[str]:
    for name, member in inspect.getmembers(kind):
        inner: Any = inspect.unwrap(member) if callable(member) else None
        if not name.startswith("_") and (inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)):
            yield name
