"""The audit log's chain: each line has a number, and a MAC over the line before and itself. No file access.

A line is `{"seq":7,"at":"...","type":"TokenIssued",...,"mac":"<32 hex digits>"}`. Format: docs/store-format.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from binascii import hexlify
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from oauthbroker.audit.line_type import LineType
from oauthbroker.core.dataclasses import dataclass

MOST_LINE = 256 * 1024  # bytes; entries are much shorter
_LINE = re.compile(rb'(\{"seq":([1-9]\d{0,17}),.+),"mac":"([0-9a-f]{32})"\}', re.DOTALL)
_LOG_TYPE = b'"type":"Log'


class LogEntry(LineType):
    """The base of the lines about the log itself."""


class LogBegan(LogEntry):
    """The chain begins in file number `file`, after `bytes` of lines without a chain, whose SHA-256 is `digest`."""

    file: int
    bytes: int
    digest: str
    after: str


class LogRotated(LogEntry):
    """The last line of a file, which is renamed to `audit-<to, six digits>.jsonl`."""

    to: int


class LogContinued(LogEntry):
    """The first line of a further file, number `file`; `after` is the MAC of the last line of the one before."""

    file: int
    after: str


class LogTorn(LogEntry):
    """A writer died: the `bytes` before this line, whose SHA-256 is `digest`, are the beginning of an entry. Nothing
    else is lost."""

    bytes: int
    digest: str
    after: str


class LogBroken(LogEntry):
    """The log had been changed when a broker wanted to write. `kind` is cut (lines up to number `known` existed),
    replaced (line `known` was different), foreign (`bytes` before this line are not ours) or
    checkpoint (the checkpoint was missing)."""

    kind: str
    known: int
    bytes: int
    after: str


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The head of the chain: the number and the MAC (32 hex digits) of its last line."""

    seq: int
    mac: bytes


START = ChainHead(0, b"0" * 32)


@dataclass(frozen=True, slots=True)
class Line:
    """One parsed line, not yet verified; `AuditKeys.follows` verifies it."""

    seq: int
    body: bytes
    mac: bytes

    @property
    def head(self) -> ChainHead:
        return ChainHead(self.seq, self.mac)


Mac = Callable[[bytes], bytes]


def mac_under(key: bytes) -> Mac:
    """Return HMAC-SHA256 (RFC 2104) under a key of at most 64 bytes, truncated to 32 hex digits. The key is set up
    once, so that a call takes half the time of `hmac.digest`."""
    block = key.ljust(64, b"\0")
    begin_inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block)).copy
    begin_outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block)).copy

    def mac(text: bytes) -> bytes:
        inner, outer = begin_inner(), begin_outer()
        inner.update(text)
        outer.update(inner.digest())
        return hexlify(outer.digest()[:16])

    return mac


class AuditKeys:
    """The audit keys of a store's keyring: for the MACs of lines and checkpoints, and for pseudonyms."""

    __slots__ = ("_mac", "chain", "name", "seal_checkpoint")

    def __init__(self, mac: Callable[..., bytes], slot: int = 0) -> None:
        """Derive the keys for the chain of a slot; `mac` is the store's."""
        self._mac = mac
        self.chain = mac_under(mac("audit", "chain", str(slot)) if slot else mac("audit", "chain"))
        self.seal_checkpoint = mac_under(mac("audit", "roll"))
        self.name = lru_cache(maxsize=4096)(self._new_name)

    def of_slot(self, slot: int) -> AuditKeys:
        """Return the keys for a slot's chain: a line of one slot is not genuine in another."""
        return AuditKeys(self._mac, slot) if slot else self

    def __repr__(self) -> str:
        return "AuditKeys()"

    def follows(self, before: bytes, line: Line) -> bool:
        """Tell whether a line has the MAC over the MAC of the line before, and over itself up to its MAC."""
        return hmac.compare_digest(self.chain(before + line.body), line.mac)

    def _new_name(self, kind: str, value: str) -> str:
        """Return the pseudonym `grant-<22>`: only a holder of the store key can map it back."""
        digest = self._mac(f"audit-{kind}", value)[:16]
        return f"{kind}-{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def next_line(chain: Mac, before: bytes, seq: int, at: str, rest: str) -> tuple[bytes, bytes]:
    """Return (line `seq` with its line break, its MAC). `rest` is the part after the time, without a brace."""
    body = f'{{"seq":{seq},"at":"{at}",{rest}'.encode()
    mac = chain(before + body)
    return b'%b,"mac":"%b"}\n' % (body, mac), mac


def parse(raw: bytes) -> Line | None:
    """Parse a line without its line break; None if it does not have the chain's form."""
    found = _LINE.fullmatch(raw)
    return None if found is None else Line(int(found[2]), found[1], found[3])


def log_words(line: Line) -> dict[str, Any]:
    """Return the members of a genuine line about the log itself; empty for any other line."""
    if _LOG_TYPE not in line.body:
        return {}
    words = members(line.body + b"}")
    return words if str(words.get("type", "")).startswith("Log") else {}


def members(text: bytes) -> dict[str, Any]:
    """Parse a JSON object; empty for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def starts_anew(keys: AuditKeys, line: Line) -> bool:
    """Tell whether the line names the MAC that it follows, and is genuine: then it can be verified without the line
    before."""
    after = log_words(line).get("after")
    return isinstance(after, str) and keys.follows(after.encode(), line)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file: its last genuine line, that line's members about the log, and the foreign bytes after it."""

    head: ChainHead
    words: dict[str, Any]
    junk: bytes


def last_genuine(keys: AuditKeys, block: bytes) -> Tail | None:
    """Find the last line of a block that the line before, or the line itself, proves genuine.

    The block may start in the middle of a line, which is then ignored.
    """
    pieces = block.split(b"\n")
    end = len(block) - len(pieces[-1])  # start of the piece after the last line break
    for at in range(len(pieces) - 2, -1, -1):
        junk_from, end = end, end - len(pieces[at]) - 1
        line = parse(pieces[at])
        if line is None:
            continue
        before = parse(pieces[at - 1]) if at else None
        if (before is not None and keys.follows(before.mac, line)) or starts_anew(keys, line):
            return Tail(line.head, log_words(line), block[junk_from:])
    return None
