"""The request headers that a provider wants beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oauthbroker.apps import OUR_HEADERS
from oauthbroker.protocol.messages import Request


def with_headers(request: Request, headers: Mapping[str, str], client_id: str) -> Request:
    """The request with `headers` added, `{client_id}` in their values filled in. Those that are ours stay ours."""
    taken = {name.lower() for name in request.headers} | OUR_HEADERS
    added, accept = dict(request.headers), request.accept
    for name, value in headers.items():
        filled = value.replace("{client_id}", client_id)
        if name.lower() == "accept":
            accept = filled
        elif name.lower() not in taken:
            added[name] = filled
    return replace(request, headers=added, accept=accept)
