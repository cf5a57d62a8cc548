"""How long a request may take until its answer begins, and how a route says that its own may take longer."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from starlette.requests import Request

_KEY = "deadline"


def set_deadline(scope: MutableMapping[str, Any], limit: asyncio.Timeout) -> None:
    """The gate's side: `limit` holds until the answer begins."""
    scope.setdefault("state", {})[_KEY] = limit


def may_take_long(request: Request) -> None:
    """A route's side, first thing: waiting is what this one is for. Its caller's body has been read by then."""
    limit = request.scope.get("state", {}).get(_KEY)
    if limit is not None:
        limit.reschedule(None)
