"""An audit log on disk for a test: keys of its own store, and a verification in one word."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from oauthbroker.audit import TokenIssued
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.trail import FileTrail
from oauthbroker.audit.verification import TrailVerification
from oauthbroker.store.format.entry_names import label_macs

AT = datetime(2026, 1, 31, 9, 10, 1, tzinfo=UTC)
ENTRY = TokenIssued(app="mail", grant="sha256:00", agent="planner", tool="Tool/mail", instance="1700000000.000100")
SYNCS = [each for name, each in sys.modules.items() if name.startswith("oauthbroker.audit.") and hasattr(each, "sync")]
"""The modules that sync for the audit log, each by a name of its own."""
KEYS = AuditKeys(label_macs(b"k" * 32))
FOREIGN_KEYS = AuditKeys(label_macs(b"x" * 32))


def write(folder: Path, count: int = 1, *, keys: AuditKeys = KEYS, most_bytes: int = 1 << 20) -> None:
    """`count` entries by a process that ends in order."""
    log = AuditFile(folder, keys, most_bytes=most_bytes)
    for _ in range(count):
        log.write(ENTRY, AT)
    log.close()


def die(log: AuditFile) -> None:
    """Leave the log as a killed process does: the kernel closes its files."""
    log.after_fork()


async def verification(folder: Path, keys: AuditKeys = KEYS) -> TrailVerification:
    return await FileTrail(folder, keys).verify()


def kinds(found: TrailVerification) -> list[str]:
    """The kinds of its breaks; what a broker told of with a colon and how it named it."""
    return [each.kind + (f":{each.reported}" if each.reported else "") for each in found.breaks]


def active(folder: Path) -> Path:
    return folder / "audit.jsonl"
