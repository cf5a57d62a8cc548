"""The document of a keyring: its parts, and how its text is read. Format: store/README.md."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from oauthbroker.core.clock import from_iso
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.entry_names import length_prefixed
from oauthbroker.store.keys.key_encryption_keys import KeyProvider

T = TypeVar("T")

FIRST_FORMAT, FORMAT = "oab-keyring-1", "oab-keyring-2"
LABELS = {FIRST_FORMAT: "oab/keyring/1", FORMAT: "oab/keyring/2"}


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


def readable_epoch(document: bytes) -> int | None:
    """Return the epoch that a keyring's document shows; None if it shows none, as those of before epochs did."""
    epoch = members_of(document).get("epoch")
    return epoch if isinstance(epoch, int) else None


def store_id_of(document: bytes) -> str:
    """Return the id of a keyring's store. Raises `keyMismatch` for a document that is no keyring."""
    found = members_of(document).get("storeId")
    if not isinstance(found, str):
        raise damaged()
    return found


def data_key_of(document: Mapping[str, Any], keks: Iterable[KeyProvider]) -> bytes:
    """Unwrap the data key with the first key that can. Raises what the last one of those that have a wrap raises."""
    failed = BrokerError(Code.KEY_MISMATCH, note="the keyring is wrapped for another key")
    wraps = undamaged(lambda: {wrap.kek: wrap for wrap in map(wrap_of, document["wraps"])})
    for kek in keks:
        if kek.id() in wraps:
            try:
                return _unwrapped(kek, wraps[kek.id()], document)
            except BrokerError as error:
                failed = error
    raise failed.with_traceback(None)


def _unwrapped(kek: KeyProvider, wrap: Wrap, document: Mapping[str, Any]) -> bytes:
    wrapped, context = undamaged(lambda: (decoded(wrap.key), wrap_context(document["storeId"], wrap.epoch)))
    return undamaged(lambda: kek.unwrap(wrapped, context))


def undamaged(read: Callable[[], T]) -> T:
    """Return what `read` returns. Raises `keyMismatch` for a document that is damaged."""
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    except BrokerError as exc:
        if exc.code is not Code.RECORD_CORRUPT:
            raise
    raise damaged()


def wrap_of(found: Mapping[str, Any]) -> Wrap:
    wrap = Wrap(found["kek"], found["key"], found.get("epoch"))
    if not isinstance(wrap.kek, str) or not isinstance(wrap.key, str) or not isinstance(wrap.epoch, int | None):
        raise TypeError("not a wrap")
    return wrap


def upgrades_of(inside: Mapping[str, Any]) -> Upgrades:
    done, under_way = tuple(inside["upgraded"]), tuple(inside["upgrading"])
    if not all(isinstance(name, str) for name in (*done, *under_way)):
        raise TypeError("the name of an upgrade step is a text")
    return Upgrades(done, under_way)


def seed_of(found: Mapping[str, Any]) -> Seed:
    state = SeedState(found["state"])
    from_iso(found["createdAt"])
    key = decoded(found["seed"], 0 if state is SeedState.DESTROYED else 32)
    kid = bytes.fromhex(found["kid"])
    if len(kid) != 16:
        raise ValueError("a kid has 16 bytes")
    resealed = bool(found.get("resealed", False))
    return Seed(kid=kid, key=key, state=state, created_at=found["createdAt"], resealed=resealed)


def wrap_context(store_id: str, epoch: int | None) -> bytes:
    """Return the context of a wrap: its purpose, the store, and the epoch in which it was made. Wraps of before epochs
    have another label and none. It is the same in every format, so an upgrade keeps the wraps of all keys."""
    if epoch is None:
        return context_of(LABELS[FIRST_FORMAT], store_id)
    return length_prefixed(b"oab/keyring/wrap", store_id.encode(), str(epoch).encode())


def context_of(label: str, store_id: str) -> bytes:
    return length_prefixed(label.encode(), store_id.encode())


def members_of(text: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise damaged()
    return document


def damaged() -> BrokerError:
    return BrokerError(Code.KEY_MISMATCH, note="the keyring is damaged: restore it from a backup")


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def decoded(text: str, length: int | None = None) -> bytes:
    data = base64.b64decode(text, altchars=b"-_", validate=True)
    if length is not None and len(data) != length:
        raise ValueError("not of the expected length")
    return data
