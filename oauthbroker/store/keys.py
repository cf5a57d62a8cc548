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
from oauthbroker.store.keyfile import read_keyring, write_keyring
from oauthbroker.store.names import entry_name, labelled_mac, length_prefixed
from oauthbroker.store.seal import SealPlace, seal, unseal

__all__ = ["EnvKek", "FileKek", "KeyProvider", "Keyring", "Seed", "SeedState"]

FORMAT = "oab-keyring-1"
_LABEL = "oab/keyring/1"


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


class Keyring:
    """All keys of a store. Created by `create` or `load`, immutable."""

    __slots__ = ("_active", "_by_kid", "_name_key", "epoch", "seeds", "store_id")

    def __init__(self, store_id: str, name_key: bytes, seeds: Iterable[Seed], epoch: int) -> None:
        self.store_id = store_id
        self.epoch = epoch
        self.seeds = tuple(seeds)
        self._name_key = name_key
        self._by_kid = {seed.kid: seed.key for seed in self.seeds if seed.state is not SeedState.DESTROYED}
        (self._active,) = (seed for seed in self.seeds if seed.state is SeedState.ACTIVE)

    def __repr__(self) -> str:
        return f"Keyring(store {self.store_id[:8]}, epoch {self.epoch}, {len(self.seeds)} seeds)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a keyring is neither pickled nor copied")

    @classmethod
    def create(cls, path: Path, kek: KeyProvider, *, clock: Clock | None = None, fs: Fs | None = None) -> Keyring:
        """Create the keyring of a new store at `path` (`<root>/data/keyring`), with the folders above it.

        Raises `keyExists` if there is a keyring, or records that a new keyring could not open.
        """
        seed = Seed(os.urandom(16), os.urandom(32), SeedState.ACTIVE, to_iso((clock or SystemClock()).now()))
        ring = cls(os.urandom(16).hex(), os.urandom(32), [seed], epoch=1)
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

    def name(self, kind: str, *parts: str) -> str:
        """Return the entry name of (kind, parts) in this store: 64 hex digits."""
        return entry_name(self._name_key, kind, *parts)

    def mac(self, label: str, *parts: str) -> bytes:
        """Return 32 bytes that only this store's brokers can compute; one independent key per label."""
        return labelled_mac(self._name_key, label, *parts)

    def seal(self, kind: str, name: str, generation: int, body: bytes) -> bytes:
        """Seal a record for this kind, name and generation."""
        return seal(self._active.kid, self._active.key, SealPlace(self.store_id, kind, name), generation, body)

    def unseal(self, kind: str, name: str, record: bytes, *, kinds: Iterable[str] = ()) -> tuple[int, bytes]:
        """Return (generation, body) of a record found here. Raises as `seal.unseal` does."""
        return unseal(self._by_kid, SealPlace(self.store_id, kind, name), record, kinds=kinds)

    def sealed_for(self, keks: Iterable[KeyProvider]) -> bytes:
        """Return the keyring file: a fresh data key around the contents, wrapped once by each key in `keks`."""
        data_key, context = os.urandom(32), _context(self.store_id)
        body = json.dumps(self._encode(), separators=(",", ":")).encode()
        document = {
            "format": FORMAT,
            "storeId": self.store_id,
            "wraps": [{"kek": kek.id(), "key": _b64(kek.wrap(data_key, context))} for kek in keks],
            "sealed": _b64(seal_box(data_key, _LABEL, context, body)),
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    def _encode(self) -> dict[str, Any]:
        seeds = [
            {"kid": seed.kid.hex(), "seed": _b64(seed.key), "state": seed.state.value, "createdAt": seed.created_at}
            for seed in self.seeds
        ]
        return {"storeId": self.store_id, "nameKey": _b64(self._name_key), "epoch": self.epoch, "seeds": seeds}

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
        if document["format"] != FORMAT:
            raise ValueError("unknown format")
        wraps = {wrap["kek"]: wrap["key"] for wrap in document["wraps"]}
        if kek.id() not in wraps:
            raise BrokerError(Code.KEY_MISMATCH, note="the keyring is wrapped for another key")
        context = _context(document["storeId"])
        data_key = kek.unwrap(_bytes(wraps[kek.id()]), context)
        inside = json.loads(open_box(data_key, _LABEL, context, _bytes(document["sealed"])))
        return cls(inside["storeId"], _bytes(inside["nameKey"], 32), map(_seed, inside["seeds"]), int(inside["epoch"]))


def _seed(found: Mapping[str, str]) -> Seed:
    state = SeedState(found["state"])
    from_iso(found["createdAt"])
    key = _bytes(found["seed"], 0 if state is SeedState.DESTROYED else 32)
    kid = bytes.fromhex(found["kid"])
    if len(kid) != 16:
        raise ValueError("a kid has 16 bytes")
    return Seed(kid, key, state, found["createdAt"])


def _context(store_id: str) -> bytes:
    return length_prefixed(_LABEL.encode(), store_id.encode())


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
