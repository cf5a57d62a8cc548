"""The keyring: the store's id, the key for entry names, and the seeds that seal records. docs/store-format.md."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from oauthbroker.core.clock import Clock, SystemClock, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.entry_names import entry_names, label_macs, tag_of
from oauthbroker.store.format.port import Tag
from oauthbroker.store.format.seal import SealPlace, seal, unseal
from oauthbroker.store.keys import keyring_document as form
from oauthbroker.store.keys.key_encryption_keys import EnvKek, FileKek, KeyProvider
from oauthbroker.store.keys.key_wrapping import open_box, seal_box
from oauthbroker.store.keys.keyring_document import Seed, SeedState, Wrap

__all__ = ["EnvKek", "FileKek", "KeyProvider", "Keyring", "Seed", "SeedState", "Wrap"]


class Keyring:
    """All keys of a store. Created by `fresh` or `opened`, immutable. `name` gives (kind, parts) the entry name, and
    `mac` gives (label, parts) 32 bytes that only this store's brokers can compute; one independent key per label.

    `seeds` are in their order of age. Those before the active one open records that are not sealed anew yet; one
    after it opens records of the next epoch. `epoch` counts which seed is active.
    """

    __slots__ = (
        "_by_kid", "_data_key", "_name_key", "active", "epoch", "mac", "name", "seeds", "store_id", "wraps",
    )  # fmt: skip

    def __init__(
        self,
        *,
        store_id: str,
        name_key: bytes,
        seeds: Iterable[Seed],
        epoch: int,
        data_key: bytes = b"",
        wraps: Iterable[Wrap] = (),
    ) -> None:
        self.store_id = store_id
        self.epoch = epoch
        self.seeds = tuple(seeds)
        self.wraps = tuple(wraps)
        self._data_key = data_key
        self._name_key, self.name, self.mac = name_key, entry_names(name_key), label_macs(name_key)
        self._by_kid = {seed.kid: seed.key for seed in self.seeds if seed.state is not SeedState.DESTROYED}
        (self.active,) = (seed for seed in self.seeds if seed.state is SeedState.ACTIVE)

    def __repr__(self) -> str:
        return f"Keyring(store {self.store_id[:8]}, epoch {self.epoch}, {len(self.seeds)} seeds)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a keyring is neither pickled nor copied")

    @classmethod
    def fresh(cls, *, clock: Clock | None = None) -> Keyring:
        """Make the keys of a new store. They are kept nowhere yet: `wrapped_for` makes a keyring that can be."""
        return cls(
            store_id=os.urandom(16).hex(),
            name_key=os.urandom(32),
            seeds=[_new_seed(SeedState.ACTIVE, clock)],
            epoch=1,
        )

    @classmethod
    def opened(cls, document: bytes | None, *keks: KeyProvider) -> Keyring:
        """Open a keyring's document, None for none, with the first of these keys that opens it. Raises `keyUnknown` if
        there is none, `storeFormat` for another format, `keyMismatch` for another key or a damaged document, and what
        the last fitting key raises."""
        if document is None:
            raise BrokerError(Code.KEY_UNKNOWN, note="there is no keyring")
        parsed = form.members_of(document)
        return form.opened_by(parsed, keks, partial(cls._opened, parsed))

    def reopened(self, document: bytes) -> Keyring | None:
        """Open a later document of this store with the data key of this one; None if it has another."""
        try:
            ring = form.undamaged(lambda: Keyring._opened(form.members_of(document), self._data_key))
        except BrokerError:
            return None
        return ring if ring.store_id == self.store_id else None

    def document(self) -> bytes:
        """Return the keyring file: the contents under the data key, and its wraps. The epoch is readable too, so that a
        writer sees that its seed is no longer the active one without any key."""
        body = json.dumps(self._encode(), separators=(",", ":")).encode()
        document = {
            "format": form.FORMAT,
            "storeId": self.store_id,
            "epoch": self.epoch,
            "wraps": [{"kek": it.kek, "key": it.key, "epoch": it.epoch} for it in self.wraps],
            "sealed": form.b64(seal_box(self._data_key, form.FORMAT, form.contents_context(self.store_id), body)),
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    def wrapped_for(self, keks: Iterable[KeyProvider]) -> Keyring:
        """Return the keyring with a new data key, wrapped once by each of these keys and no other. Raises what a key
        raises that cannot be used, and `keyUnknown` for one that does not open its own wrap, and for two with one id:
        the wrap of one would hide the other's."""
        data_key, context, wraps = os.urandom(32), form.wrap_context(self.store_id, self.epoch), dict[str, Wrap]()
        made = dict[str, KeyProvider]()
        for kek in keks:
            wrap = Wrap(kek.id(), form.b64(kek.wrap(data_key, context)), self.epoch)
            if form.unwrapped(kek, wrap, self.store_id) != data_key:
                raise BrokerError(Code.KEY_UNKNOWN, note=f"{kek!r} does not open its own wrap")
            before = made.setdefault(wrap.kek, kek)
            if before is not kek and not self._with(data_key=data_key, wraps=[wrap]).opens_with(before):
                twins = f"{before!r} and {kek!r} are two keys with one id, {wrap.kek}"
                raise BrokerError(Code.KEY_UNKNOWN, note=f"{twins}: each key needs an id of its own")
            wraps[wrap.kek] = wrap
        return self._with(data_key=data_key, wraps=tuple(wraps.values()))

    def opens_with(self, kek: KeyProvider) -> bool:
        """Tell whether a key opens this keyring now. Asks its service."""
        try:
            wrap = next((each for each in self.wraps if each.kek == kek.id()), None)
            return wrap is not None and form.unwrapped(kek, wrap, self.store_id) == self._data_key
        except BrokerError:
            return False

    @property
    def next_seed(self) -> Seed | None:
        """The seed that all processes can open and none seals with yet."""
        return self.seeds[-1] if self.seeds[-1].state is SeedState.DECRYPT_ONLY else None

    @property
    def old_seeds(self) -> tuple[Seed, ...]:
        """The seeds before the active one that are not destroyed."""
        older = self.seeds[: self.seeds.index(self.active)]
        return tuple(seed for seed in older if seed.state is not SeedState.DESTROYED)

    def with_next_seed(self, clock: Clock | None = None) -> Keyring:
        """Return the keyring with a new seed that opens and does not seal."""
        return self._with(seeds=(*self.seeds, _new_seed(SeedState.DECRYPT_ONLY, clock)))

    def with_next_active(self) -> Keyring:
        """Return the keyring of the next epoch, in which the newest seed seals and the active one only opens."""
        *before, newest = self.seeds
        before = [replace(it, state=SeedState.DECRYPT_ONLY) if it is self.active else it for it in before]
        return self._with(seeds=(*before, replace(newest, state=SeedState.ACTIVE)), epoch=self.epoch + 1)

    def with_resealed(self) -> Keyring:
        """Return the keyring that says of its old seeds that no record is sealed with them any more."""
        old = self.old_seeds
        return self._with(seeds=[replace(it, resealed=True) if it in old else it for it in self.seeds])

    def without_old(self) -> Keyring:
        """Return the keyring in which the old seeds are destroyed."""
        old = self.old_seeds
        gone = [replace(it, key=b"", state=SeedState.DESTROYED) if it in old else it for it in self.seeds]
        return self._with(seeds=gone)

    def _with(self, **changed: Any) -> Keyring:
        members = ("store_id", "seeds", "epoch", "wraps")
        kept = {name: getattr(self, name) for name in members}
        return Keyring(**{"name_key": self._name_key, "data_key": self._data_key, **kept, **changed})

    def tag(self, kind: str, label: str, *parts: str) -> Tag:
        """Return the tag of (kind, label, parts) in this store."""
        return tag_of(self.mac, kind, label, *parts)

    def seal(self, kind: str, name: str, generation: int, body: bytes) -> bytes:
        """Seal a record for this kind, name and generation."""
        return seal(self.active.kid, self.active.key, SealPlace(self.store_id, kind, name), generation, body)

    def unseal(self, kind: str, name: str, record: bytes, *, kinds: Iterable[str] = ()) -> tuple[int, bytes]:
        """Return (generation, body) of a record found here. Raises as `seal.unseal` does."""
        return unseal(self._by_kid, SealPlace(self.store_id, kind, name), record, kinds=kinds)

    def _encode(self) -> dict[str, Any]:
        seeds = [
            {"kid": seed.kid.hex(), "seed": form.b64(seed.key), "state": seed.state.value, "createdAt": seed.created_at}
            | ({"resealed": True} if seed.resealed else {})
            for seed in self.seeds
        ]
        return {"storeId": self.store_id, "nameKey": form.b64(self._name_key), "epoch": self.epoch, "seeds": seeds}

    @classmethod
    def _opened(cls, document: Mapping[str, Any], data_key: bytes) -> Keyring:
        """Parse the opened document. Raises KeyError, TypeError or ValueError for a shape that `document` does not
        write."""
        context, sealed = form.contents_context(document["storeId"]), form.decoded(document["sealed"])
        inside = json.loads(open_box(data_key, form.FORMAT, context, sealed))
        epoch = int(inside["epoch"])
        if document["epoch"] != epoch:
            raise ValueError("the readable epoch is another one")
        name_key, seeds = form.decoded(inside["nameKey"], 32), map(form.seed_of, inside["seeds"])
        return cls(
            store_id=inside["storeId"],
            name_key=name_key,
            seeds=seeds,
            epoch=epoch,
            data_key=data_key,
            wraps=map(form.wrap_of, document["wraps"]),
        )


def _new_seed(state: SeedState, clock: Clock | None) -> Seed:
    created_at = to_iso((clock or SystemClock()).now())
    return Seed(kid=os.urandom(16), key=os.urandom(32), state=state, created_at=created_at)
