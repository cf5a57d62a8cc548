"""The document of a keyring: its parts, and how its text is read. Format: docs/store-format.md."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Final, NoReturn, TypeVar

from oauthbroker.core.clock import from_iso
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import json_object
from oauthbroker.store.format.seal import length_prefixed
from oauthbroker.store.keys.key_encryption_keys import KeyProvider

T = TypeVar("T")

FORMAT: Final = "oauthbroker-store-1"  # also the label of the box, so that no other format's contents open
_OTHER: Final = re.compile(r"(oauthbroker-store|oab-keyring)-([0-9]{1,9})")  # the second word: development versions


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
class Wrap:
    """The data key of a keyring, wrapped by one KEK. `epoch`: the keyring's when it was wrapped."""

    kek: str
    key: str
    epoch: int


@lru_cache(maxsize=4)  # of the documents of the stores that are open: each write asks
def readable_epoch(document: bytes) -> int:
    """Return the epoch that a keyring's document shows. Raises as `members_of` does."""
    epoch = members_of(document).get("epoch")
    if not isinstance(epoch, int):
        raise damaged()
    return epoch


def store_id_of(document: bytes) -> str:
    """Return the id of a keyring's store. Raises as `members_of` does."""
    found = members_of(document).get("storeId")
    if not isinstance(found, str):
        raise damaged()
    return found


def opened_by(document: Mapping[str, Any], keks: Iterable[KeyProvider], opens: Callable[[bytes], T]) -> T:
    """Return what `opens` makes of the data key, of the first key that opens the keyring. Raises what the last one of
    those that have a wrap raises."""
    failed = BrokerError(Code.KEY_MISMATCH, note="the keyring is wrapped for another key")
    store_id, wraps = undamaged(lambda: (document["storeId"], {it.kek: it for it in map(wrap_of, document["wraps"])}))
    for kek in keks:
        try:
            if (wrap := wraps.get(kek.id())) is not None:
                data_key = unwrapped(kek, wrap, store_id)
                return undamaged(partial(_opened, opens, data_key, kek))
        except BrokerError as error:
            failed = error
    raise failed.with_traceback(None)


def _opened(opens: Callable[[bytes], T], data_key: bytes, kek: KeyProvider) -> T:
    try:
        return opens(data_key)
    except BrokerError as error:
        if error.code is Code.KEY_MISMATCH:  # the key of a provider that is at fault, or damage of the keyring
            error.note = f"what {kek!r} unwraps is not the key of this keyring"
        raise


def unwrapped(kek: KeyProvider, wrap: Wrap, store_id: str) -> bytes:
    """Unwrap the data key. Raises what the key raises, and `keyMismatch` for a wrap that is damaged."""
    wrapped, context = undamaged(lambda: (decoded(wrap.key), wrap_context(store_id, wrap.epoch)))
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
    wrap = Wrap(found["kek"], found["key"], found["epoch"])
    if not isinstance(wrap.kek, str) or not isinstance(wrap.key, str) or not isinstance(wrap.epoch, int):
        raise TypeError("not a wrap")
    return wrap


def seed_of(found: Mapping[str, Any]) -> Seed:
    state = SeedState(found["state"])
    from_iso(found["createdAt"])
    key = decoded(found["seed"], 0 if state is SeedState.DESTROYED else 32)
    kid = bytes.fromhex(found["kid"])
    if len(kid) != 16:
        raise ValueError("a kid has 16 bytes")
    resealed = bool(found.get("resealed", False))
    return Seed(kid=kid, key=key, state=state, created_at=found["createdAt"], resealed=resealed)


def wrap_context(store_id: str, epoch: int) -> bytes:
    """Return the context of a wrap: its purpose, the store, and the epoch in which it was made."""
    return length_prefixed(b"oab/keyring/wrap", store_id.encode(), str(epoch).encode())


def contents_context(store_id: str) -> bytes:
    return length_prefixed(FORMAT.encode(), store_id.encode())


def members_of(text: bytes) -> Mapping[str, Any]:
    """Return the members of a keyring's document. Raises `storeFormat` for a store of another format, and `keyMismatch`
    for a document that is no keyring."""
    document = json_object(text)
    if document is None:
        raise damaged()
    found = document.get("format")
    if found != FORMAT:
        raise _of_another_format(found) if isinstance(found, str) else damaged()
    return document


def _of_another_format(found: str) -> BrokerError:
    other = _OTHER.fullmatch(found)
    if other is None:
        return damaged()
    return made_by_development(f"format {other[2]}") if other[1] == "oab-keyring" else made_by_newer(other[2])


def made_by_development(which: str) -> BrokerError:
    """Return the refusal of a store that no release has made."""
    hint = "write another place into spec.store, run `oauthbroker init`, and let the users connect again"
    return BrokerError(Code.STORE_FORMAT, note=f"a development version made the store, {which}: {hint}")


def made_by_newer(number: str) -> BrokerError:
    return BrokerError(Code.STORE_FORMAT, note=f"a newer version made the store, format {number}: start that version")


def keyring_missing(place: str) -> BrokerError:
    """Return the refusal of a store whose keyring is lost. A new one opens none of its records."""
    missing = BrokerError(Code.KEY_UNKNOWN, note=place)
    missing.hint = "keyringAway"
    return missing


def damaged() -> BrokerError:
    return BrokerError(Code.KEY_MISMATCH, note="the keyring is damaged: restore it from a backup")


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def decoded(text: str, length: int | None = None) -> bytes:
    data = base64.b64decode(text, altchars=b"-_", validate=True)
    if length is not None and len(data) != length:
        raise ValueError("not of the expected length")
    return data
