"""Which headers pass between a tool and a provider's API, in both directions.

APIs have headers of their own, so the lists name those that are dropped: the connection's own headers, every credential
that could stand in place of the token, and all that override the judged host. A header that overrides the method is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.version import VERSION

Headers = list[tuple[bytes, bytes]]
OURS = b"oauthbroker-"
STATUS = b"OAuthBroker-Status"
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"}
)  # RFC 9110 section 7.6.1
_REQUEST = _HOP_BY_HOP | {
    b"host", b"content-length", b"expect", b"accept-encoding", b"via", b"x-real-ip", b"x-host", b"x-client-ip",
    b"authorization", b"cookie", b"cookie2", b"dpop", b"x-auth-token", b"x-access-token", b"x-amz-security-token",
    b"private-token", b"job-token", b"traceparent", b"tracestate", b"baggage",
}  # fmt: skip
_REQUEST_PREFIXES = (
    b"proxy-", b"x-forwarded-", b"forwarded", b"x-original-", b"x-rewrite-", b"sec-", OURS,
)  # fmt: skip
_ANSWER = _HOP_BY_HOP | {
    b"set-cookie", b"set-cookie2", b"authorization", b"authentication-info", b"alt-svc",
    b"strict-transport-security", b"clear-site-data", b"content-security-policy", b"cache-control", b"report-to",
    b"reporting-endpoints", b"nel", b"refresh", b"service-worker-allowed", b"cross-origin-opener-policy",
    b"cross-origin-resource-policy", b"permissions-policy", b"referrer-policy", b"x-content-type-options",
    b"x-frame-options", b"x-robots-tag", b"x-request-id", b"server", b"date",
}  # fmt: skip
_ANSWER_PREFIXES = (b"proxy-", b"access-control-", OURS)
_METHOD_OVERRIDES = (b"x-http-method", b"x-method-override")


def outgoing(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that go to the provider, without Host, the body's length and credentials.

    Raises `requestInvalid` for an upgrade to WebSocket, and for a header that overrides the method.
    """
    said = [(name.lower(), name, value) for name, value in headers]
    for lower, _, value in said:
        if lower.startswith(_METHOD_OVERRIDES):
            raise BrokerError(Code.REQUEST_INVALID, note="a header overrides the method")
        if lower == b"upgrade" and b"websocket" in value.lower():
            raise BrokerError(Code.REQUEST_INVALID, note="WebSocket is not supported")
    named = _named((lower, value) for lower, _, value in said)
    kept = [
        (name, value)
        for lower, name, value in said
        if lower not in _REQUEST and lower not in named and not lower.startswith(_REQUEST_PREFIXES)
    ]
    if all(lower != b"user-agent" for lower, _, _ in said):
        kept.append((b"User-Agent", f"oauthbroker/{VERSION}".encode()))
    return [*kept, (b"Accept-Encoding", b"identity")]


def incoming(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of an answer that the tool gets. Raises `providerUnreachable` for a body that is encoded,
    because a token in it could not be masked."""
    said = [(name.lower(), value) for name, value in headers]
    named, chunked = _named(said), any(name == b"transfer-encoding" for name, _ in said)
    for name, value in said:
        if name == b"content-encoding" and value.strip().lower() not in {b"", b"identity"}:
            raise BrokerError(Code.PROVIDER_UNREACHABLE, note="an encoding that was not asked for")
    return [
        (name, value)
        for name, value in said
        if name not in _ANSWER
        and name not in named
        and not name.startswith(_ANSWER_PREFIXES)
        and not (chunked and name == b"content-length")
    ]


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the names that Connection lists: they belong to the connection (RFC 9110 section 7.6.1)."""
    lists = [value for name, value in headers if name == b"connection"]
    return frozenset(each.strip().lower() for value in lists for each in value.split(b","))
