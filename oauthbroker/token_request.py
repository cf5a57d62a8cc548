"""The request of `getAccessToken` (specification 12.5.1), as tools write it: here, and in the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oauthbroker.errors import BrokerError, Code

REQUEST_FIELDS = frozenset({"oauthAppRef", "scopes", "minTtlSeconds"})
REF_FIELDS = frozenset({"kind", "name", "apiVersion"})


def parse_request(request: Mapping[str, Any]) -> tuple[str, Sequence[str] | None, int | None]:
    """(app's name, scopes, minTtlSeconds) of `{oauthAppRef, scopes?, minTtlSeconds?}`.

    Raises `requestInvalid` for any other field: above all nobody can name a subject.
    """
    if not isinstance(request, Mapping) or not request.keys() <= REQUEST_FIELDS or "oauthAppRef" not in request:
        raise BrokerError(Code.REQUEST_INVALID)
    scopes = request.get("scopes")
    if scopes is not None and not isinstance(scopes, (list, tuple)):
        raise BrokerError(Code.REQUEST_INVALID, note="scopes")
    return app_name(request["oauthAppRef"]), scopes, request.get("minTtlSeconds")


def app_name(ref: str | Mapping[str, str]) -> str:
    """The name in `"OAuthApp/name"`, `"name"` or `{kind: OAuthApp, name}`. Raises `requestInvalid`."""
    kind, name = "OAuthApp", ref
    if isinstance(ref, str):
        first, slash, rest = ref.partition("/")
        kind, name = (first, rest) if slash else (kind, ref)
    elif isinstance(ref, Mapping) and ref.keys() <= REF_FIELDS:
        kind, name = ref.get("kind", kind), ref.get("name", "")
    if kind != "OAuthApp" or not isinstance(name, str) or not name:
        raise BrokerError(Code.REQUEST_INVALID, note="oauthAppRef")
    return name
