"""What tags cost a write and save a list: the grants of one subject among many, with tags and without."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench.figures import MS, parser, show, timed
from bench.hasty import Hasty
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.grants.grants import GrantList
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import Repository
from oauthbroker.testing.stores import open_file_store

BODY = b"x" * 1500
AT_ONCE = 8
NOW = datetime(2026, 2, 1, 9, tzinfo=UTC)


async def main(*, quick: bool, long: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        first, second = (Path(name, part) for part in ("writes", "lists"))
        first.mkdir()
        second.mkdir()
        await writes(first, 20 if quick else 300)
        await lists(second, 2_000 if quick else 100_000 if long else 20_000)


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
    show("write: first, without tags", plain, "us")
    show("write: first, with two tags", tagged, "us", {"write: first, without tags": plain})
    show("write: next, without tags", plain_next, "us")
    show("write: next, with its two tags kept", kept, "us", {"write: next, without tags": plain_next})


async def lists(folder: Path, count: int) -> None:
    store = open_file_store(folder, fs=Hasty())
    await fill(Repository(store), count)
    show("grants", [count], "")
    grants = GrantList(Repository(store), SystemClock())
    some = [f"acme:user:{number * count // 40}" for number in range(10)]
    show("list of all grants", [await timed(all_of(grants), MS)], "ms")
    show("list of one subject: by its tag", [await timed(summaries(grants, who), MS) for who in some], "ms")
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
            access_token=Secret("a" * 900),
            token_type="bearer",
            refresh_token=Secret("r" * 300),
            expires_at=None,
            lifetime_seconds=None,
        ),
        created_at=NOW,
        updated_at=NOW,
        authorized_by=f"acme:user:{number // 4}",
    )


async def all_of(grants: GrantList) -> None:
    async for _ in grants.list():
        pass


async def summaries(grants: GrantList, subject: str) -> None:
    found = [summary async for summary in grants.list(subject=subject)]
    if len(found) != 4:
        raise RuntimeError(f"{len(found)} grants of {subject}")


if __name__ == "__main__":
    given = parser().parse_args()
    asyncio.run(main(quick=given.quick, long=given.long))
