"""Which headers pass between a tool and a provider's API, in both directions.

APIs have headers of their own, so the lists name those that are dropped: the connection's own headers, every credential
that could stand in place of the token, and all that speak for a proxy or override the checked host. A header that
overrides the method is refused. Names are compared as servers do that read `_` as `-` (core/header_names).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.header_names import HOP_BY_HOP, OURS, check_field, is_never_sent, overrides_method, spelled
from oauthbroker.core.version import VERSION

Headers = list[tuple[bytes, bytes]]
STATUS = b"OAuthBroker-Status"
TEAM = [(b"oauthbroker-credential", b"team")]  # of an answer to a request with the team's credential
_ANSWER = HOP_BY_HOP | {
    b"set-cookie", b"set-cookie2", b"authorization", b"authentication-info", b"alt-svc",
    b"strict-transport-security", b"clear-site-data", b"content-security-policy", b"cache-control", b"report-to",
    b"reporting-endpoints", b"nel", b"refresh", b"service-worker-allowed", b"cross-origin-opener-policy",
    b"cross-origin-resource-policy", b"permissions-policy", b"referrer-policy", b"x-content-type-options",
    b"x-frame-options", b"x-robots-tag", b"x-request-id", b"server", b"date",
}  # fmt: skip
_ANSWER_PREFIXES = (b"proxy-", b"access-control-", b"x-accel-", b"x-sendfile", OURS)


def outgoing(
    headers: Iterable[tuple[bytes, bytes]],
    allowed: Collection[bytes] | None = None,
    *,
    carriers: Iterable[str] = (),
    usual: Iterable[tuple[bytes, bytes]] = (),
) -> Headers:
    """Return the headers that go to the provider, without Host, the body's length and credentials. `allowed` are the
    spelled names of an app that lists its own; None for all that are not dropped. `carriers` are the headers in which
    the app's provider wants the token: the tool's own are dropped. `usual` are added where the tool sends none of that
    name.

    Raises `requestInvalid` for an upgrade to WebSocket, and a header that cannot be sent or overrides the method.
    """
    said = [(spelled(name), name, value.strip(b" \t")) for name, value in headers]
    for name, as_sent, value in said:
        check_field(as_sent, value)
        if overrides_method(name):
            raise BrokerError(Code.REQUEST_INVALID, note="a header overrides the method")
        if name == b"upgrade" and b"websocket" in value.lower():
            raise BrokerError(Code.REQUEST_INVALID, note="WebSocket is not supported")
    carrying = {spelled(each.encode()) for each in carriers}
    named = _named((name, value) for name, _, value in said) | carrying
    kept = [
        (as_sent, value)
        for name, as_sent, value in said
        if name not in named and not is_never_sent(name) and (allowed is None or name in allowed)
    ]
    for name, value in (*usual, (b"User-Agent", f"oauthbroker/{VERSION}".encode())):
        if spelled(name) not in {*carrying, *(spelled(there) for there, _ in kept)}:
            kept.append((name, value))
    return [*kept, (b"Accept-Encoding", b"identity")]


def incoming(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of an answer that the tool gets. Raises `providerUnreachable` for a body that is encoded,
    because a token in it could not be masked."""
    said = [(spelled(name), name.lower(), value) for name, value in headers]
    named = _named((name, value) for name, _, value in said)
    chunked = any(name == b"transfer-encoding" for name, _, _ in said)
    for name, _, value in said:
        if name == b"content-encoding" and value.strip().lower() not in {b"", b"identity"}:
            raise BrokerError(Code.PROVIDER_UNREACHABLE, note="an encoding that was not asked for")
    return [
        (as_sent, value)
        for name, as_sent, value in said
        if name not in _ANSWER
        and name not in named
        and not name.startswith(_ANSWER_PREFIXES)
        and not (chunked and name == b"content-length")
    ]


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the names that Connection lists: they belong to the connection (RFC 9110 section 7.6.1)."""
    return frozenset(spelled(it.strip()) for name, said in headers if name == b"connection" for it in said.split(b","))
