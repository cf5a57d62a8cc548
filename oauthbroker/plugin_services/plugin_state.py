"""Durable values for plug-ins: JSON by key, sealed like every record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.foreign_code import MisuseError
from oauthbroker.model.token_request import checked_wait
from oauthbroker.records.plugin_value import PluginValue
from oauthbroker.repository.plugin_values import PluginValues
from oauthbroker.repository.repository import Conflict, Key, Lease

MOST_KEY = 256  # characters
TRIES = 16  # of a change that other processes overtake
LEASE_SECONDS = 20.0
Change = Callable[[Any], Any]
Subjects = Callable[[Any], Collection[str]]


class PluginState:
    """The durable values of one plug-in: JSON, sealed, shared by all processes of the store.

    Keys are texts of 1 to 256 characters, values JSON of at most 1 MiB. Every method may raise `BrokerError`:
    `storeUnavailable`, `storeLocked` and other store codes, and `recordCorrupt` for a value that does not open.
    """

    def __init__(self, values: PluginValues, plugin: str) -> None:
        self._values = values
        self._plugin = plugin

    async def get(self, key: str) -> Any:
        """Return the newest value; None if there is none. Takes no lock."""
        entry = await self._values.store.get(self._place(key))
        return None if entry is None else self._values.open(entry).value

    async def change(self, key: str, change: Change, *, subjects: Subjects | None = None) -> Any:
        """Write durably what `change` makes of the newest value, and return it.

        `change` gets None if there is no value. If it returns None, the value is removed. It is called again if another
        process wrote meanwhile, so it does nothing else. `subjects` gets the new value and returns all subjects that it
        is about: erasing one of them removes the value. Without it they stay as they were. Raises `requestInvalid` for
        a value that is no JSON or too large, and for a text that is no subject.
        """
        place = self._place(key)
        async with self._values.one_at_a_time(place):  # else a rush of this process would use up the tries
            return await self._changed(place, key, change, subjects)

    async def _changed(self, place: Key, key: str, change: Change, subjects: Subjects | None) -> Any:
        for _ in range(TRIES):
            entry = await self._values.store.get(place)
            before = None if entry is None else self._values.open(entry)
            value = change(None if before is None else before.value)
            about = before.subjects if before is not None else ()
            if subjects is not None and value is not None:
                found = subjects(value)
                if isinstance(found, str) or not isinstance(found, Collection):
                    raise MisuseError("`subjects` returned no list")
                about = tuple(sorted(set(found)))
            with suppress(Conflict):
                await self._values.write(
                    PluginValue(plugin=self._plugin, key=key, value=value, subjects=about), over=entry
                )
                return value
        raise BrokerError(Code.STORE_LOCKED)

    async def remove(self, key: str) -> bool:
        """Remove a value durably, a damaged one too. False if there was none."""
        self._place(key)
        return await self._values.remove(self._plugin, key)

    async def all(self) -> AsyncIterator[tuple[str, Any]]:
        """Yield the keys and values of this plug-in, in no order. A damaged value hides no other."""
        async for found in self._values.of(self._plugin):
            yield found.key, found.value

    def derived_key(self, label: str) -> bytes:
        """Return 32 bytes that only a holder of the store's keys can compute: another key for each plug-in and label,
        the same in all processes and after a rotation."""
        return self._values.store.mac("plugin", self._plugin, label)

    def lease(self, name: str, *, wait: float = LEASE_SECONDS) -> AbstractAsyncContextManager[Lease]:
        """Hold a lock of this plug-in against all tasks and processes. Waits at most `wait` seconds, then raises
        `storeLocked`. It blocks no `change`: ask `lost` right before an effect that must happen once. Each name is an
        empty file that stays, so use few."""
        return self._values.store.lease(self._values.store.key("plugin", self._plugin, name), wait=checked_wait(wait))

    def _place(self, key: str) -> Key:
        if not isinstance(key, str) or not 0 < len(key) <= MOST_KEY:
            raise MisuseError(f"a key of a plug-in's value has 1 to {MOST_KEY} characters")
        return self._values.key(self._plugin, key)
