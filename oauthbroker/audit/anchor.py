"""The anchor of the audit log: how far the chain was known to reach, so that a cut end is noticed.

`audit.anchor` is written in place, in one piece that a disk's sector holds: no older anchor is left on the disk for
somebody without the key to put back.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
from dataclasses import dataclass
from pathlib import Path

from oauthbroker.audit.chain import AuditKeys, Head, members
from oauthbroker.audit.folder import lock

NAME = "audit.anchor"
SIZE = 256
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Anchor:
    """The chain's head when it was written, and the number of the file it was in."""

    head: Head
    file: int


def read_anchor(folder: Path, keys: AuditKeys) -> Anchor | None:
    """The anchor; None where there is none of this store. Raises OSError."""
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | _SAFE)
    except FileNotFoundError:
        return None
    try:
        found = _read(descriptor, keys)
        if found is None and lock(descriptor):  # somebody may have been at it just now
            found = _read(descriptor, keys)
        return found
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
        kept = _read(descriptor, keys)
        if kept is None or kept.head.seq < anchor.head.seq:
            _put(descriptor, _text(keys, anchor))
            if kept is None or kept.file != anchor.file:
                _sync_names(folder)
        return True
    finally:
        os.close(descriptor)


def _put(descriptor: int, text: bytes) -> None:
    if os.pwrite(descriptor, text, 0) != len(text):
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
    return (b"%b %b" % (keys.seal_anchor(body), body)).ljust(SIZE - 1) + b"\n"


def _read(descriptor: int, keys: AuditKeys) -> Anchor | None:
    seal, _, body = os.pread(descriptor, SIZE, 0).rstrip().partition(b" ")
    if not hmac.compare_digest(seal, keys.seal_anchor(body)):
        return None
    found = members(body)
    return Anchor(Head(found["seq"], found["mac"].encode()), found["file"])
