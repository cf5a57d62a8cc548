"""The keyring: the store's id, the key for entry names, and the seeds that seal records. Format: store/README.md."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from oauthbroker.core.clock import Clock, SystemClock, from_iso, to_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.box import open_box, seal_box
from oauthbroker.store.file.fs import Fs, at_border
from oauthbroker.store.kek import EnvKek, FileKek, KeyProvider
from oauthbroker.store.keyfile import read_keyring, replace_keyring, write_keyring
from oauthbroker.store.names import entry_name, labelled_mac, length_prefixed, tag_of
from oauthbroker.store.port import Tag
from oauthbroker.store.seal import SealPlace, seal, unseal

__all__ = ["EnvKek", "FileKek", "KeyProvider", "Keyring", "Seed", "SeedState", "Upgrades"]

FIRST_FORMAT, FORMAT = "oab-keyring-1", "oab-keyring-2"
_LABELS = {FIRST_FORMAT: "oab/keyring/1", FORMAT: "oab/keyring/2"}


class SeedState(StrEnum):
    """The state of a seed."""

    ACTIVE = "active"
    DECRYPT_ONLY = "decryptOnly"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class Seed:
    """One seed. A destroyed seed keeps its id, to report its records as lost, and has no key."""

    kid: bytes
    key: bytes
    state: SeedState
    created_at: str

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


class Keyring:
    """All keys of a store. Created by `create` or `load`, immutable. `upgrades` is None in a keyring of format 1."""

    __slots__ = ("_active", "_by_kid", "_name_key", "epoch", "seeds", "store_id", "upgrades")

    def __init__(
        self, store_id: str, name_key: bytes, seeds: Iterable[Seed], epoch: int, upgrades: Upgrades | None = None
    ) -> None:
        self.store_id = store_id
        self.epoch = epoch
        self.upgrades = upgrades
        self.seeds = tuple(seeds)
        self._name_key = name_key
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
        seed = Seed(os.urandom(16), os.urandom(32), SeedState.ACTIVE, to_iso((clock or SystemClock()).now()))
        ring = cls(os.urandom(16).hex(), os.urandom(32), [seed], epoch=1, upgrades=Upgrades(tuple(upgrades)))
        text = ring.sealed_for([kek])
        if not at_border(lambda: write_keyring(fs or Fs(), path, text)):
            raise BrokerError(Code.KEY_EXISTS)
        return ring

    @classmethod
    def load(cls, path: Path, kek: KeyProvider, *, fs: Fs | None = None) -> Keyring:
        """Open a keyring and change nothing.

        Raises `keyUnknown` if there is none, `keyMismatch` for another key or a damaged keyring, `storePermissions` if
        others can access it.
        """
        text = at_border(lambda: read_keyring(fs or Fs(), path))
        if text is None:
            raise BrokerError(Code.KEY_UNKNOWN, note="there is no keyring")
        return cls._decode(_json(text), kek)

    @classmethod
    def rewrite(cls, path: Path, kek: KeyProvider, upgrades: Upgrades, *, fs: Fs | None = None) -> Keyring:
        """Replace a keyring by one of the current format that names these upgrades, durably, and return it. Its keys
        and wraps stay. Raises as `load` does."""
        ring = cls.load(path, kek, fs=fs).with_upgrades(upgrades)
        document = _json(at_border(lambda: read_keyring(fs or Fs(), path)) or b"")
        text = ring.sealed_under(document["wraps"], _data_key(document, kek))
        at_border(lambda: replace_keyring(fs or Fs(), path, text))
        return ring

    def with_upgrades(self, upgrades: Upgrades) -> Keyring:
        return Keyring(self.store_id, self._name_key, self.seeds, self.epoch, upgrades)

    def name(self, kind: str, *parts: str) -> str:
        """Return the entry name of (kind, parts) in this store: 64 hex digits."""
        return entry_name(self._name_key, kind, *parts)

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

    def sealed_for(self, keks: Iterable[KeyProvider]) -> bytes:
        """Return the keyring file: a fresh data key around the contents, wrapped once by each key in `keks`."""
        data_key, context = os.urandom(32), _wrap_context(self.store_id)
        return self.sealed_under(
            [{"kek": kek.id(), "key": _b64(kek.wrap(data_key, context))} for kek in keks], data_key
        )

    def sealed_under(self, wraps: Iterable[Mapping[str, str]], data_key: bytes) -> bytes:
        """Return the keyring file: the contents under a data key that these wraps hold."""
        label = _LABELS[FORMAT]
        body = json.dumps(self._encode(), separators=(",", ":")).encode()
        document = {
            "format": FORMAT,
            "storeId": self.store_id,
            "wraps": list(wraps),
            "sealed": _b64(seal_box(data_key, label, _context(label, self.store_id), body)),
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    def _encode(self) -> dict[str, Any]:
        seeds = [
            {"kid": seed.kid.hex(), "seed": _b64(seed.key), "state": seed.state.value, "createdAt": seed.created_at}
            for seed in self.seeds
        ]
        contents = {"storeId": self.store_id, "nameKey": _b64(self._name_key), "epoch": self.epoch, "seeds": seeds}
        if self.upgrades is None:
            return contents
        return {**contents, "upgraded": list(self.upgrades.done), "upgrading": list(self.upgrades.under_way)}

    @classmethod
    def _decode(cls, document: Mapping[str, Any], kek: KeyProvider) -> Keyring:
        ring: Keyring | None = None
        try:
            ring = cls._opened(document, kek)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
        except BrokerError as exc:
            if exc.code is not Code.RECORD_CORRUPT:
                raise
        if ring is None:
            raise _damaged()
        return ring

    @classmethod
    def _opened(cls, document: Mapping[str, Any], kek: KeyProvider) -> Keyring:
        """Parse the opened document. Raises KeyError, TypeError or ValueError for a shape that `sealed_for` does not
        write."""
        label = _LABELS.get(document["format"])
        if label is None:
            raise ValueError("unknown format")
        data_key, context = _data_key(document, kek), _context(label, document["storeId"])
        inside = json.loads(open_box(data_key, label, context, _bytes(document["sealed"])))
        upgrades = None if document["format"] == FIRST_FORMAT else _upgrades(inside)
        name_key, seeds = _bytes(inside["nameKey"], 32), map(_seed, inside["seeds"])
        return cls(inside["storeId"], name_key, seeds, int(inside["epoch"]), upgrades)


def _data_key(document: Mapping[str, Any], kek: KeyProvider) -> bytes:
    wraps = {wrap["kek"]: wrap["key"] for wrap in document["wraps"]}
    if kek.id() not in wraps:
        raise BrokerError(Code.KEY_MISMATCH, note="the keyring is wrapped for another key")
    return kek.unwrap(_bytes(wraps[kek.id()]), _wrap_context(document["storeId"]))


def _upgrades(inside: Mapping[str, Any]) -> Upgrades:
    done, under_way = tuple(inside["upgraded"]), tuple(inside["upgrading"])
    if not all(isinstance(name, str) for name in (*done, *under_way)):
        raise TypeError("the name of an upgrade step is a text")
    return Upgrades(done, under_way)


def _seed(found: Mapping[str, str]) -> Seed:
    state = SeedState(found["state"])
    from_iso(found["createdAt"])
    key = _bytes(found["seed"], 0 if state is SeedState.DESTROYED else 32)
    kid = bytes.fromhex(found["kid"])
    if len(kid) != 16:
        raise ValueError("a kid has 16 bytes")
    return Seed(kid, key, state, found["createdAt"])


def _wrap_context(store_id: str) -> bytes:
    """Return the context of a wrap. It is the same in every format, so an upgrade keeps the wraps of all keys."""
    return _context(_LABELS[FIRST_FORMAT], store_id)


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
