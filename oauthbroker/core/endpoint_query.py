"""The query that an endpoint's own address has (RFC 6749 sections 3.1 and 3.2)."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit


def parameters_in(url: str) -> set[str]:
    """Return the names of its parameters.

    A `request` of one word, as in `authorize.php?request=authorize`, is a path in disguise and not counted: the request
    object of RFC 9101 has dots.
    """
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    return {name for name, value in pairs if not (name == "request" and value.isascii() and value.isalpha())}
