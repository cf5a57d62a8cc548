"""The requests to a provider and its answers, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Literal
from urllib.parse import urlencode

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field, replace
from oauthbroker.core.header_names import spelled_text
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import OUR_HEADERS

Method = Literal["GET", "POST", "DELETE"]
Encoding = Literal["form", "json", "query"]
Kind = Literal[
    "code", "refresh", "fetch", "device", "poll", "push", "revoke", "userinfo", "metadata", "keys", "register", "other"
]
"""The kind of a request: code exchange, refresh, client credentials, device code, device code poll, pushed request
(RFC 9126), revocation, registration of a client, or a question about the user or the provider."""
Value = str | Secret | tuple[str, ...]  # a tuple repeats the parameter (RFC 8707 `resource`)


@dataclass(frozen=True, slots=True, repr=False)
class ProviderRequest:
    """One request to a provider. Secrets stay `Secret` until the transport sends them.

    `form` has the members of its body, None for no body; `encoding` says how they are written. With `query` the
    transport alone adds them to the address: `url` never holds a secret. `app` and `kind` go into counters and spans,
    and nowhere else. `ca` (PEM) is trusted beside the system's certificates; `direct` passes the company's proxy by.
    """

    method: Method
    url: str
    _: KW_ONLY
    headers: Mapping[str, str | Secret] = field(default_factory=dict)
    form: Mapping[str, Value] | None = None
    accept: str = "application/json"
    encoding: Encoding = "form"
    app: str = ""
    kind: Kind = "other"
    ca: str = ""
    direct: bool = False

    def for_app(self, app: App, kind: Kind) -> ProviderRequest:
        """Return a copy for this app's provider and this kind."""
        return replace(self, app=app.name, kind=kind, ca=app.provider_ca, direct=app.direct)

    def __repr__(self) -> str:
        return f"Request({self.method} {self.url.partition('?')[0]})"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ProviderResponse:
    """One complete answer. `content_type` is the raw header, `retry_after` seconds in 1..3600 or None, `date` the
    provider's clock or None, `challenge` the raw `WWW-Authenticate`. `redirect` says where an answer
    redirects, in words fit for the log; empty for another answer."""

    status: int
    content_type: str
    retry_after: int | None
    body: bytes
    date: datetime | None = None
    challenge: str = ""
    redirect: str = ""

    @property
    def media_type(self) -> str:
        """Return the media type: `application/json` for `Application/JSON; charset=utf-8`."""
        return self.content_type.partition(";")[0].strip().lower()

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"


def encode_form(form: Mapping[str, Value]) -> bytes:
    """Encode as application/x-www-form-urlencoded, in the given order. Reveals secrets: for the transport only."""
    return urlencode(pairs_of(form)).encode("ascii")


def pairs_of(form: Mapping[str, Value]) -> list[tuple[str, str]]:
    """Return (name, text) in the given order, one pair for each value of a name. Reveals secrets."""
    pairs: list[tuple[str, str]] = []
    for name, value in form.items():
        if isinstance(value, tuple):
            pairs.extend((name, each) for each in value)
        else:
            pairs.append((name, reveal(value)))
    return pairs


def encode_json(members: Mapping[str, Value]) -> bytes:
    """Encode the members as one JSON object of texts. Reveals secrets: for the transport only."""
    plain = {name: list(value) if isinstance(value, tuple) else reveal(value) for name, value in members.items()}
    return json.dumps(plain).encode("ascii")


def reveal(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def in_their_words(app: App, members: Mapping[str, Value]) -> dict[str, Value]:
    """Return the members of a request under the names that the app's provider has for them."""
    names = app.habits.param_names
    return {names.get(name, name): value for name, value in members.items()} if names else dict(members)


def with_headers(request: ProviderRequest, headers: Mapping[str, str], client_id: str) -> ProviderRequest:
    """Add a provider's own `headers`, `{client_id}` in their values filled in. They never replace ours."""
    if not headers:
        return request
    taken = {spelled_text(name) for name in request.headers} | OUR_HEADERS
    added, accept = dict(request.headers), request.accept
    for name, value in headers.items():
        filled = value.replace("{client_id}", client_id)
        if name.lower() == "accept":
            accept = filled
        elif spelled_text(name) not in taken:
            added[name] = filled
    return replace(request, headers=added, accept=accept)
