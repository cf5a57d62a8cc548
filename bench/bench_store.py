"""What a durable write costs through the store, against the bare system calls in the same run, pair by pair."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from oauthbroker.testing.stores import open_file_store

BODY = b"x" * 1500


def replace_durably(folder: Path, number: int) -> None:
    """Write, fsync, rename, fsync the folder: the least a durable replacement can be."""
    temporary, final = folder / f".{number}.tmp", folder / str(number)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, BODY)
    os.fsync(descriptor)
    os.close(descriptor)
    temporary.replace(final)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


async def main(*, quick: bool) -> None:
    rounds = 20 if quick else 300
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        bare = root / "bare"
        bare.mkdir()
        store = open_file_store(root)
        loop = asyncio.get_running_loop()
        theirs, ours, ratios = [], [], []
        for number in range(rounds):
            began = time.perf_counter()
            await loop.run_in_executor(None, replace_durably, bare, number)
            theirs.append(time.perf_counter() - began)
            began = time.perf_counter()
            await store.put(store.key("grants", "app", str(number)), BODY, expect=0)
            ours.append(time.perf_counter() - began)
            ratios.append(ours[-1] / theirs[-1])
        show("write: bare durable replacement", theirs)
        show("write: store.put, lock included", ours, ratio=round(statistics.median(ratios), 2))

        began = time.perf_counter()
        bare_writes = [loop.run_in_executor(None, replace_durably, bare, rounds + n) for n in range(rounds)]
        await asyncio.gather(*bare_writes)
        limit = rounds / (time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.gather(*(store.put(store.key("sessions", str(n)), BODY, expect=0) for n in range(rounds)))
        rate = rounds / (time.perf_counter() - began)
        print(json.dumps({"name": "together: bare", "value": round(limit), "unit": "1/s"}))
        print(
            json.dumps(
                {"name": "together: store.put", "value": round(rate), "unit": "1/s", "ratio": round(rate / limit, 2)}
            )
        )
        await store.close()


def show(name: str, samples: list[float], **more: object) -> None:
    ordered = sorted(sample * 1e6 for sample in samples)
    p99 = ordered[int(len(ordered) * 0.99) - 1]
    print(
        json.dumps({"name": name, "value": round(statistics.median(ordered)), "unit": "us", "p99": round(p99), **more})
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    asyncio.run(main(quick=parser.parse_args().quick))
