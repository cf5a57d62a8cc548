"""Store what plug-ins keep: JSON values by plug-in and key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.foreign_code import MisuseError
from oauthbroker.core.plain_json import JsonLimits, NotPlainJson, plain_json
from oauthbroker.model.identities import check_subject
from oauthbroker.records.plugin_value import PluginValue
from oauthbroker.repository.versioned import in_place, opened, readable_records, stored
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Store, Tag

KIND = "plugins"
MOST_BYTES = 1024 * 1024  # of one value, as JSON
LIMITS: Final = JsonLimits(MOST_BYTES, 128, 100_000)  # `codec.decode` reads 200 levels, the record's own included
TRIES = 16  # of a change that other processes overtake


class PluginValues:
    """The values of all plug-ins. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self.store = store
        self._on_damage = on_damage
        self._changing: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    def one_at_a_time(self, place: Key) -> asyncio.Lock:
        """Return the lock of this process for changes of one value. Other processes are met by `Conflict`."""
        return self._changing.setdefault(place, asyncio.Lock())

    def key(self, plugin: str, key: str) -> Key:
        return self.store.key(KIND, plugin, key)

    def tag(self, plugin: str) -> Tag:
        """Return the tag by which the values of one plug-in are found. A value never loses it."""
        return self.store.tag(KIND, "plugin", plugin)

    def open(self, entry: Entry) -> PluginValue:
        found = opened(PluginValue.from_plaintext, entry)
        in_place(entry, self.key(found.plugin, found.key))
        return found

    async def of(self, plugin: str) -> AsyncIterator[PluginValue]:
        """Yield the readable values of a plug-in, in no order."""
        async for found in readable_records(self.store.find(self.tag(plugin)), self.open, self._on_damage):
            if found.plugin == plugin:
                yield found

    async def about(self, subject: str) -> AsyncIterator[PluginValue]:
        """Yield the readable values of all plug-ins that are about a subject. Reads every value."""
        async for found in readable_records(self.store.scan(KIND), self.open, self._on_damage):
            if subject in found.subjects:
                yield found

    async def write(self, value: PluginValue, *, over: Entry | None) -> None:
        """Replace the version `over`; the value None removes it. Raises `Conflict` if it is not the newest."""
        if value.value is not None:
            tags = [self.tag(value.plugin)] if over is None else None
            expect = 0 if over is None else over.generation
            await self.store.put(self.key(value.plugin, value.key), _body(value), expect=expect, tags=tags)
        elif over is not None:
            await self.store.delete(over.key, expect=over.generation)
            await self.store.untag(over, [self.tag(value.plugin)])

    async def remove(self, plugin: str, key: str) -> bool:
        """Remove a value durably, a damaged one too. False if there was none."""
        place = self.key(plugin, key)
        for _ in range(TRIES):
            entry, generation = await stored(self.store, place, self._on_damage)
            if generation is None:
                await self.store.sync(KIND)  # that it is gone is durable too
                return False
            with suppress(Conflict):
                await self.store.delete(place, expect=generation)
                if entry is not None:
                    await self.store.untag(entry, [self.tag(plugin)])
                return True
        raise BrokerError(Code.STORE_LOCKED)


def _body(value: PluginValue) -> bytes:
    try:
        for subject in value.subjects:
            check_subject(subject)
        copy = plain_json(value.value, LIMITS)
        problem = "" if copy == value.value else "it would come back changed: use lists, and texts as names of members"
        body = replace(value, value=copy).to_plaintext()
    except BrokerError:
        problem = "`subjects` returned a text that is no subject"
    except NotPlainJson as refused:
        problem = refused.problem  # without the place: names of members may be secrets
    except Exception:  # noqa: BLE001  (a method of the value)
        problem = "it cannot be compared with its copy"
    if problem:
        raise MisuseError(f"a value of a plug-in is refused: {problem}")
    if len(body) > MOST_BYTES:
        raise MisuseError(f"a value of a plug-in has at most {MOST_BYTES // 1024} KiB")
    return body
