"""Fetch and cache what providers publish: endpoints, capabilities, signing keys."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.messages import Kind, ProviderRequest, ProviderResponse
from oauthbroker.protocol.metadata import (
    NO_METADATA,
    ProviderMetadata,
    WrongIssuer,
    keys_response,
    metadata_addresses,
    metadata_response,
)
from oauthbroker.protocol.network.transport import Transport, send_for

if TYPE_CHECKING:
    from joserfc.jwk import Key

Keys: TypeAlias = "tuple[Key, ...]"
T = TypeVar("T")
Fetch = Callable[[], Awaitable[T]]

GOOD_SECONDS = 24 * 3600
FAILURE_SECONDS = 30
REFRESH_SECONDS = 60


class Discovery:
    """Caches metadata by issuer and key sets by address, for all apps with the same trusted certificates. One per event
    loop.

    A document is kept for a day, a failure for half a minute. An unknown key id refetches a key set at most once a
    minute (case 33). Size and time limits are those of every provider call.
    """

    def __init__(self, transport: Transport, clock: Clock, limits: Limits) -> None:
        self._transport = transport
        self._clock = clock
        self._limits = limits
        new_cache = partial(DocumentCache[Any], clock)
        self._metadata = defaultdict[tuple[str, str, str, bool], DocumentCache[ProviderMetadata]](new_cache)
        self._keys = defaultdict[tuple[str, str], DocumentCache[Keys]](new_cache)

    async def endpoints(self, app: App) -> Endpoints:
        """Return the app's endpoints. Empty ones are filled from the issuer's metadata.

        Sends a request only if the app has an issuer and lacks an endpoint it needs. Raises `appMisconfigured`,
        `providerUnreachable`, `providerRateLimited`.
        """
        if not relies_on_discovery(app):
            return app.endpoints
        return _completed(app.endpoints, await self.metadata(app))

    async def issuer_promised(self, app: App) -> bool:
        """Tell whether a callback without `iss` must be refused (RFC 9207 section 2.4), by the preset, or by the
        metadata of an app that relies on it. Raises as `endpoints` does."""
        if app.habits.issuer_promised or not relies_on_discovery(app):
            return app.habits.issuer_promised
        return (await self.metadata(app)).issuer_promised

    async def for_authorization(self, app: App) -> tuple[Endpoints, bool]:
        """Return the endpoints, and whether authorization requests must be pushed (RFC 9126 section 5), by the app, or
        by the metadata of an app that relies on it. Raises as `endpoints` does."""
        is_required = app.pushed_authorization == "required"
        if not relies_on_discovery(app):
            return app.endpoints, is_required
        metadata = await self.metadata(app)
        return _completed(app.endpoints, metadata), is_required or metadata.push_required

    async def signing_keys(self, app: App, kid: str | None) -> Keys:
        """Return the provider's public keys. They are refetched when none has the id `kid`. Raises as `endpoints`
        does."""
        url = await self._keys_url(app)
        keys = await self._keys[url, app.provider_ca].get(lambda: self._fetch_keys(app, url))
        if kid is not None and all(key.kid != kid for key in keys):
            keys = await self.newer_keys(app, keys)
        return keys

    async def newer_keys(self, app: App, seen: Keys) -> Keys:
        """Return the current keys, for a token that fits none of `seen`: some providers change keys without changing or
        giving key ids.

        Returns `seen` itself when the last refetch was less than a minute ago.
        """
        url = await self._keys_url(app)
        return await self._keys[url, app.provider_ca].refresh(seen, lambda: self._fetch_keys(app, url))

    async def _keys_url(self, app: App) -> str:
        url = (await self.endpoints(app)).jwks_url
        if not url:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the provider's key set has no address")
        return url

    async def _fetch_keys(self, app: App, url: str) -> Keys:
        return keys_response(await self._get(url, app, "keys"))

    async def metadata(self, app: App) -> ProviderMetadata:
        """Return the metadata of the app's issuer. Raises as `endpoints` does; for an MCP server without metadata
        `mcpMetadataMissing`, without PKCE `mcpPkceMissing`, and for one that takes only signed requests
        `mcpUnsupported`."""
        issuer, template = app.endpoints.issuer, app.habits.issuer_template
        place = issuer, template, app.provider_ca, app.mcp is not None
        metadata = await self._metadata[place].get(lambda: self._fetch_metadata(app))
        if app.mcp is not None and not metadata.s256:
            raise BrokerError(Code.MCP_PKCE_MISSING)
        if app.mcp is not None and metadata.signed_requests:
            raise BrokerError(
                Code.MCP_UNSUPPORTED, note="the authorization server takes only signed requests (RFC 9101)"
            )
        if app.has_callback and app.habits.pkce == "refused":
            if metadata.s256:
                raise BrokerError(Code.APP_MISCONFIGURED, note="the provider supports PKCE: remove quirks.pkce")
        elif app.has_callback and metadata.s256 is False:
            raise BrokerError(Code.APP_MISCONFIGURED, note="the provider does not support PKCE with S256")
        return metadata

    async def _fetch_metadata(self, app: App) -> ProviderMetadata:
        """Fetch the metadata from its addresses in their order. The first valid answer wins. Of several failures a
        wrong issuer is reported rather than a missing document."""
        issuer, template = app.endpoints.issuer, app.habits.issuer_template
        refused = BrokerError(Code.APP_MISCONFIGURED, note=NO_METADATA)
        for url in metadata_addresses(issuer, mcp=app.mcp is not None):
            try:
                metadata = metadata_response(issuer, template, await self._get(url, app, "metadata"))
                self._check_addresses(metadata.endpoints)
            except BrokerError as exc:
                refused = refused if isinstance(refused, WrongIssuer) else exc
                if exc.code is not Code.APP_MISCONFIGURED:
                    break
            else:
                return metadata
        if app.mcp is not None and refused.note.startswith(NO_METADATA):
            raise BrokerError(Code.MCP_METADATA_MISSING, note=refused.note)
        raise refused

    def _check_addresses(self, endpoints: Endpoints) -> None:
        """Check the addresses of a document: they are untrusted data, and one of them is opened in the user's
        browser."""
        for slot in Endpoints.__slots__:
            if address := getattr(endpoints, slot):
                self._transport.check_url(address)

    async def _get(self, url: str, app: App, kind: Kind) -> ProviderResponse:
        return await send_for(app, ProviderRequest("GET", url), kind, self._transport, self._limits)


def _completed(endpoints: Endpoints, metadata: ProviderMetadata) -> Endpoints:
    """Return the endpoints, with empty ones filled from the metadata."""
    learned = metadata.endpoints
    empty = {slot: getattr(learned, slot) for slot in Endpoints.__slots__ if not getattr(endpoints, slot)}
    return dataclasses.replace(endpoints, **empty)


def relies_on_discovery(app: App) -> bool:
    """Tell whether the app names an issuer and lacks an endpoint that it needs, or leaves PKCE out: the issuer's
    metadata must not offer it."""
    if not app.endpoints.issuer:
        return False
    return app.habits.pkce == "refused" or not all(map(partial(getattr, app.endpoints), _needed(app)))


def endpoints_used(app: App) -> frozenset[str]:
    """Return the slots of `Endpoints` that the app may call or send a browser to."""
    used = set(_needed(app))
    if app.revocation.kind != "none":
        used.add("revoke_url")
    if app.flow != "clientCredentials":
        used.add("refresh_url")
    if app.has_callback and app.pushed_authorization != "never":
        used.add("pushed_authorization_url")
    return frozenset(used)


def uses_issuer(app: App) -> bool:
    """Tell whether the app uses its issuer: in a user's flow, for discovery, or as the audience of an assertion."""
    client = app.client
    signs = client.auth_method == "private_key_jwt" and client.assertion_audience == "issuer"
    return bool(app.endpoints.issuer) and (app.flow != "clientCredentials" or relies_on_discovery(app) or signs)


def _needed(app: App) -> Iterator[str]:
    """Return the slots without which the app does not work."""
    rules = filter(None, (app.owner.global_identity, app.owner.user_identity))
    sources = frozenset(map(attrgetter("source"), rules))
    asks = app.flow != "clientCredentials"  # client credentials bring no ID token
    wanted = {
        "token_url": True,
        "authorization_url": app.flow == "authorizationCode",
        "device_authorization_url": app.flow == "deviceCode",
        "jwks_url": asks and ("idToken" in sources or "openid" in {*app.scopes, *app.habits.always_scopes}),
        "user_info_url": "userInfo" in sources,
        "pushed_authorization_url": app.pushed_authorization == "required",
    }
    return compress(wanted, wanted.values())


class DocumentCache(Generic[T]):
    """Caches one value for `good_seconds`. `fetch` raises `BrokerError` when it fails. Expired values are never
    returned."""

    def __init__(self, clock: Clock, *, good_seconds: float = GOOD_SECONDS) -> None:
        self._clock, self._good_seconds = clock, good_seconds
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._failure: BrokerError | None = None
        self._until = 0.0
        self._refreshed_at = float("-inf")
        self._refresh_failed: BrokerError | None = None

    async def get(self, fetch: Fetch[T]) -> T:
        """Return the value, at most `good_seconds` old. A failure is repeated for 30 seconds without a new fetch. A
        good value waits for no refresh that another caller has caused."""
        if self._value is not None and self._clock.monotonic() < self._until:
            return self._value
        async with self._lock:
            if self._clock.monotonic() < self._until:
                if self._failure is not None:
                    raise _copy(self._failure)
                if self._value is not None:
                    return self._value
            return await self._fetch(fetch)

    async def refresh(self, seen: T, fetch: Fetch[T]) -> T:
        """Return a newer value than `seen`, fetched at most once a minute.

        Within that minute it returns the cached value, or repeats the failure of the last fetch.
        """
        async with self._lock:
            if self._value is not None and self._value is not seen:
                return self._value
            if self._clock.monotonic() - self._refreshed_at < REFRESH_SECONDS:
                if self._refresh_failed is not None:
                    raise _copy(self._refresh_failed)
                return seen
            self._refreshed_at, self._refresh_failed = self._clock.monotonic(), None
            try:
                return await self._fetch(fetch)
            except BrokerError as exc:
                self._refresh_failed = _copy(exc)
                raise

    async def _fetch(self, fetch: Fetch[T]) -> T:
        try:
            value = await fetch()
        except BrokerError as exc:
            failure = exc
        else:
            self._value, self._failure = value, None
            self._until = self._clock.monotonic() + self._good_seconds
            return value
        if self._value is None or self._clock.monotonic() >= self._until:  # a good value outlives a failed refresh
            self._value, self._failure = None, _copy(failure)
            self._until = self._clock.monotonic() + FAILURE_SECONDS
        raise _copy(failure)


def _copy(error: BrokerError) -> BrokerError:
    """Copy the error without its traceback, whose frames would keep an answer alive."""
    return BrokerError(error.code, note=error.note, retry_after_seconds=error.retry_after_seconds)
