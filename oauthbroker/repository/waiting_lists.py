"""Keep the waiting list of each (app, subject): the locators of its open auth sessions, oldest first."""

from __future__ import annotations

from typing import NamedTuple

from oauthbroker.records import codec
from oauthbroker.repository.versioned import in_place, opened, remove_over, replaceable, write_over
from oauthbroker.store.format.port import Damage, Entry, Key, Store

KIND = "waiting"


class WaitingList(NamedTuple):
    """The locators of the sessions on a list, and the generation that was read: 0 for none."""

    key: Key
    app: str
    subject: str
    locators: list[str]
    generation: int


class WaitingLists:
    """Waiting lists by pair. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self._on_damage = on_damage

    async def of(self, app: str, subject: str) -> WaitingList:
        """Return the list. A damaged one counts as empty: its sessions end by themselves."""
        key = self._store.key(KIND, app, subject)
        found, generation = await replaceable(self._store, key, self._open, self._on_damage)
        return WaitingList(key, app, subject, found or [], generation)

    async def save(self, before: WaitingList, locators: list[str]) -> None:
        """Replace a list that was read under the same hold of the pair's lease. An empty list is deleted."""
        if before.locators == locators:
            return
        if not locators:
            await remove_over(self._store, before.key, expect=before.generation)
            return
        spec = {"app": before.app, "subject": before.subject, "sessions": locators}
        await write_over(self._store, before.key, codec.encode("WaitingList", {"spec": spec}), expect=before.generation)

    def _open(self, entry: Entry) -> list[str]:
        app, subject, locators = opened(_waiting_in, entry)
        in_place(entry, self._store.key(KIND, app, subject))
        return locators


def _waiting_in(body: bytes) -> tuple[str, str, list[str]]:
    """Return (app, subject, locators of sessions)."""
    spec = codec.decode("WaitingList", body)["spec"]
    return spec["app"], spec["subject"], list(spec["sessions"])
