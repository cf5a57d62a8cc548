"""Clients of httpx2 and httpx that name a header which cannot be sent. The libraries say only that one cannot be."""

from __future__ import annotations

from functools import cache
from typing import Any

from oauthbroker.core.header_names import unsendable


def http_client(client_type: Any, transport: Any, base_url: str) -> Any:
    """Return a client on a transport, with nothing from the environment. Its requests raise the failure of the
    transport's `requests`."""
    return _naming(client_type)(transport=transport, base_url=base_url, trust_env=False, timeout=None)


@cache
def _naming(client_type: Any) -> Any:
    return type(client_type.__name__, (_NamesWrongHeader, client_type), {})


class _NamesWrongHeader:
    _transport: Any

    def build_request(self, *args: Any, **parts: Any) -> Any:
        try:
            return super().build_request(*args, **parts)  # type: ignore[misc]  # the library's
        except UnicodeEncodeError as failed:
            if failed.encoding != "ascii":  # of the body
                raise
        error = unsendable(_not_ascii(parts.get("headers") or {}))  # outside of the block: its exception has the value
        raise self._transport.requests.failure(error, None)


def _not_ascii(headers: Any) -> bytes:
    """Return the name of the header that a library could not encode; Cookie is the one that it makes itself."""
    for name, value in headers.items() if hasattr(headers, "items") else headers:
        if not (name.isascii() and value.isascii()):
            return name.encode("utf-8", "replace") if isinstance(name, str) else bytes(name)
    return b"Cookie"
