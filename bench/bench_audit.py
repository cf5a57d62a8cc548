"""The audit log: what an entry costs alone and between two brokers that take turns, and how fast a log is judged.

The limit is what any log on a disk costs: one write of a line that is ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from oauthbroker.audit import TokenIssued
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.formatting import line_of
from oauthbroker.audit.trail import FileTrail
from oauthbroker.store.names import labelled_mac

KEYS = AuditKeys(lambda label, *parts: labelled_mac(b"k" * 32, label, *parts))
AT = datetime(2026, 11, 21, tzinfo=UTC)


def entry() -> TokenIssued:
    return TokenIssued("mail", "sha256:" + "0" * 64, "planner", "Tool/mail", instance="1700000000.000100")


def spent(work: Callable[[], object], repeats: int, batch: int) -> tuple[float, float]:
    """(median, 99th percentile) microseconds of one call, over batches."""
    samples = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(batch):
            work()
        samples.append((time.perf_counter() - began) / batch * 1e6)
    samples.sort()
    return statistics.median(samples), samples[int(len(samples) * 0.99) - 1]


def show(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 2), "unit": unit, **more}))


def main(*, quick: bool) -> None:
    repeats, batch = (20, 200) if quick else (400, 1000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = os.open(folder / "plain", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        line = line_of(entry(), AT).encode()
        limit, tail = spent(lambda: os.write(plain, line), repeats, batch)
        show("audit: the limit (one write)", limit, "us", p99=round(tail, 2))
        os.close(plain)
        one, other = AuditFile(folder, KEYS), AuditFile(folder, KEYS)
        alone, tail = spent(lambda: one.write(entry(), AT), repeats, batch)
        show("audit: an entry", alone, "us", p99=round(tail, 2), ratio=round(alone / limit, 2))

        again, others, moment = one.repeated(entry()), other.repeated(entry()), AT
        alone, tail = spent(lambda: again(moment), repeats, batch)
        show("audit: an entry of a repeated call", alone, "us", p99=round(tail, 2), ratio=round(alone / limit, 2))

        def by_turns() -> None:
            again(moment)
            others(moment)

        both, tail = spent(by_turns, repeats, batch // 2)
        show(
            "audit: an entry, two brokers by turns",
            both / 2,
            "us",
            p99=round(tail / 2, 2),
            ratio=round(both / 2 / limit, 2),
        )
        began = time.perf_counter()
        asyncio.run(one.keep_anchor())
        show("audit: an anchor, with all of the above to sync", (time.perf_counter() - began) * 1e3, "ms")
        one.close()
        other.close()
        began = time.perf_counter()
        verdict = asyncio.run(FileTrail(folder, KEYS).verify())
        assert verdict.sound
        show("audit: verify", verdict.verified / (time.perf_counter() - began), "lines/s", n=verdict.verified)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    main(quick=parser.parse_args().quick)
