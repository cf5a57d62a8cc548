"""`ctx.oauth` as tools and plug-ins take it: embedded or over HTTP, with and without `await`.

`broker.oauth(...)` and `oauthbroker.client.OAuth` are an `OAuthCapability`; `.sync` of the first and
`oauthbroker.client.SyncOAuth` are a `SyncOAuthCapability`. A failure is a result too, a `Failed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import TokenResult

if TYPE_CHECKING:
    import httpx2

__all__ = ["OAuthCapability", "SyncOAuthCapability"]


class OAuthCapability(Protocol):
    """The right to ask for tokens of one turn, as one tool or as the runtime."""

    async def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        account: str | None = None,
    ) -> TokenResult:
        """Return a token (`Ready`), a request for consent (`AuthorizationRequired`) or an error (`Failed`). `app` is
        `"OAuthApp/name"`, the bare name, or `{kind, name}`; `account` is one that the turn lists."""
        ...

    async def report_rejected(
        self,
        app: str | Mapping[str, str],
        access_token: str | Secret,
        scopes: Sequence[str] | None = None,
        claims: str | None = None,
    ) -> TokenResult:
        """Report that the provider's API answered 401 to this token. Return a newer token if there is one, else as
        `get_access_token`. `claims`: the text of that name in its challenge `insufficient_claims`."""
        ...

    def client(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        *,
        library: ModuleType | None = None,
    ) -> httpx2.AsyncClient:
        """Return an HTTP client whose requests to the app's hosts carry the token, which the tool never gets.

        It raises `AuthorizationRequiredError` and `RequestRefusedError`. `library`: the module `httpx`, in place of
        httpx2."""
        ...


class SyncOAuthCapability(Protocol):
    """The same for code without `await`, on a thread of its own."""

    def get_access_token(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        min_ttl_seconds: int | None = None,
        *,
        account: str | None = None,
    ) -> TokenResult:
        """Call `OAuthCapability.get_access_token`."""
        ...

    def report_rejected(
        self,
        app: str | Mapping[str, str],
        access_token: str | Secret,
        scopes: Sequence[str] | None = None,
        claims: str | None = None,
    ) -> TokenResult:
        """Call `OAuthCapability.report_rejected`."""
        ...

    def client(
        self,
        app: str | Mapping[str, str],
        scopes: Sequence[str] | None = None,
        *,
        library: ModuleType | None = None,
    ) -> httpx2.Client:
        """Return what `OAuthCapability.client` returns, without `await`."""
        ...
