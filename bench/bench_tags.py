"""What tags cost a write, and what they save a list: the grants of one subject among many, with tags and without."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.operations.grants import GrantList
from oauthbroker.records import Grant, Token
from oauthbroker.repository.grant_tags import tag_grants
from oauthbroker.repository.repository import Repository
from oauthbroker.store.file.fs import Fs
from oauthbroker.testing.stores import open_file_store

BODY = b"x" * 1500
AT_ONCE = 8
NOW = datetime(2026, 2, 1, 9, tzinfo=UTC)


class Hasty(Fs):
    """Waits for no disk, so that the grants are there soon. What is measured with it are lists, not writes."""

    def fsync(self, fd: int) -> None:
        """Done."""


async def main(*, quick: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        first, second = (Path(name, part) for part in ("writes", "lists"))
        first.mkdir()
        second.mkdir()
        await writes(first, 20 if quick else 300)
        await lists(second, 2_000 if quick else 100_000)


async def writes(folder: Path, rounds: int) -> None:
    """First versions without tags and with two, and next versions of both, turn by turn."""
    store = open_file_store(folder)
    plain, tagged, plain_next, kept = list[float](), list[float](), list[float](), list[float]()
    for number in range(rounds):
        key, other = store.key("grants", "plain", str(number)), store.key("grants", "tagged", str(number))
        tags = [store.tag("grants", "app", "mail"), store.tag("grants", "who", str(number))]
        plain.append(await timed(store.put(key, BODY, expect=0)))
        tagged.append(await timed(store.put(other, BODY, expect=0, tags=tags)))
        plain_next.append(await timed(store.put(key, BODY, expect=1)))
        kept.append(await timed(store.put(other, BODY, expect=1)))
    await store.close()
    show("write: first, without tags", plain, "us", 1e6)
    show("write: first, with two tags", tagged, "us", 1e6, plain)
    show("write: next, without tags", plain_next, "us", 1e6)
    show("write: next, with its two tags kept", kept, "us", 1e6, plain_next)


async def lists(folder: Path, count: int) -> None:
    store = open_file_store(folder, fs=Hasty())
    await fill(Repository(store), count)
    print(json.dumps({"name": "grants", "value": count, "unit": ""}))
    scanning, finding = (GrantList(Repository(store, upgraded=upgraded), SystemClock()) for upgraded in (False, True))
    some = [f"acme:user:{number * count // 40}" for number in range(10)]
    show("list of one subject: all grants read", [await timed(summaries(scanning, some[0]))], "ms", 1e3)
    show(
        "list of one subject: by its tag",
        [await timed(summaries(finding, who)) for who in some],
        "ms",
        1e3,
    )
    shutil.rmtree(folder / "store" / "data" / "tags")
    await store.close()
    store = open_file_store(folder)
    show("upgrade: all grants tagged", [await timed(tag_grants(store))], "s", 1)
    show(
        "list after it",
        [await timed(summaries(GrantList(Repository(store), SystemClock()), some[3]))],
        "ms",
        1e3,
    )
    await store.close()


async def fill(repository: Repository, count: int) -> None:
    """Four grants for each subject, each of another app."""
    left = iter(range(count))

    async def some() -> None:
        for number in left:
            await repository.save_grant(grant_of(number), expect=0)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def grant_of(number: int) -> Grant:
    return Grant(
        app=f"app-{number % 4}",
        provider="acme",
        subject=f"acme:user:{number // 4}",
        flow="authorization_code",
        scopes=("read",),
        token=Token(
            Secret("a" * 900), "bearer", refresh_token=Secret("r" * 300), expires_at=None, lifetime_seconds=None
        ),
        created_at=NOW,
        updated_at=NOW,
        authorized_by=f"acme:user:{number // 4}",
    )


async def summaries(grants: GrantList, subject: str) -> None:
    found = [summary async for summary in grants.list(subject=subject)]
    if len(found) != 4:
        raise RuntimeError(f"{len(found)} grants of {subject}")


async def timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def show(name: str, samples: list[float], unit: str, scale: float, plain: list[float] | None = None) -> None:
    figure: dict[str, object] = {"name": name, "value": round(statistics.median(samples) * scale, 3), "unit": unit}
    if plain is not None:
        figure["ratio"] = round(statistics.median(samples) / statistics.median(plain), 2)
    print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    asyncio.run(main(quick=parser.parse_args().quick))
