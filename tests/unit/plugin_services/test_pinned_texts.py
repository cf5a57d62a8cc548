"""Pinned texts: a text of a stranger is used as it was first seen, until an operator has approved another one."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.plugin_services.pinned_texts import ChangedText, PinnedTexts
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.memory import MemoryStore


@pytest.fixture
def state() -> PluginState:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())
    return PluginState(Repository(store).plugin_values, "mcp")


async def waiting(pins: PinnedTexts) -> list[ChangedText]:
    return [each async for each in pins.waiting()]


async def test_an_approval_that_fails_half_way_can_be_given_again(
    state: PluginState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text that waits is the last one to change: else an operator would not find it again."""
    pins, change, calls = PinnedTexts(state), state.change, list[str]()
    for text in ("first", "second"):
        await pins.compare("notes", {"pay": text})
    [shown] = await waiting(pins)

    async def failing(self: PluginState, key: str, *given: Any, **more: Any) -> Any:
        calls.append(key)
        if len(calls) == 2:
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await change(key, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(PluginState, "change", failing)
        with pytest.raises(BrokerError):
            await pins.approve(shown)
    assert [shown] == await waiting(pins)
    assert await pins.approve(shown)
    assert [] == await waiting(pins)
    assert {"pay": True} == await pins.compare("notes", {"pay": "second"})
