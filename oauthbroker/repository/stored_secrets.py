"""Keep the client secrets that operators put into the store (`oauthbroker secrets`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.records import codec
from oauthbroker.repository.versioned import in_place, opened, readable_records, stored
from oauthbroker.store.format.port import Conflict, Damage, Entry, Key, Store

KIND = "secrets"
TRIES = 16  # of a change that other processes overtake


class StoredSecrets:
    """`Secret/<name>` entries. Every method may raise `BrokerError` with a store code."""

    def __init__(self, store: Store, on_damage: Damage) -> None:
        self._store = store
        self._on_damage = on_damage

    async def all(self) -> dict[tuple[str, str], Secret]:
        """Return every readable `Secret/<name>` entry: (name, key) -> value."""
        found: dict[tuple[str, str], Secret] = {}
        async for name, data in readable_records(self._store.scan(KIND), self._open, self._on_damage):
            found.update({(name, key): Secret(value) for key, value in data.items()})
        return found

    def _open(self, entry: Entry) -> tuple[str, dict[str, str]]:
        spec = opened(_secret_in, entry)
        in_place(entry, self._store.key(KIND, spec["name"]))
        return spec["name"], dict(spec["data"])

    async def change(self, name: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace one secret's keys by the result of `change`; an empty result deletes the secret. A secret with a
        broken seal counts as empty. `change` is called again if another process wrote meanwhile."""
        for _ in range(TRIES):
            with suppress(Conflict):
                await self._change(self._store.key(KIND, name), name, change)
                return
        raise BrokerError(Code.STORE_LOCKED)

    async def _change(self, key: Key, name: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        entry, generation = await stored(self._store, key, self._on_damage)
        after = change(self._open(entry)[1] if entry is not None else {})
        if after:
            body = codec.encode("Secret", {"spec": {"name": name, "data": after}})
            await self._store.put(key, body, expect=generation or 0)
        elif generation is not None:
            await self._store.delete(key, expect=generation)


def _secret_in(body: bytes) -> dict[str, Any]:
    """Return the `name` and `data` of a Secret entry."""
    spec: dict[str, Any] = codec.decode("Secret", body)["spec"]
    return spec
