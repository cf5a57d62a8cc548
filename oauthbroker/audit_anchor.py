"""The anchor of the audit log: how far the chain was known to reach, so that a cut end is noticed.

`audit.anchor` holds two slots, written in turn, so that one is whole whenever the machine stops.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
from dataclasses import dataclass
from pathlib import Path

from oauthbroker.audit_chain import AuditKeys, Head, members

NAME = "audit.anchor"
SLOT = 256
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Anchor:
    """The chain's head when it was written, and the number of the file it was in."""

    head: Head
    file: int


def read_anchor(folder: Path, keys: AuditKeys) -> Anchor | None:
    """The newest anchor; None where there is none of this store. Raises OSError."""
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | _SAFE)
    except FileNotFoundError:
        return None
    try:
        return _newest(_slots(descriptor, keys))
    finally:
        os.close(descriptor)


def write_anchor(folder: Path, keys: AuditKeys, anchor: Anchor) -> bool:
    """Keeps an anchor durably, unless a newer one is kept; False when another process is at it. Raises OSError."""
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        slots = _slots(descriptor, keys)
        newest = _newest(slots)
        if newest is None or newest.head.seq < anchor.head.seq:
            number = 1 if newest is not None and newest == slots[0] else 0
            _put(descriptor, number * SLOT, _text(keys, anchor))
            if newest is None or newest.file != anchor.file:
                _sync_names(folder)
        return True
    finally:
        os.close(descriptor)


def _put(descriptor: int, offset: int, text: bytes) -> None:
    if os.pwrite(descriptor, text, offset) != len(text):
        raise OSError("the anchor was not written whole")
    os.fsync(descriptor)


def _sync_names(folder: Path) -> None:
    """A new file's name must outlast a power failure like what is in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(keys: AuditKeys, anchor: Anchor) -> bytes:
    body = json.dumps({"seq": anchor.head.seq, "mac": anchor.head.mac.decode(), "file": anchor.file}).encode()
    return (b"%b %b" % (keys.seal_anchor(body), body)).ljust(SLOT - 1) + b"\n"


def _slots(descriptor: int, keys: AuditKeys) -> tuple[Anchor | None, Anchor | None]:
    text = os.pread(descriptor, 2 * SLOT, 0)
    return _slot(keys, text[:SLOT]), _slot(keys, text[SLOT:])


def _slot(keys: AuditKeys, text: bytes) -> Anchor | None:
    seal, _, body = text.rstrip().partition(b" ")
    if not hmac.compare_digest(seal, keys.seal_anchor(body)):
        return None
    found = members(body)
    return Anchor(Head(found["seq"], found["mac"].encode()), found["file"])


def _newest(slots: tuple[Anchor | None, Anchor | None]) -> Anchor | None:
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot.head.seq, default=None)
