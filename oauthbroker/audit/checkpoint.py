"""The checkpoint of the audit log: the known length of each slot's chain, to detect a removed slot or a truncated end.

`audit.anchor` has two halves with the same text. Both are overwritten in place, one after the other: a crash damages
at most one, and no older checkpoint stays on the disk for an attacker without the key to restore.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import unlock_descriptor

from oauthbroker.audit.chain import START, AuditKeys, ChainHead, Mac, members
from oauthbroker.audit.folder import lock, open_to_change, open_to_read, slots_with_lines, sync_names
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.durable_sync import sync

NAME = "audit.anchor"
HALF = 16 * 1024  # bytes: the text of all slots fits
_LEAST = 512  # bytes of text, so that a checkpoint of few slots leaves nothing of the one before it


@dataclass(frozen=True, slots=True)
class ChainCheckpoint:
    """The head of a slot's chain at the time of writing, and the number of its file."""

    head: ChainHead
    file: int


NOTHING = ChainCheckpoint(START, 1)
ChainCheckpoints = Mapping[int, ChainCheckpoint]


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """The checkpoints of all chains."""

    chains: ChainCheckpoints

    def of(self, slot: int) -> ChainCheckpoint:
        return self.chains.get(slot, NOTHING)


def read_checkpoint(root: Path, keys: AuditKeys, *, patient: bool = False) -> LogCheckpoint | None:
    """Return the checkpoint; None if this store has none. Raises OSError, or BlockingIOError while it is being
    written."""
    try:
        descriptor = open_to_read(root / NAME)
    except FileNotFoundError:
        return None
    try:
        found = _read(descriptor, keys)
        if found is None:  # another process may have been writing it
            if not lock(descriptor, patient=patient):
                raise BlockingIOError("the checkpoint is locked")
            found = _read(descriptor, keys)
        return found
    finally:
        os.close(descriptor)


def read_or_begin(root: Path, keys: AuditKeys, *, patient: bool = False) -> LogCheckpoint | None:
    """Return the checkpoint, written before the first line of a log: lines without a checkpoint look like a deleted
    one. None if it was deleted. Raises OSError."""
    is_new = not slots_with_lines(root)  # read first: the checkpoint is older than any line
    checkpoint = read_checkpoint(root, keys)
    if checkpoint is None and is_new:
        checkpoint = write_checkpoint(root, keys, {}, patient=patient)
    return checkpoint


def write_checkpoint(
    root: Path, keys: AuditKeys, known: ChainCheckpoints, *, slot: int = 0, patient: bool
) -> LogCheckpoint:
    """Write the `known` checkpoints durably; none moves back. Return the new one. Raises OSError, or BlockingIOError
    while another process writes it."""
    descriptor = open_to_change(root / NAME)
    try:
        if not lock(descriptor, patient=patient):
            raise BlockingIOError("the checkpoint is locked")
        found = _read(descriptor, keys)
        checkpoint = LogCheckpoint(_newest(found.chains if found is not None else {}, known))
        sync_names(root, slot)  # first: no checkpoint may name a line whose file a power failure takes away
        _put(descriptor, _text(keys, checkpoint))
        unlock_descriptor(descriptor)  # closing is not enough: a forked child may share the descriptor
        return checkpoint
    finally:
        os.close(descriptor)


def _newest(*checkpoints: ChainCheckpoints) -> ChainCheckpoints:
    newest: dict[int, ChainCheckpoint] = {}
    for slot, chain_checkpoint in (item for chains in checkpoints for item in chains.items()):
        if slot not in newest or newest[slot].head.seq < chain_checkpoint.head.seq:
            newest[slot] = chain_checkpoint
    return newest


def _put(descriptor: int, text: bytes) -> None:
    for offset in (HALF, 0):
        if os.pread(descriptor, len(text), offset) != text and os.pwrite(descriptor, text, offset) != len(text):
            raise OSError("the checkpoint was not written whole")
        sync(descriptor)  # also an existing text: the sync of the process that wrote it may have failed


def _text(keys: AuditKeys, checkpoint: LogCheckpoint) -> bytes:
    chains = sorted(checkpoint.chains.items())
    body = json.dumps(
        {slot: {"seq": it.head.seq, "mac": it.head.mac.decode(), "file": it.file} for slot, it in chains}
    ).encode()
    return (b"%b %b" % (keys.seal_checkpoint(body), body)).ljust(_LEAST - 1) + b"\n"


def _read(descriptor: int, keys: AuditKeys) -> LogCheckpoint | None:
    text = os.pread(descriptor, 2 * HALF, 0)
    halves = [_members(half.partition(b"\n")[0], keys.seal_checkpoint) for half in (text[HALF:], text[:HALF])]
    found = [{int(slot): _chain_checkpoint(it) for slot, it in half.items()} for half in halves if half is not None]
    return LogCheckpoint(_newest(*found)) if found else None


def _members(text: bytes, seal_of: Mac) -> dict[str, Any] | None:
    """Return the sealed members; None for a text that is not sealed."""
    seal, _, body = text.rstrip().partition(b" ")
    return members(body) if hmac.compare_digest(seal, seal_of(body)) else None


def _chain_checkpoint(found: Mapping[str, Any]) -> ChainCheckpoint:
    return ChainCheckpoint(ChainHead(found["seq"], found["mac"].encode()), found["file"])
