"""What things are called on disk: keyed hashes over length-prefixed parts, which tell nobody what they name."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection

from oauthbroker.store.port import Key

_NAME = re.compile(r"[0-9a-f]{64}")
_KIND = re.compile(r"[a-z][a-zA-Z]{0,31}")


def length_prefixed(*parts: bytes) -> bytes:
    """Each part behind its length (4 bytes, big-endian): two different lists never become the same bytes."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def text_bytes(*parts: str) -> bytes:
    """Texts, length-prefixed. Lone surrogates are encoded too, so that no text is refused and none collides."""
    return length_prefixed(*(part.encode("utf-8", "surrogatepass") for part in parts))


def entry_name(name_key: bytes, kind: str, *parts: str) -> str:
    """The 64 hex digits under which (kind, parts) is filed."""
    return hmac.digest(name_key, text_bytes(kind, *parts), "sha256").hex()


def labelled_mac(name_key: bytes, label: str, *parts: str) -> bytes:
    """32 bytes that prove (label, parts) under a key of its own per label, so that no use can stand in for another."""
    mac_key = hmac.digest(name_key, b"oab/mac/1/" + label.encode(), "sha256")
    return hmac.digest(mac_key, text_bytes(*parts), "sha256")


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def check_kinds(*kinds: str) -> None:
    """Kinds become folder and file names. Raises ValueError for one that would not be a plain word."""
    for kind in kinds:
        if not _KIND.fullmatch(kind) or kind in {"locks", "corrupt", "keyring"}:
            raise ValueError("a kind is a word of up to 32 letters and none of locks, corrupt, keyring")


def check_key(key: Key, kinds: Collection[str]) -> Key:
    """Raises ValueError for a key that this store did not make: another kind, or a name that is not 64 hex digits."""
    if key.kind not in kinds:
        raise ValueError(f"this store keeps no {key.kind!r}")
    if not _NAME.fullmatch(key.name):
        raise ValueError("a key's name is 64 hex digits")
    return key


def fingerprint(data: bytes) -> str:
    """Sixteen hex digits that tell damaged copies of one record apart."""
    return hashlib.sha256(data).hexdigest()[:16]
