"""Check the head of a request: strict HTTP/1.1 and 1.0, and small.

llhttp (httptools) parses it, and accepts forms that a server in front of us may parse differently: an empty line or
double spaces, a repeated host or credentials, chunks in HTTP/1.0 (RFC 9112 sections 2.2, 3, 3.2 and 6.1; cases 82 and
84). They are refused here, before llhttp sees them.
"""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.web.gate.error_responses import problem

HEAD_LIMIT = 48 * 1024  # bytes of a request line and its headers: twice the longest target
MOST_HEADERS = 100
_DIGITS = 12  # of a length
_END = re.compile(rb"\n\r?\n")
_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_LINE = re.compile(rb"(?P<method>[A-Z]{1,16}) (?P<target>[\x21\x22\x24-\x7e]+) HTTP/1\.[01]")
_VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]\.[0-9]")
_ONCE = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type"})
CHUNKS = -1


class Malformed(Exception):
    """A request that is refused unread, with the status and code of the answer and a note for the operator."""

    def __init__(self, status: int, note: str) -> None:
        super().__init__(note)
        self.status, self.note = status, note
        self.code = Code.REQUEST_TOO_LARGE if status == 431 else Code.REQUEST_INVALID


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A valid head: its length in bytes, and the length of its body, or CHUNKS."""

    size: int
    body: int


def validate(received: bytes, seen: int = 0) -> RequestHead | None:
    """Check the head at the start of `received`; None while it is incomplete.

    `seen` bytes of it were checked before and held no end. Raises Malformed: (1) its size (2) line ends (3) the request
    line (4) number of headers (5) folding (6) duplicates (7) the length (8) the host.
    """
    end = _END.search(received, max(0, seen - 2), HEAD_LIMIT + 4)
    if end is None:
        _check_unfinished(received)
        return None
    if end.end() > HEAD_LIMIT:
        raise Malformed(431, "headers too large")
    if not received.startswith(b"\r\n\r\n", end.end() - 4) or _BARE.search(received, 0, end.end()):
        raise Malformed(400, "bare line end")
    first, *lines = received[: end.end() - 4].split(b"\r\n")
    _check_request_line(first)
    if len(lines) > MOST_HEADERS:
        raise Malformed(431, "too many headers")
    if any(line[:1] in {b" ", b"\t"} for line in lines):
        raise Malformed(400, "folded header")
    pairs = [line.partition(b":") for line in lines]
    named = {name.lower(): value.strip(b" \t") for name, _, value in pairs}
    if len(named) != len(pairs):
        _check_repeated([name.lower() for name, _, _ in pairs])
    if b"host" not in named and not first.endswith(b"1.0"):
        raise Malformed(400, "no host")
    return RequestHead(end.end(), _length(named, first))


def _check_unfinished(received: bytes) -> None:
    """Refuse TLS and other unknown protocols at once, since their end cannot be found."""
    if len(received) > HEAD_LIMIT:
        raise Malformed(431, "headers too large")
    if not b"A" <= received[:1] <= b"Z":
        raise Malformed(400, "request line")


def _check_request_line(line: bytes) -> None:
    """Check the request line. Its target is a path: a whole URL is for proxies, and its host would override Host."""
    said = _LINE.fullmatch(line)
    if said is None:
        raise Malformed(505 if _VERSION.fullmatch(line) and b" HTTP/1." not in line else 400, "request line")
    if not said["target"].startswith(b"/"):
        raise Malformed(400, "target")


def _check_repeated(names: list[bytes]) -> None:
    once = [name for name in names if name in _ONCE]
    if len(set(once)) != len(once):
        raise Malformed(400, "header twice")


def _length(headers: dict[bytes, bytes], request_line: bytes) -> int:
    """Return the body's length, given in one way only. HTTP/1.0 has no chunks, and no other coding is known."""
    announced, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
    if announced is not None and not (announced.isdigit() and len(announced) <= _DIGITS):
        raise Malformed(400, "content-length")
    if coding is None:
        return int(announced or 0)
    if announced is not None or request_line.endswith(b"1.0"):
        raise Malformed(400, "two lengths")
    if coding.lower() != b"chunked":
        raise Malformed(501, "transfer-encoding")
    return CHUNKS


@cache
def refusal_bytes(status: int, code: Code, locale: Locale) -> bytes:
    """Return a whole answer for a connection without a valid request: the fixed problem document, then close."""
    response = problem(BrokerError(code), locale, status=status)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
