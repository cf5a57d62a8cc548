"""The keyring: the store's id, the key for entry names, and the seeds that seal records. Format: store/README.md."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from oauthbroker.core.clock import Clock, SystemClock, from_iso, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.entry_names import entry_names, labelled_mac, length_prefixed, tag_of
from oauthbroker.store.file.system_calls import Fs, at_border
from oauthbroker.store.key_encryption_keys import EnvKek, FileKek, KeyProvider
from oauthbroker.store.key_wrapping import open_box, seal_box
from oauthbroker.store.keyring_file import read_keyring, write_keyring
from oauthbroker.store.port import Tag
from oauthbroker.store.seal import SealPlace, seal, unseal

__all__ = ["EnvKek", "FileKek", "KeyProvider", "Keyring", "Seed", "SeedState", "Upgrades", "Wrap"]

T = TypeVar("T")

FIRST_FORMAT, FORMAT = "oab-keyring-1", "oab-keyring-2"
_LABELS = {FIRST_FORMAT: "oab/keyring/1", FORMAT: "oab/keyring/2"}


class SeedState(StrEnum):
    """The state of a seed."""

    ACTIVE = "active"
    DECRYPT_ONLY = "decryptOnly"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One seed. A destroyed seed keeps its id, to report its records as lost, and has no key.
    `resealed`: no record is sealed with it any more."""

    kid: bytes
    key: bytes
    state: SeedState
    created_at: str
    resealed: bool = False

    def __repr__(self) -> str:
        return f"Seed({self.kid.hex()[:8]}, {self.state}, {self.created_at})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a seed is neither pickled nor copied")


@dataclass(frozen=True, slots=True)
class Upgrades:
    """The names of a store's upgrade steps: those that are done, and those under way, in their order."""

    done: tuple[str, ...] = ()
    under_way: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.done, *self.under_way))


@dataclass(frozen=True, slots=True)
class Wrap:
    """The data key of a keyring, wrapped by one KEK. `epoch`: the keyring's when it was wrapped; None before epochs
    were bound to wraps."""

    kek: str
    key: str
    epoch: int | None = None


class Keyring:
    """All keys of a store. Created by `create` or `opened`, immutable. `upgrades` is None in a keyring of format 1.

    `seeds` are in their order of age. Those before the active one open records that are not sealed anew yet; one
    after it opens records of the next epoch. `epoch` counts which seed is active.
    """

    __slots__ = (
        "_active", "_by_kid", "_data_key", "_name_key", "_name_of", "epoch", "seeds", "store_id", "upgrades", "wraps",
    )  # fmt: skip

    def __init__(
        self,
        *,
        store_id: str,
        name_key: bytes,
        seeds: Iterable[Seed],
        epoch: int,
        upgrades: Upgrades | None = None,
        data_key: bytes = b"",
        wraps: Iterable[Wrap] = (),
    ) -> None:
        self.store_id = store_id
        self.epoch = epoch
        self.upgrades = upgrades
        self.seeds = tuple(seeds)
        self.wraps = tuple(wraps)
        self._data_key = data_key
        self._name_key, self._name_of = name_key, entry_names(name_key)
        self._by_kid = {seed.kid: seed.key for seed in self.seeds if seed.state is not SeedState.DESTROYED}
        (self._active,) = (seed for seed in self.seeds if seed.state is SeedState.ACTIVE)

    def __repr__(self) -> str:
        return f"Keyring(store {self.store_id[:8]}, epoch {self.epoch}, {len(self.seeds)} seeds)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a keyring is neither pickled nor copied")

    @classmethod
    def create(
        cls,
        path: Path,
        kek: KeyProvider,
        *,
        clock: Clock | None = None,
        fs: Fs | None = None,
        upgrades: Iterable[str] = (),
    ) -> Keyring:
        """Create the keyring of a new store at `path` (`<root>/data/keyring`), with the folders above it. `upgrades`
        are all steps: a new store needs none.

        Raises `keyExists` if there is a keyring, or records that a new keyring could not open.
        """
        ring = cls.fresh(clock=clock, upgrades=upgrades).wrapped_for([kek])
        if not at_border(lambda: write_keyring(fs or Fs(), path, ring.document())):
            raise BrokerError(Code.KEY_EXISTS)
        return ring

    @classmethod
    def fresh(cls, *, clock: Clock | None = None, upgrades: Iterable[str] = ()) -> Keyring:
        """Make the keys of a new store. They are kept nowhere yet: `wrapped_for` makes a keyring that can be."""
        return cls(
            store_id=os.urandom(16).hex(),
            name_key=os.urandom(32),
            seeds=[_new_seed(SeedState.ACTIVE, clock)],
            epoch=1,
            upgrades=Upgrades(tuple(upgrades)),
        )

    @classmethod
    def load(cls, path: Path, kek: KeyProvider, *, fs: Fs | None = None) -> Keyring:
        """Open a keyring and change nothing.

        Raises `keyUnknown` if there is none, `keyMismatch` for another key or a damaged keyring, `storePermissions` if
        others can access it.
        """
        return cls.opened(at_border(lambda: read_keyring(fs or Fs(), path)), kek)

    @classmethod
    def opened(cls, document: bytes | None, *keks: KeyProvider) -> Keyring:
        """Open a keyring's document, None for none, with the first of these keys that opens it. Raises `keyUnknown` and
        `keyMismatch` as `load` does, and what the last fitting key raises."""
        if document is None:
            raise BrokerError(Code.KEY_UNKNOWN, note="there is no keyring")
        parsed = _json(document)
        return _undamaged(lambda: cls._opened(parsed, _data_key(parsed, keks)))

    def reopened(self, document: bytes) -> Keyring | None:
        """Open a later document of this store with the data key of this one; None if it has another."""
        parsed = _json(document)
        try:
            ring = _undamaged(lambda: Keyring._opened(parsed, self._data_key))
        except BrokerError:
            return None
        return ring if ring.store_id == self.store_id else None

    def document(self) -> bytes:
        """Return the keyring file: the contents under the data key, and its wraps. The epoch is readable too, so that a
        writer sees that its seed is no longer the active one without any key."""
        label = _LABELS[FORMAT]
        body = json.dumps(self._encode(), separators=(",", ":")).encode()
        document = {
            "format": FORMAT,
            "storeId": self.store_id,
            "epoch": self.epoch,
            "wraps": [{"kek": it.kek, "key": it.key} | ({"epoch": it.epoch} if it.epoch else {}) for it in self.wraps],
            "sealed": _b64(seal_box(self._data_key, label, _context(label, self.store_id), body)),
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    def wrapped_for(self, keks: Iterable[KeyProvider]) -> Keyring:
        """Return the keyring with a new data key, wrapped once by each of these keys and no other. Raises what a key
        raises that cannot be used."""
        data_key, context = os.urandom(32), _wrap_context(self.store_id, self.epoch)
        wraps = [Wrap(kek.id(), _b64(kek.wrap(data_key, context)), self.epoch) for kek in keks]
        return self._with(data_key=data_key, wraps=wraps)

    def with_upgrades(self, upgrades: Upgrades) -> Keyring:
        return self._with(upgrades=upgrades)

    @property
    def active(self) -> Seed:
        return self._active

    @property
    def next_seed(self) -> Seed | None:
        """The seed that all processes can open and none seals with yet."""
        return self.seeds[-1] if self.seeds[-1].state is SeedState.DECRYPT_ONLY else None

    @property
    def old_seeds(self) -> tuple[Seed, ...]:
        """The seeds before the active one that are not destroyed."""
        older = self.seeds[: self.seeds.index(self._active)]
        return tuple(seed for seed in older if seed.state is not SeedState.DESTROYED)

    def with_next_seed(self, clock: Clock | None = None) -> Keyring:
        """Return the keyring with a new seed that opens and does not seal."""
        return self._with(seeds=(*self.seeds, _new_seed(SeedState.DECRYPT_ONLY, clock)))

    def with_next_active(self) -> Keyring:
        """Return the keyring of the next epoch, in which the newest seed seals and the active one only opens."""
        *before, newest = self.seeds
        before = [replace(it, state=SeedState.DECRYPT_ONLY) if it is self._active else it for it in before]
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
        members = ("store_id", "seeds", "epoch", "upgrades", "wraps")
        kept = {name: getattr(self, name) for name in members}
        return Keyring(**{"name_key": self._name_key, "data_key": self._data_key, **kept, **changed})

    def name(self, kind: str, *parts: str) -> str:
        """Return the entry name of (kind, parts) in this store: 64 hex digits."""
        return self._name_of(kind, *parts)

    def mac(self, label: str, *parts: str) -> bytes:
        """Return 32 bytes that only this store's brokers can compute; one independent key per label."""
        return labelled_mac(self._name_key, label, *parts)

    def tag(self, kind: str, label: str, *parts: str) -> Tag:
        """Return the tag of (kind, label, parts) in this store."""
        return tag_of(self._name_key, kind, label, *parts)

    def seal(self, kind: str, name: str, generation: int, body: bytes) -> bytes:
        """Seal a record for this kind, name and generation."""
        return seal(self._active.kid, self._active.key, SealPlace(self.store_id, kind, name), generation, body)

    def unseal(self, kind: str, name: str, record: bytes, *, kinds: Iterable[str] = ()) -> tuple[int, bytes]:
        """Return (generation, body) of a record found here. Raises as `seal.unseal` does."""
        return unseal(self._by_kid, SealPlace(self.store_id, kind, name), record, kinds=kinds)

    def _encode(self) -> dict[str, Any]:
        seeds = [
            {"kid": seed.kid.hex(), "seed": _b64(seed.key), "state": seed.state.value, "createdAt": seed.created_at}
            | ({"resealed": True} if seed.resealed else {})
            for seed in self.seeds
        ]
        contents = {"storeId": self.store_id, "nameKey": _b64(self._name_key), "epoch": self.epoch, "seeds": seeds}
        if self.upgrades is None:
            return contents
        return {**contents, "upgraded": list(self.upgrades.done), "upgrading": list(self.upgrades.under_way)}

    @classmethod
    def _opened(cls, document: Mapping[str, Any], data_key: bytes) -> Keyring:
        """Parse the opened document. Raises KeyError, TypeError or ValueError for a shape that `document` does not
        write."""
        label = _LABELS.get(document["format"])
        if label is None:
            raise ValueError("unknown format")
        inside = json.loads(open_box(data_key, label, _context(label, document["storeId"]), _bytes(document["sealed"])))
        epoch = int(inside["epoch"])
        if document.get("epoch", epoch) != epoch:
            raise ValueError("the readable epoch is another one")
        upgrades = None if document["format"] == FIRST_FORMAT else _upgrades(inside)
        name_key, seeds = _bytes(inside["nameKey"], 32), map(_seed, inside["seeds"])
        return cls(
            store_id=inside["storeId"],
            name_key=name_key,
            seeds=seeds,
            epoch=epoch,
            upgrades=upgrades,
            data_key=data_key,
            wraps=map(_wrap, document["wraps"]),
        )


def readable_epoch(document: bytes) -> int | None:
    """Return the epoch that a keyring's document shows; None if it shows none, as those of before epochs did."""
    epoch = _json(document).get("epoch")
    return epoch if isinstance(epoch, int) else None


def _data_key(document: Mapping[str, Any], keks: Iterable[KeyProvider]) -> bytes:
    """Unwrap the data key with the first key that can. Raises what the last one of those that have a wrap raises."""
    failed = BrokerError(Code.KEY_MISMATCH, note="the keyring is wrapped for another key")
    wraps = _undamaged(lambda: {wrap.kek: wrap for wrap in map(_wrap, document["wraps"])})
    for kek in keks:
        if kek.id() in wraps:
            try:
                return _unwrapped(kek, wraps[kek.id()], document)
            except BrokerError as error:
                failed = error
    raise failed.with_traceback(None)


def _unwrapped(kek: KeyProvider, wrap: Wrap, document: Mapping[str, Any]) -> bytes:
    wrapped, context = _undamaged(lambda: (_bytes(wrap.key), _wrap_context(document["storeId"], wrap.epoch)))
    return _undamaged(lambda: kek.unwrap(wrapped, context))


def _undamaged(read: Callable[[], T]) -> T:
    """Return what `read` returns. Raises `keyMismatch` for a document that is damaged."""
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    except BrokerError as exc:
        if exc.code is not Code.RECORD_CORRUPT:
            raise
    raise _damaged()


def _wrap(found: Mapping[str, Any]) -> Wrap:
    wrap = Wrap(found["kek"], found["key"], found.get("epoch"))
    if not isinstance(wrap.kek, str) or not isinstance(wrap.key, str) or not isinstance(wrap.epoch, int | None):
        raise TypeError("not a wrap")
    return wrap


def _upgrades(inside: Mapping[str, Any]) -> Upgrades:
    done, under_way = tuple(inside["upgraded"]), tuple(inside["upgrading"])
    if not all(isinstance(name, str) for name in (*done, *under_way)):
        raise TypeError("the name of an upgrade step is a text")
    return Upgrades(done, under_way)


def _seed(found: Mapping[str, Any]) -> Seed:
    state = SeedState(found["state"])
    from_iso(found["createdAt"])
    key = _bytes(found["seed"], 0 if state is SeedState.DESTROYED else 32)
    kid = bytes.fromhex(found["kid"])
    if len(kid) != 16:
        raise ValueError("a kid has 16 bytes")
    resealed = bool(found.get("resealed", False))
    return Seed(kid=kid, key=key, state=state, created_at=found["createdAt"], resealed=resealed)


def _new_seed(state: SeedState, clock: Clock | None) -> Seed:
    created_at = to_iso((clock or SystemClock()).now())
    return Seed(kid=os.urandom(16), key=os.urandom(32), state=state, created_at=created_at)


def _wrap_context(store_id: str, epoch: int | None) -> bytes:
    """Return the context of a wrap: its purpose, the store, and the epoch in which it was made. Wraps of before epochs
    have another label and none. It is the same in every format, so an upgrade keeps the wraps of all keys."""
    if epoch is None:
        return _context(_LABELS[FIRST_FORMAT], store_id)
    return length_prefixed(b"oab/keyring/wrap", store_id.encode(), str(epoch).encode())


def _context(label: str, store_id: str) -> bytes:
    return length_prefixed(label.encode(), store_id.encode())


def _json(text: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _damaged()
    return document


def _damaged() -> BrokerError:
    return BrokerError(Code.KEY_MISMATCH, note="the keyring is damaged: restore it from a backup")


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _bytes(text: str, length: int | None = None) -> bytes:
    data = base64.b64decode(text, altchars=b"-_", validate=True)
    if length is not None and len(data) != length:
        raise ValueError("not of the expected length")
    return data
