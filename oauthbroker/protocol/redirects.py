"""Say where an endpoint redirects, for the operator. No redirect is followed: its target would receive secrets.

A `Location` is a provider's text, and may repeat what we sent. So only its scheme, its host and the words of
its path are reported, and nothing of one that holds a secret of the request.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote, unquote_plus, urljoin, urlsplit

from oauthbroker.core.secret import Secret
from oauthbroker.protocol.messages import Kind, ProviderRequest, Value

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_LOCATION: Final = 2048
_LEAST: Final = 4  # characters; shorter values are no secrets, and occur by chance
_HOST = re.compile(r"(?=.{1,100}$)[a-z0-9-]{1,30}(\.[a-z0-9-]{1,30})*")
_WORD = re.compile(r"[A-Za-z]{1,20}([._-][A-Za-z]{1,20}){0,3}[0-9]?|v?[0-9]{1,2}(\.[0-9]{1,2})?")
_HIDDEN: Final = "..."
_NAMES: Final[Mapping[Kind, str]] = {
    "code": "token", "refresh": "token", "fetch": "token", "poll": "token", "device": "device authorization",
    "push": "pushed authorization", "revoke": "revocation", "userinfo": "userinfo", "metadata": "metadata",
    "keys": "key set", "register": "registration",
}  # fmt: skip


def redirect_note(request: ProviderRequest, status: int, location: str) -> str:
    """Return the note for an answer that redirects; empty for another one."""
    if status not in REDIRECTS:
        return ""
    place = _place(request.url, location, _secrets_of(request)) or "another address"
    name = _NAMES.get(request.kind, "")
    return f"the {name} endpoint redirects to {place}, which is not followed".replace("the  ", "the ")


def _place(url: str, location: str, secrets: Iterable[str]) -> str:
    """Return scheme, host and path of the target, without what may be a secret; empty if nothing may be reported."""
    if not location or len(location) > _MAX_LOCATION or not location.isprintable():
        return ""
    try:
        parts = urlsplit(urljoin(url, location))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host):
        return ""
    if any(secret in text for secret in secrets for text in (location, unquote(location), host)):
        return ""
    path = "/".join(each if not each or _WORD.fullmatch(each) else _HIDDEN for each in parts.path.split("/"))
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"


def _secrets_of(request: ProviderRequest) -> list[str]:
    """Return the secrets that were sent, a header's parts one by one. A repeated parameter holds none."""
    values: list[Value] = [*(request.form or {}).values(), *request.headers.values()]
    texts = [value.reveal() for value in values if isinstance(value, Secret)]
    parts = [part for text in texts for part in (text, *text.split(" "), *_basic(text))]
    return [part for part in parts if len(part) >= _LEAST and part != "Bearer"]


def _basic(header: str) -> list[str]:
    """Return the client's secret from HTTP Basic. Its id is none."""
    scheme, _, value = header.partition(" ")
    try:
        decoded = b64decode(value, validate=True).decode() if scheme == "Basic" else ""
    except ValueError:
        return []
    return [unquote_plus(decoded.partition(":")[2])]
