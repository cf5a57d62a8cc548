"""Read the `Bearer` challenge of a `WWW-Authenticate` header. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 8 * 1024
UNAUTHORIZED, FORBIDDEN = 401, 403  # http.HTTPStatus is a larger import than programs without a server need
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ITEM = re.compile(
    rf"""[ \t]*(?:,[ \t]*)*                                                # items of the list, some of them empty
    (?:(?P<name>{_TOKEN})[ \t]*=[ \t]*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>{_TOKEN}))(?=[ \t]*(?:,|$))
      |(?P<scheme>{_TOKEN})(?:[ \t]+(?P<token68>[0-9A-Za-z._~+/-]+=*)(?=[ \t]*(?:,|$))|(?=[ \t,]|$)))""",
    re.VERBOSE,
)


def bearer_challenge(header: str) -> dict[str, str] | None:
    """Return the parameters of the first Bearer challenge, names in lower case (RFC 9110 section 11.6.1, RFC 6750
    section 3). None without one, and for a header that is malformed, names a parameter twice, or is too long."""
    text, at = header.strip(" \t,"), 0
    challenges: list[tuple[str, dict[str, str]]] = []
    while at < len(text) <= LONGEST:
        item = _ITEM.match(text, at)
        if item is None:
            return None
        at = item.end()
        if item["scheme"] is not None:
            challenges.append((item["scheme"].lower(), {}))
            continue
        name = item["name"].lower()
        if not challenges or name in challenges[-1][1]:
            return None
        value = item["plain"] if item["quoted"] is None else re.sub(r"\\(.)", r"\1", item["quoted"])
        challenges[-1][1][name] = value
    return next((parameters for scheme, parameters in challenges if scheme == "bearer"), None)


def demanded_scopes(status: int, headers: Iterable[tuple[bytes, bytes]]) -> frozenset[str]:
    """Return the scopes of a challenge: any in a 401, that of `insufficient_scope` in a 403 (RFC 6750, 3.1)."""
    if status not in {UNAUTHORIZED, FORBIDDEN}:
        return frozenset()
    said = b", ".join(value for name, value in headers if name.lower() == b"www-authenticate")
    challenge = bearer_challenge(said.decode("latin-1")) or {}
    if status == FORBIDDEN and challenge.get("error") != "insufficient_scope":
        return frozenset()
    return frozenset(challenge.get("scope", "").split())
