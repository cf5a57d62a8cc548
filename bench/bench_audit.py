"""The audit log: what an entry costs alone and between two brokers that take turns, and how fast a log is assessed.

The limit is what any log on a disk costs: one write of a line that is ready.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import MS, called_in_turn, parser, show
from oauthbroker.audit import TokenIssued
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.formatting import line_of
from oauthbroker.audit.trail import FileTrail
from oauthbroker.store.format.entry_names import label_macs

KEYS = AuditKeys(label_macs(b"k" * 32))
LIMIT = "audit: the limit (one write)"
AT = datetime(2026, 11, 21, tzinfo=UTC)


def entry() -> TokenIssued:
    return TokenIssued(
        app="mail", grant="sha256:" + "0" * 64, agent="planner", tool="Tool/mail", instance="1700000000.000100"
    )


def main(*, quick: bool) -> None:
    rounds, batch = (20, 200) if quick else (200, 1000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = os.open(folder / "plain", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        line = line_of(entry(), AT).encode()
        one, other = AuditFile(folder, KEYS), AuditFile(folder, KEYS)
        again, others, moment = one.repeated(entry()), other.repeated(entry()), AT

        def by_turns() -> None:
            again(moment)
            others(moment)

        works: dict[str, Callable[[], object]] = {
            LIMIT: lambda: os.write(plain, line),
            "audit: an entry": lambda: one.write(entry(), AT),
            "audit: an entry of a repeated call": lambda: again(moment),
            "audit: an entry, two brokers by turns": by_turns,
        }
        measured = called_in_turn(works, rounds, batch)
        measured["audit: an entry, two brokers by turns"] = [
            both / 2 for both in measured["audit: an entry, two brokers by turns"]
        ]
        limit = measured.pop(LIMIT)
        show(LIMIT, limit, "us")
        for row, samples in measured.items():
            show(row, samples, "us", {LIMIT: limit})
        os.close(plain)
        began = time.perf_counter()
        asyncio.run(one.keep_checkpoint())
        show("audit: a checkpoint, with all of the above to sync", [(time.perf_counter() - began) * MS], "ms")
        one.close()
        other.close()
        began = time.perf_counter()
        assessment = asyncio.run(FileTrail(folder, KEYS).verify())
        assert assessment.sound
        show(
            "audit: verify", [assessment.verified / (time.perf_counter() - began)], "lines/s", lines=assessment.verified
        )


if __name__ == "__main__":
    main(quick=parser().parse_args().quick)
