"""`ctx.oauth`: the manager as one turn and one tool may see it (specification 12.5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oauthbroker.errors import BrokerError, Code, Locale
from oauthbroker.manager import Caller, OAuthManager
from oauthbroker.results import Failed, TokenResult
from oauthbroker.secret import Secret

REQUEST_FIELDS = frozenset({"oauthAppRef", "scopes", "minTtlSeconds"})
REF_FIELDS = frozenset({"kind", "name", "apiVersion"})


class OAuthContext:
    """Bound to a turn and narrowed to what a tool declared. A subject cannot be named here: it is the turn's."""

    __slots__ = ("_caller", "_locale", "_manager")

    def __init__(self, manager: OAuthManager, caller: Caller, locale: Locale) -> None:
        self._manager = manager
        self._caller = caller
        self._locale = locale

    async def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        switch_account: bool = False,
    ) -> TokenResult:
        """`app` is `"OAuthApp/name"`, the bare name, or `{kind, name}`. Ready, AuthorizationRequired or Failed."""
        try:
            name = app_name(app)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        return await self._manager.get_access_token(
            self._caller, name, scopes, min_ttl_seconds, switch_account=switch_account
        )

    async def getAccessToken(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The same call in the specification's own form: JSON in, JSON out."""
        try:
            name, scopes, min_ttl = parse_request(request)
        except BrokerError as error:
            return Failed.from_error(error, self._locale).to_json()
        return (await self._manager.get_access_token(self._caller, name, scopes, min_ttl)).to_json()

    async def report_rejected(
        self, app: str | Mapping[str, str], access_token: str | Secret, scopes: Sequence[str] | None = None
    ) -> TokenResult:
        """The provider's API answered 401 to this token: a newer one if there is or can be one, else as above."""
        try:
            name = app_name(app)
        except BrokerError as error:
            return Failed.from_error(error, self._locale)
        token = access_token if isinstance(access_token, Secret) else Secret(str(access_token))
        return await self._manager.report_rejected(self._caller, name, token, scopes)


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
