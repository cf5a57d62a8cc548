"""What the head of a request may look like on the wire: HTTP/1.1 and 1.0, to the letter, and small.

llhttp (httptools) reads it, and forgives what some server in front of us may read otherwise: an empty line or two
spaces where there is nothing to read, a host or credentials that are said twice, chunks in HTTP/1.0 (RFC 9112 sections
2.2, 3, 3.2 and 6.1; cases 82 and 84). Here that is refused, before it is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from oauthbroker.errors import BrokerError, Code, Locale
from oauthbroker.web.problems import problem

HEAD_LIMIT = 48 * 1024  # bytes of a request line and its headers: the longest target there may be, and as much again
MOST_HEADERS = 100
_DIGITS = 12  # of a length
_END = re.compile(rb"\n\r?\n")
_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_LINE = re.compile(rb"(?P<method>[A-Z]{1,16}) (?P<target>[\x21\x22\x24-\x7e]+) HTTP/1\.[01]")
_VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]\.[0-9]")
_ONCE = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type"})
CHUNKS = -1


class Malformed(Exception):
    """What came is not read on: which status and code to answer with, and a word for the operator."""

    def __init__(self, status: int, note: str) -> None:
        super().__init__(note)
        self.status, self.note = status, note
        self.code = Code.REQUEST_TOO_LARGE if status == 431 else Code.REQUEST_INVALID


@dataclass(frozen=True, slots=True)
class Head:
    """A head that may be read: how many bytes it has, and how many its body has after it, or CHUNKS."""

    size: int
    body: int


def judge(received: bytes, seen: int = 0) -> Head | None:
    """The head that `received` begins with; None while it is not complete. `seen` bytes of it were looked at before and
    held no end. Raises Malformed: (1) its size (2) line ends (3) the request line (4) how many headers (5) folding
    (6) what comes twice (7) the length (8) the host."""
    end = _END.search(received, max(0, seen - 2), HEAD_LIMIT + 4)
    if end is None:
        _judge_unfinished(received)
        return None
    if end.end() > HEAD_LIMIT:
        raise Malformed(431, "headers too large")
    if not received.startswith(b"\r\n\r\n", end.end() - 4) or _BARE.search(received, 0, end.end()):
        raise Malformed(400, "bare line end")
    first, *lines = received[: end.end() - 4].split(b"\r\n")
    _judge_request_line(first)
    if len(lines) > MOST_HEADERS:
        raise Malformed(431, "too many headers")
    if any(line[:1] in {b" ", b"\t"} for line in lines):
        raise Malformed(400, "folded header")
    pairs = [line.partition(b":") for line in lines]
    named = {name.lower(): value.strip(b" \t") for name, _, value in pairs}
    if len(named) != len(pairs):
        _judge_repeated([name.lower() for name, _, _ in pairs])
    if b"host" not in named and not first.endswith(b"1.0"):
        raise Malformed(400, "no host")
    return Head(end.end(), _length(named, first))


def _judge_unfinished(received: bytes) -> None:
    """TLS, or anything else that has no end that we know, is not waited for."""
    if len(received) > HEAD_LIMIT:
        raise Malformed(431, "headers too large")
    if not b"A" <= received[:1] <= b"Z":
        raise Malformed(400, "request line")


def _judge_request_line(line: bytes) -> None:
    """Only a path is a target of ours: a whole URL is for proxies, and its host would win over Host."""
    said = _LINE.fullmatch(line)
    if said is None:
        raise Malformed(505 if _VERSION.fullmatch(line) and b" HTTP/1." not in line else 400, "request line")
    if not said["target"].startswith(b"/"):
        raise Malformed(400, "target")


def _judge_repeated(names: list[bytes]) -> None:
    once = [name for name in names if name in _ONCE]
    if len(set(once)) != len(once):
        raise Malformed(400, "header twice")


def _length(headers: dict[bytes, bytes], request_line: bytes) -> int:
    """One length, in one way; HTTP/1.0 has no chunks, and no coding but chunks is known."""
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
    """A whole answer for whoever is told no before there is a request: the fixed problem, and the connection ends."""
    response = problem(BrokerError(code), locale, status=status)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
