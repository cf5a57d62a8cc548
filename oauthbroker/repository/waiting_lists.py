"""Keep the waiting list of each (app, subject): the locators of its open auth sessions, oldest first."""

from __future__ import annotations

from oauthbroker.records import codec
from oauthbroker.repository.versioned import in_place, opened, remove_over, replaceable, write_over
from oauthbroker.store.format.port import Damage, Entry, Key, Store

KIND = "waiting"


class WaitingLists:
    """Waiting lists by pair. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self._on_damage = on_damage

    async def of(self, app: str, subject: str) -> list[str]:
        """Return the locators of the sessions on the list."""
        return (await self._read(self._store.key(KIND, app, subject)))[0]

    async def save(self, app: str, subject: str, locators: list[str]) -> None:
        """Replace the waiting list, under the pair's lease. An empty list is deleted."""
        key = self._store.key(KIND, app, subject)
        before, generation = await self._read(key)
        if before == locators:
            return
        if not locators:
            await remove_over(self._store, key, expect=generation)
            return
        body = codec.encode("WaitingList", {"spec": {"app": app, "subject": subject, "sessions": locators}})
        await write_over(self._store, key, body, expect=generation)

    def _open(self, entry: Entry) -> list[str]:
        app, subject, locators = opened(_waiting_in, entry)
        in_place(entry, self._store.key(KIND, app, subject))
        return locators

    async def _read(self, key: Key) -> tuple[list[str], int]:
        """Return (locators, generation). A damaged list counts as empty: its sessions end by themselves."""
        found, generation = await replaceable(self._store, key, self._open, self._on_damage)
        return found or [], generation


def _waiting_in(body: bytes) -> tuple[str, str, list[str]]:
    """Return (app, subject, locators of sessions)."""
    spec = codec.decode("WaitingList", body)["spec"]
    return spec["app"], spec["subject"], list(spec["sessions"])
