"""A store on another machine has to be asked for each version: a ready token costs two round trips, and a turn that ends
in the second one gets none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oauthbroker.store.format.port import Entry
from tests.kit.running_broker import Harness
from tests.story.api.kit import Callers

ASKED = {"oauthAppRef": "OAuthApp/mail"}
MAY_SHOW = ("access token",)


class FarStore:
    """Makes each question for a version a round trip, shared by the questions that begin together. `during` runs before
    the answers of a round trip of that many questions."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.round_trips: list[list[str]] = []
        self.during: dict[int, Callable[[], Awaitable[object]]] = {}
        self._unchanged, self._asks = harness.store.unchanged, harness.store.is_current
        self._begun, self._answered = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(harness.store, "unchanged", lambda _: False)
        monkeypatch.setattr(harness.store, "is_current", self._is_current)

    async def _is_current(self, entry: Entry) -> bool:
        if first := not self._begun.is_set():
            self._begun.set()
            self._answered = asyncio.Event()
            self.round_trips.append([])
        trip, answered = self.round_trips[-1], self._answered
        trip.append(entry.key.kind)
        await asyncio.sleep(0.01)
        if first:
            self._begun.clear()
            if (during := self.during.pop(len(trip), None)) is not None:
                await during()
            answered.set()
        await answered.wait()
        return self._unchanged(entry) or await self._asks(entry)


@pytest.fixture
async def far(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> FarStore:
    await harness.connected("mail")
    return FarStore(harness, monkeypatch)


async def test_a_warm_call_asks_for_the_turn_and_then_for_turn_and_grant_at_once(api: Callers, far: FarStore) -> None:
    holder = api.holding((await api.begin())["turnToken"])
    for _ in range(3):
        far.round_trips.clear()
        assert "ready" == (await holder.post("/v1/tokens", ASKED, allow=MAY_SHOW)).json()["status"]
    assert [["turns"], ["grants", "turns"]] == far.round_trips


async def test_a_turn_that_ends_while_turn_and_grant_are_looked_up_gets_no_token(
    harness: Harness, api: Callers, far: FarStore
) -> None:
    begun = await api.begin()
    far.during[2] = lambda: harness.broker.turns.end(begun["turnId"])
    answer = await api.holding(begun["turnToken"]).post("/v1/tokens", ASKED)
    assert "turnEnded" == answer.code
    assert not far.during
