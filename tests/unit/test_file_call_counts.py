"""What a write and a refresh cost in calls that wait for the disk, and in thread hops: one more is a red test.

The counts are exact, because one sync more is half a durable write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.model.token_results import Ready
from oauthbroker.repository.repository import Repository
from oauthbroker.store.file.locked_writes import Writer
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.testing.stores import open_file_store
from tests.kit.crashfs import CountingFs
from tests.kit.running_broker import running, turn, user_app
from tests.kit.samples import grant_with

WRITE = Counter(create_file=1, write=1, fsync=2, rename=1, open_lock=1)
COUNTED = {*WRITE, "reserve", "truncate", "unlink", "listdir", "make_folder"}
MOST_LOOKS = 16  # at names, in a refresh: fewer than the folders of a store. A slow machine needs some more of them


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The pieces of work that the store runs on a thread."""
    seen: list[object] = []
    run = Writer.run

    async def counted(self: Writer, work: Callable[[], Any]) -> Any:
        seen.append(work)
        return await run(self, work)

    monkeypatch.setattr(Writer, "run", counted)
    return seen


def counts_in(fs: CountingFs) -> Counter[str]:
    return Counter({call: count for call, count in fs.calls.items() if call in COUNTED})


async def test_a_write_of_a_grant(tmp_path: Path, hops: list[object]) -> None:
    fs = CountingFs()
    store = open_file_store(tmp_path, fs=fs)
    repository = Repository(store)
    versioned = await repository.save_grant(grant_with(), expect=0)
    fs.calls.clear()
    hops.clear()
    await repository.save_grant(grant_with(), expect=versioned.generation)
    assert counts_in(fs) == WRITE
    assert 1 == len(hops)
    await store.close()


async def test_a_refresh(
    tmp_path: Path, identity_provider: IdentityProvider, test_clock: TestClock, hops: list[object]
) -> None:
    """Two writes, the intent and the token, into space that the first reserves for the second on its thread; with the leases
    of the provider lease and of the pair, once for each write. The grant has its due marker from the refresh before."""
    fs = CountingFs()
    store = open_file_store(tmp_path, fs=fs, clock=test_clock)
    app = user_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, store=store, background=False) as harness:
        await harness.connected()
        for _ in range(2):
            test_clock.advance(3600)
            fs.calls.clear()
            hops.clear()
            assert isinstance(await harness.broker.oauth(turn()).get_access_token("mail"), Ready)
        assert 2 == identity_provider.count("refresh_token")
        # the second one reserves its space before the first is written, and gives the rest back
        both = Counter({call: 2 * count for call, count in WRITE.items()})
        assert counts_in(fs) == both + Counter(reserve=1, truncate=1, open_lock=3)
        assert fs.calls["stat"] <= MOST_LOOKS
        assert 2 == len(hops)
