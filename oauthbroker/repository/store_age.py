"""Notice a store that was set back: its records are older than this host has seen them.

A record has a number that running brokers raise. Each host notes the newest one beside its audit log, which is not
restored with the records.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from oauthbroker.core.clock import Clock, to_iso
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.records.plugin_value import PluginValue
from oauthbroker.repository.plugin_values import KIND
from oauthbroker.store.file.seen_file import Age, read_seen, write_seen
from oauthbroker.store.format.port import Conflict, Store
from oauthbroker.store.format.seal import UNOPENED
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.copying import body_of
from oauthbroker.store.migration.raw import RawStore

PLACE: Final = ("oauthbroker", "age")  # no plug-in has this name


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAge:
    """The age of an open store. `data` is the folder of this host's audit log."""

    store: Store
    store_id: str
    data: Path
    clock: Clock

    async def check(self) -> None:
        """Refuse a store that is older than this host has seen it. Raises `storeRolledBack` and store codes."""
        seen = await on_thread(partial(read_seen, self.data, self.store_id))
        if seen is not None:
            check_age((await self._found())[0], seen)

    async def grow(self) -> None:
        """Raise the number, and note it here. If another process raises it meanwhile, the next pass notes it."""
        age, generation = await self._found()
        seen = await on_thread(partial(read_seen, self.data, self.store_id))
        check_age(age, seen)
        newest = (age or seen or Age()).number + 1
        grown = Age(newest, to_iso(self.clock.now()))
        plugin, key = PLACE
        body = PluginValue(plugin=plugin, key=key, value=grown._asdict()).to_plaintext()
        tags = [self.store.tag(KIND, "plugin", plugin)] if not generation else None
        with suppress(Conflict):
            place = self.store.key(KIND, *PLACE)
            await self.store.put(place, body, expect=generation, tags=tags)
            await on_thread(partial(write_seen, self.data, self.store_id, grown))

    async def _found(self) -> tuple[Age | None, int]:
        """Return the age, None for a record that does not open, and the generation to replace."""
        try:
            entry = await self.store.get(self.store.key(KIND, *PLACE))
        except BrokerError as error:
            if error.code not in UNOPENED:
                raise
            return None, 0
        return (_age(entry.body), entry.generation) if entry is not None else (Age(), 0)


def age_in(store: RawStore, ring: Keyring) -> Age | None:
    """Return the age of raw records, None for one that does not open."""
    name = ring.name(KIND, *PLACE)
    for each in store.records(KIND, upto=name):
        if each.name == name:
            body = body_of(ring, KIND, each, ())
            return _age(body) if body is not None else None
    return Age()


def _age(body: bytes) -> Age | None:
    with suppress(BrokerError, ValueError, TypeError, LookupError):
        return Age.of(PluginValue.from_plaintext(body).value)
    return None


def check_age(age: Age | None, seen: Age | None) -> None:
    """Raise `storeRolledBack` for an age below the one that was seen."""
    if age is None or seen is None or age.number >= seen.number:
        return
    note = (
        f"its records are of {age.at}, and this host has seen those of {seen.at}: `oauthbroker store accept-restore` "
        "says what that means"
    )
    raise BrokerError(Code.STORE_ROLLED_BACK, note=note)
