"""What a request may look like on the wire: HTTP/1.1 and 1.0, to the letter, and small.

h11 reads it, and forgives what some server in front of us may read otherwise: folded lines, bare line feeds, a length
that is said twice or in two ways (RFC 9112 sections 3.2.2, 5.2 and 6.3; cases 82 and 84). Here that is refused.
"""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus

import h11

from oauthbroker.errors import BrokerError, Code, Locale
from oauthbroker.web.problems import problem

HEAD_LIMIT = 48 * 1024  # bytes of a request line and its headers: the longest target there may be, and as much again
MOST_HEADERS = 100
_DIGITS = 12  # of a length
_BARE = re.compile(rb"[\r\n]")
_END = re.compile(rb"\n\r?\n")
_LINE = re.compile(rb"(?P<method>[A-Z]{1,16}) (?P<target>[\x21-\x7e]+) HTTP/1\.[01]")
_VERSION = re.compile(rb"[^ ]+ [^ ]+ HTTP/[0-9]\.[0-9]")
_ONCE = frozenset({b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type"})


class StrictConnection(h11.Connection):
    """A server's side of a connection that reads no request which two readers may understand differently."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_LIMIT)
        self.refusal: tuple[int, Code, str] | None = None

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """As h11's. Raises RemoteProtocolError, and `refusal` says with which status, code and note to answer."""
        try:
            if self.their_state is h11.IDLE:
                judge(self.trailing_data[0])
            return super().next_event()
        except h11.RemoteProtocolError as error:
            if self.refusal is None:
                self.refusal = _refusal(error.error_status_hint, getattr(error, "note", "malformed"))
            raise


class _Refused(h11.RemoteProtocolError):
    def __init__(self, status: int, note: str) -> None:
        super().__init__(note, error_status_hint=status)
        self.note = note


def judge(received: bytes) -> None:
    """Whether the head that `received` begins with may be read; one that is not complete yet may. Raises
    RemoteProtocolError: (1) its size (2) line ends (3) the request line (4) how many headers (5) folding (6) what
    comes twice (7) the length."""
    end = _END.search(received)
    if end is None:
        return
    if end.end() > HEAD_LIMIT:
        raise _Refused(431, "headers too large")
    first, *lines = received[: end.start()].removesuffix(b"\r").split(b"\r\n")
    if not received.startswith(b"\r\n\r\n", end.end() - 4) or any(_BARE.search(line) for line in (first, *lines)):
        raise _Refused(400, "bare line end")
    _judge_request_line(first)
    if len(lines) > MOST_HEADERS:
        raise _Refused(431, "too many headers")
    if any(line[:1] in {b" ", b"\t"} for line in lines):
        raise _Refused(400, "folded header")
    named = [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
    once = [name for name, _ in named if name in _ONCE]
    if len(set(once)) != len(once):
        raise _Refused(400, "header twice")
    _judge_length(dict(named), first)


def _judge_request_line(line: bytes) -> None:
    """Only a path is a target of ours: a whole URL is for proxies, and its host would win over Host."""
    said = _LINE.fullmatch(line)
    if said is None:
        raise _Refused(505 if _VERSION.fullmatch(line) and b" HTTP/1." not in line else 400, "request line")
    if not said["target"].startswith(b"/"):
        raise _Refused(400, "target")


def _judge_length(headers: dict[bytes, bytes], request_line: bytes) -> None:
    """One length, in one way; HTTP/1.0 has no chunks."""
    announced, chunks = headers.get(b"content-length"), b"transfer-encoding" in headers
    if announced is not None and not (announced.isdigit() and len(announced) <= _DIGITS):
        raise _Refused(400, "content-length")
    if chunks and (announced is not None or request_line.endswith(b"1.0")):
        raise _Refused(400, "two lengths")


def _refusal(status: int, note: str) -> tuple[int, Code, str]:
    """h11's own hints are 400, 431 and 501; a length that is no number has no other status than 400."""
    code = Code.REQUEST_TOO_LARGE if status == 431 else Code.REQUEST_INVALID
    return status, code, note


@cache
def refusal_bytes(status: int, code: Code, locale: Locale) -> bytes:
    """A whole answer for whoever is told no before there is a request: the fixed problem, and the connection ends."""
    response = problem(BrokerError(code), locale, status=status)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
