"""What travels to a provider and what comes back: plain data that the builders make and the judges read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal
from urllib.parse import urlencode

from oauthbroker.apps import OAuthApp
from oauthbroker.secret import Secret

Method = Literal["GET", "POST", "DELETE"]
Encoding = Literal["form", "json"]
Kind = Literal["code", "refresh", "fetch", "device", "poll", "push", "revoke", "userinfo", "metadata", "keys", "other"]
"""What a request is for: a code's exchange, a renewal, client credentials, a device code, whether it is used, a pushed
request (RFC 9126), a revocation, and what is asked about the person and the provider."""
Value = str | Secret | tuple[str, ...]  # a tuple repeats the parameter (RFC 8707 `resource`)


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """One request to a provider. Secrets stay `Secret` until the transport puts them on the wire.

    `form` are the members of its body, None for no body; `encoding` is how they are written there. `app` and `kind` go
    into counters and spans, and nowhere else. `ca` is trusted (PEM) beside the system's certificates.
    """

    method: Method
    url: str
    headers: Mapping[str, str | Secret] = field(default_factory=dict)
    form: Mapping[str, Value] | None = None
    accept: str = "application/json"
    encoding: Encoding = "form"
    app: str = ""
    kind: Kind = "other"
    ca: str = ""

    def for_app(self, app: OAuthApp, kind: Kind) -> Request:
        """The same with whose provider it goes to."""
        return replace(self, app=app.name, kind=kind, ca=app.provider_ca)

    def __repr__(self) -> str:
        return f"Request({self.method} {self.url.partition('?')[0]})"


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """One complete answer. `content_type` is the raw header, `retry_after` seconds in 1..3600 or None, `date` what
    the provider's clock said, None if it did not say."""

    status: int
    content_type: str
    retry_after: int | None
    body: bytes
    date: datetime | None = None

    @property
    def media_type(self) -> str:
        """`application/json` out of `Application/JSON; charset=utf-8`."""
        return self.content_type.partition(";")[0].strip().lower()

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"


def encode_form(form: Mapping[str, Value]) -> bytes:
    """application/x-www-form-urlencoded, in the given order. Reveals: for the transport only."""
    return urlencode(pairs_of(form)).encode("ascii")


def pairs_of(form: Mapping[str, Value]) -> list[tuple[str, str]]:
    """(name, text) in the given order, a name once for each of its values. Reveals."""
    pairs: list[tuple[str, str]] = []
    for name, value in form.items():
        if isinstance(value, tuple):
            pairs.extend((name, each) for each in value)
        else:
            pairs.append((name, reveal(value)))
    return pairs


def encode_json(members: Mapping[str, Value]) -> bytes:
    """The same members as one JSON object of texts. Reveals: for the transport only."""
    plain = {name: list(value) if isinstance(value, tuple) else reveal(value) for name, value in members.items()}
    return json.dumps(plain).encode("ascii")


def reveal(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value
