"""The last use of a grant: noted in memory, written now and then, and forgotten with the grant."""

from __future__ import annotations

import pytest

from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.tokens.grant_uses import END_SECONDS, WRITE_SECONDS, Uses


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def uses(clock: TestClock) -> Uses:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    return Uses(Repository(store).records("uses", GrantUse.from_plaintext), clock)


@pytest.mark.parametrize("is_written", [True, False])
async def test_a_use_that_is_forgotten_is_gone_from_memory_and_store(
    uses: Uses, clock: TestClock, is_written: bool
) -> None:
    uses.note("g", "planner", None, clock.now())
    if is_written:
        await uses.write()
        uses.note("g", "planner", "Tool/x", clock.now())
    await uses.forget("g")
    assert None is await uses.last("g")
    assert 0 == await uses.write(everything=True)
    assert [] == [each async for each in uses.all()]


async def test_a_process_that_ends_writes_for_seconds_however_many_notes_there_are(
    uses: Uses, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = uses._keep

    async def slowly(use: GrantUse) -> None:
        clock.advance(0.5)
        await keep(use)

    monkeypatch.setattr(uses, "_keep", slowly)
    for number in range(20):
        uses.note(str(number), "planner", None, clock.now())
    assert END_SECONDS / 0.5 == await uses.write(everything=True)


async def test_a_grant_is_written_once_in_five_minutes_and_at_the_end(uses: Uses, clock: TestClock) -> None:
    uses.note("g", "planner", None, clock.now())
    assert 1 == await uses.write()
    uses.note("g", "late", None, clock.now())
    clock.advance(WRITE_SECONDS - 1)
    assert (0, 1) == (await uses.write(), await uses.write(everything=True))
    uses.note("g", "later", None, clock.now())
    clock.advance(WRITE_SECONDS)
    assert 1 == await uses.write()
    last = await uses.last("g")
    assert last is not None
    assert ("planner", "later") == (last.first_agent, last.agent)
