"""Requests of tools to the public internet, by the rules for providers: checked addresses, TLS, limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import urlsplit

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.injection.headers import outgoing
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.model.settings import Settings
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits, ApiTransport
from oauthbroker.protocol.network.transport import Transport

_HINTS: Final = {Code.REQUEST_INVALID: "webRequest", Code.PROVIDER_UNREACHABLE: "webUnreachable"}
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token (RFC 9110, section 5.6.2)
_VALUE: Final = re.compile(rb"([!-~]([\t -~]*[!-~])?)?")  # without white space at its ends (section 5.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """An answer with any status. `headers` have lower-case names. `body` was cut if `truncated`."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    truncated: bool = False


class PublicWeb:
    """Sends requests to https URLs of public addresses. A name that leads to a private, local or metadata address is
    refused when it is dialed. Belongs to one event loop. Use `async with`.

    `proxy` is the `outgoing_proxy` of the broker's settings. `allow_plain_http_loopback` is a weakening for
    development: http:// to a literal loopback address.
    """

    def __init__(self, *, allow_plain_http_loopback: bool = False, proxy: OutgoingProxy | None = None) -> None:
        if proxy is not None:  # a model may choose these names: the proxy does not look them up
            proxy = replace(proxy, resolves=False)
        self._transport = Transport(plain_http_loopback=allow_plain_http_loopback, proxy=proxy)
        self._requests = ApiTransport(self._transport)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return one that leaves the network as the broker with these settings does."""
        plain = "plainHttpProvider" in settings.weaken
        return cls(allow_plain_http_loopback=plain, proxy=settings.outgoing_proxy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._requests.close()
        await self._transport.close()

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        seconds: float = 30.0,
        most_bytes: int = 1024 * 1024,
    ) -> WebAnswer:
        """Send a request once and return its answer, the body cut to `most_bytes`.

        Redirects are answers. Headers with credentials, and those of the connection, are left out. Raises
        `requestInvalid` for a URL, method or header that is refused, or a host that is not public, and
        `providerUnreachable` without an answer.
        """
        limits = ApiLimits(stall_seconds=seconds, seconds=seconds)
        try:
            return await self._answer(self._request(method, url, headers or {}, content), limits, most_bytes)
        except BrokerError as error:
            failed = _of_web(error)
        raise failed

    async def _answer(self, request: ApiRequest, limits: ApiLimits, most_bytes: int) -> WebAnswer:
        response = await self._requests.send(request, limits)
        body, truncated = bytearray(), False
        try:
            async for piece in response.chunks():
                body += piece
                if truncated := len(body) > most_bytes:
                    break
        finally:
            await response.aclose()
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        return WebAnswer(status=response.status, headers=named, body=bytes(body[:most_bytes]), truncated=truncated)

    def _request(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> ApiRequest:
        whole = url.partition("#")[0]
        try:
            self._transport.check_url(whole)
            encoded = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        except (BrokerError, UnicodeEncodeError):
            raise BrokerError(Code.REQUEST_INVALID, note="the URL or a header") from None
        if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in encoded):
            raise BrokerError(Code.REQUEST_INVALID, note="a header")
        if not (method.isascii() and method.isalpha()) or method == "CONNECT":
            raise BrokerError(Code.REQUEST_INVALID, note="the method")
        parts = urlsplit(whole)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return ApiRequest(
            method=method,
            scheme=parts.scheme,
            host=parts.hostname or "",
            port=port,
            path=path,
            headers=outgoing(encoded),
            body=content,
        )


def _of_web(error: BrokerError) -> BrokerError:
    """Return an error in words for who asked: there is no app and no provider. An address that is refused is the
    request's fault."""
    if error.code is Code.APP_MISCONFIGURED:
        error = BrokerError(Code.REQUEST_INVALID, note="the host's address is not public")
    error.hint = _HINTS.get(error.code, "")
    return error
