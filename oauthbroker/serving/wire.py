"""What a request may look like on the wire: HTTP/1.1 and 1.0, to the letter, and small.

Read is only what every server reads alike. Folded lines, bare line feeds, a length that is said twice or in two ways
(RFC 9112 sections 3.2.2, 5.2 and 6.3; cases 82 and 84) are what some server in front of us may read otherwise: they
are refused, and so is the connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from oauthbroker.errors import BrokerError, Code, Locale
from oauthbroker.serving.body import FIELD, Chunks, Malformed, Sized
from oauthbroker.web.problems import problem

HEAD_LIMIT = 48 * 1024  # bytes of a request line and its headers: the longest target there may be, and as much again
MOST_HEADERS = 100
_DIGITS = 12  # of a length
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_BARE = re.compile(rb"[\r\n]")
_END = re.compile(rb"\n\r?\n")
_HEAD = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*+) HTTP/1\.([01])\r\n((?:" + FIELD + rb")*+)\r\n")
_PAIR = re.compile(rb"([^:]+):[ \t]*([^\r]*)\r\n")
_LINE = re.compile(rb"[A-Z]{1,16} (?P<target>[\x21-\x7e]+) HTTP/1\.[01]")
_VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]\.[0-9]")
_ONCE = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type"})


@dataclass(slots=True)
class Head:
    """A request line and its headers, names in lower case. `body` reads what follows, None where nothing does."""

    method: bytes
    target: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    body: Sized | Chunks | None
    keeps_alive: bool
    expects_continue: bool


def read_head(received: bytes, seen: int = 0) -> tuple[Head, int] | None:
    """The head that `received` begins with and how long it is; None while it is not complete. `seen` bytes of it were
    looked at before and held no end. Raises Malformed: (1) its size (2) line ends (3) the request line (4) how many
    headers (5) folding and their form (6) what comes twice (7) the length (8) the host."""
    if seen and _END.search(received, max(0, seen - 2)) is None:
        _judge_unfinished(received)
        return None
    found = _HEAD.match(received)
    if found is None:
        _judge_odd(received)
        return None
    if found.end() > HEAD_LIMIT:
        raise Malformed(431, "headers too large")
    method, target, minor, fields = found.groups()
    headers = [(name.lower(), value.rstrip(b" \t")) for name, value in _PAIR.findall(fields)]
    if len(headers) > MOST_HEADERS:
        raise Malformed(431, "too many headers")
    named = dict(headers)
    if len(named) != len(headers):
        _judge_repeated(headers)
    body = _body(named, minor)
    if minor == b"1" and b"host" not in named:
        raise Malformed(400, "no host")
    return _head(method, target, minor, headers, named, body), found.end()


def _head(
    method: bytes,
    target: bytes,
    minor: bytes,
    headers: list[tuple[bytes, bytes]],
    named: dict[bytes, bytes],
    body: Sized | Chunks | None,
) -> Head:
    """HTTP/1.0 keeps no connection and waits for no `100 Continue`."""
    if minor == b"0":
        return Head(method, target, "1.0", headers, body, keeps_alive=False, expects_continue=False)
    closes = b"connection" in named and b"close" in _tokens(headers, b"connection")
    waits = b"expect" in named and body is not None and named[b"expect"].lower() == b"100-continue"
    return Head(method, target, "1.1", headers, body, keeps_alive=not closes, expects_continue=waits)


def _tokens(headers: list[tuple[bytes, bytes]], wanted: bytes) -> set[bytes]:
    return {token.strip().lower() for name, value in headers if name == wanted for token in value.split(b",")}


def _judge_unfinished(received: bytes) -> None:
    if len(received) > HEAD_LIMIT:
        raise Malformed(431, "headers too large")
    if received[0] not in _LETTERS:  # TLS, or nothing that has an end that we know
        raise Malformed(400, "request line")


def _judge_odd(received: bytes) -> None:
    """Why this is no head; nothing where it may become one."""
    end = _END.search(received)
    if end is None:
        _judge_unfinished(received)
        return
    if end.end() > HEAD_LIMIT:
        raise Malformed(431, "headers too large")
    first, *lines = received[: end.start()].removesuffix(b"\r").split(b"\r\n")
    if not received.startswith(b"\r\n\r\n", end.end() - 4) or any(_BARE.search(line) for line in (first, *lines)):
        raise Malformed(400, "bare line end")
    _judge_request_line(first)
    if len(lines) > MOST_HEADERS:
        raise Malformed(431, "too many headers")
    folded = any(line[:1] in {b" ", b"\t"} for line in lines)
    raise Malformed(400, "folded header" if folded else "malformed")


def _judge_request_line(line: bytes) -> None:
    """Only a path is a target of ours: a whole URL is for proxies, and its host would win over Host."""
    said = _LINE.fullmatch(line)
    if said is None:
        raise Malformed(505 if _VERSION.fullmatch(line) and b" HTTP/1." not in line else 400, "request line")
    if not said["target"].startswith(b"/"):
        raise Malformed(400, "target")


def _judge_repeated(headers: list[tuple[bytes, bytes]]) -> None:
    once = [name for name, _ in headers if name in _ONCE]
    if len(set(once)) != len(once):
        raise Malformed(400, "header twice")


def _body(named: dict[bytes, bytes], minor: bytes) -> Sized | Chunks | None:
    """One length, in one way; HTTP/1.0 has no chunks, and no coding but chunks is known."""
    announced, coding = named.get(b"content-length"), named.get(b"transfer-encoding")
    if announced is not None and not (announced.isdigit() and len(announced) <= _DIGITS):
        raise Malformed(400, "content-length")
    if coding is not None:
        if announced is not None or minor == b"0":
            raise Malformed(400, "two lengths")
        if coding.lower() != b"chunked":
            raise Malformed(501, "transfer-encoding")
        return Chunks(HEAD_LIMIT)
    length = int(announced or 0)
    return Sized(length) if length else None


@cache
def refusal_bytes(status: int, code: Code, locale: Locale) -> bytes:
    """A whole answer for whoever is told no before there is a request: the fixed problem, and the connection ends."""
    response = problem(BrokerError(code), locale, status=status)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
