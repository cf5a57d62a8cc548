"""Clients of httpx2 and httpx that check a request as the tool wrote it. The libraries resolve the steps `.` and `..`
of an address, and of a header that they cannot encode they say only that there is one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.header_names import unsendable

Check = Callable[[str], str]


def checked_client(client_type: Any, transport: Any, base_url: str, check: Check) -> Any:
    """Return a client on a transport, with nothing from the environment. `check` gets each address that is a text, and
    returns the one to use. Its BrokerError becomes the failure of the transport's `requests`."""
    client = _checking(client_type)(transport=transport, base_url=base_url, trust_env=False, timeout=None)
    client.check = check
    return client


@cache
def _checking(client_type: Any) -> Any:
    return type(client_type.__name__, (_Checks, client_type), {})


class _Checks:
    _transport: Any
    check: Check

    def build_request(self, method: Any, url: Any, *args: Any, **parts: Any) -> Any:
        try:
            if isinstance(url, str):
                url = self.check(url)
            return super().build_request(method, url, *args, **parts)  # type: ignore[misc]  # the library's
        except BrokerError as refused:
            error = refused
        except UnicodeEncodeError as failed:
            if failed.encoding != "ascii":  # of the body
                raise
            error = unsendable(_not_ascii(parts.get("headers") or {}))
        raise self._transport.requests.failure(error, None)  # outside of the block: its exception has the value


def _not_ascii(headers: Any) -> bytes:
    """Return the name of the header that a library could not encode; Cookie is the one that it makes itself."""
    for name, value in headers.items() if hasattr(headers, "items") else headers:
        if not (name.isascii() and value.isascii()):
            return name.encode("utf-8", "replace") if isinstance(name, str) else bytes(name)
    return b"Cookie"
