"""Compare the names of HTTP headers as the servers behind a request do.

CGI, WSGI, Rack and PHP put a header into a variable, in which each character but letters and digits is an underscore.
So `X_Forwarded_For` is X-Forwarded-For to them, and to our lists.
"""

from __future__ import annotations

import re

from oauthbroker.core.errors import BrokerError, Code

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_SPELLED = bytes(
    ord(chr(code).lower()) if chr(code).isascii() and chr(code).isalnum() else ord("-") for code in range(256)
)
OURS = b"oauthbroker-"
HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings"}
)  # RFC 9110 section 7.6.1
_CREDENTIALS = frozenset({b"x-auth-token", b"x-access-token", b"private-token", b"job-token"})
_REQUEST = HOP_BY_HOP | _CREDENTIALS | {
    b"proxy", b"host", b"content-length", b"expect", b"accept-encoding", b"via", b"cookie", b"cookie2", b"dpop",
    b"x-amz-security-token", b"traceparent", b"tracestate", b"baggage",
}  # fmt: skip
_REQUEST_PREFIXES = (b"proxy-", b"sec-", OURS)
# What a proxy says about a request: who sent it, for which host, to which address. Also ways to override these.
_RELAYED = re.compile(
    rb"(?:.*-)?forward(?:ed)?(?:-.*)?"
    rb"|.*overrid.*"
    rb"|x-(?:original|originating|rewrite|envoy|accel|sendfile|host|http-host|proxyuser|arr)(?:-.*)?"
    rb"|(?:.*-)?client-?(?:ip|addr|address|host|cert|verify|dn|s-dn)(?:-.*)?"
    rb"|(?:.*-)?(?:real|remote|connecting|connection|external|source|socket|peer|pseudo|user|cluster)-?"
    rb"(?:ip|ipv4|ipv6|addr|address|host)"
    rb"|(?:x-)?remote-user"
)
# Names that nearly all requests have. By none of them does a proxy say anything, nor a caller another method.
ORDINARY = frozenset(
    {b"accept", b"accept-encoding", b"accept-language", b"authorization", b"cache-control", b"connection",
     b"content-length", b"content-type", b"cookie", b"host", b"origin", b"pragma", b"referer", b"sec-ch-ua",
     b"sec-ch-ua-mobile", b"sec-ch-ua-platform", b"sec-fetch-dest", b"sec-fetch-mode", b"sec-fetch-site",
     b"sec-fetch-user", b"traceparent", b"upgrade-insecure-requests", b"user-agent"}
)  # fmt: skip
_METHOD = re.compile(rb"(?:.*-)?http-method(?:-.*)?|.*method-?overrid.*")


def spelled(name: bytes) -> bytes:
    """Return a name for comparisons: in lower case, with `-` for each character but letters and digits."""
    return name.translate(_SPELLED)


def spelled_text(name: str) -> str:
    """Return a name as `spelled` does."""
    return spelled(name.encode()).decode()


def is_relayed(name: bytes) -> bool:
    """Return whether a spelled name says what only a proxy may say about a request. One for its method is refused
    rather than dropped, so it is none of these."""
    return _RELAYED.fullmatch(name) is not None and not overrides_method(name)


def overrides_method(name: bytes) -> bool:
    """Return whether a spelled name stands for a method other than the request's own."""
    return _METHOD.fullmatch(name) is not None


def is_never_sent(name: bytes) -> bool:
    """Return whether no request of a tool takes a header to a provider: by its spelled name, it is the connection's
    own, a credential that could stand in place of the token, or what only a proxy may say."""
    is_credential = name == b"authorization" or name.endswith(b"-authorization")
    return name in _REQUEST or name.startswith(_REQUEST_PREFIXES) or is_credential or is_relayed(name)


def carries_tokens(name: bytes) -> bool:
    """Return whether a provider may want its token in a header with this spelled name, in place of Authorization: one
    that says nothing else, here or at a proxy."""
    means_other = name in ORDINARY or overrides_method(name)
    return name in _CREDENTIALS or not (means_other or is_never_sent(name))


def check_field(name: bytes, value: bytes) -> None:
    """Raise `requestInvalid` for a header that cannot be sent, such as one with a line break."""
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise unsendable(name)


def check_text_field(name: object, value: object) -> None:
    """Raise the same for a header whose parts are no texts of Latin-1."""
    said, sent = (each.encode("latin-1", "replace") if isinstance(each, str) else b"" for each in (name, value))
    if sent.decode("latin-1") != value:
        raise unsendable(said)
    check_field(said, sent)


def unsendable(name: bytes) -> BrokerError:
    """Return the `requestInvalid` of a header. It names the header, unless the name is the wrong part and may be
    anything."""
    said = name.decode("ascii") if _NAME.fullmatch(name) else ""
    error = BrokerError(Code.REQUEST_INVALID, note="headers", name=said)
    error.hint = "forwardedHeader" if said else "forwardedHeaderName"
    return error
