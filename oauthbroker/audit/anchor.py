"""The anchor of the audit log: the known length of the chain, to detect a truncated end.

`audit.anchor` is overwritten in place, within one disk sector: no older anchor stays on the disk for an attacker
without the key to restore.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
from dataclasses import dataclass
from pathlib import Path

from oauthbroker.audit.chain import AuditKeys, ChainHead, members
from oauthbroker.audit.folder import lock

NAME = "audit.anchor"
SIZE = 256
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Anchor:
    """The chain's head at the time of writing, and the number of its file."""

    head: ChainHead
    file: int


def read_anchor(folder: Path, keys: AuditKeys) -> Anchor | None:
    """Return the anchor; None if this store has none. Raises OSError, or BlockingIOError while it is being written."""
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | _SAFE)
    except FileNotFoundError:
        return None
    try:
        found = _read(descriptor, keys)
        if found is None:  # another process may have been writing it
            if not lock(descriptor):
                raise BlockingIOError("the anchor is locked")
            found = _read(descriptor, keys)
        return found
    finally:
        os.close(descriptor)


def write_anchor(folder: Path, keys: AuditKeys, anchor: Anchor) -> bool:
    """Write an anchor durably, unless a newer one exists. False if another process is writing it. Raises OSError."""
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        kept = _read(descriptor, keys)
        if kept is None or kept.head.seq < anchor.head.seq:
            _put(descriptor, _text(keys, anchor))
        _sync_names(folder)  # also for existing files: the sync of the process that made them may have failed
        return True
    finally:
        os.close(descriptor)


def _put(descriptor: int, text: bytes) -> None:
    if os.pwrite(descriptor, text, 0) != len(text):
        raise OSError("the anchor was not written whole")
    os.fsync(descriptor)


def _sync_names(folder: Path) -> None:
    """Sync the folder: a new file's name must survive a power failure as its content does."""
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
    return Anchor(ChainHead(found["seq"], found["mac"].encode()), found["file"])
