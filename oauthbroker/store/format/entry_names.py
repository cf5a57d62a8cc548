"""Names on disk: keyed hashes over length-prefixed parts. They reveal nothing without the key."""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from oauthbroker.store.format.port import Key, Tag

_LENGTH = struct.Struct(">I").pack
is_name: Callable[[str], object] = re.compile(r"[0-9a-f]{64}").fullmatch  # a match for the name of an entry, or None
is_place: Callable[[str], object] = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{64}").fullmatch  # of an entry with a tag
_VALUE = re.compile(r"[0-9a-f]{32}")
_KIND = re.compile(r"[a-z][a-zA-Z]{0,31}")
_NAMES_KEPT = 4096
_LABELS_KEPT = 64


def text_bytes(*parts: str) -> bytes:
    """Join texts, length-prefixed. Lone surrogates are encoded too, so every text is accepted and none collide."""
    pieces: list[bytes] = []
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        pieces += (_LENGTH(len(encoded)), encoded)
    return b"".join(pieces)


def entry_names(name_key: bytes) -> Callable[..., str]:
    """Return the function that gives (kind, parts) its entry name: 64 hex digits. It keeps the names that it gave last:
    a callback asks ten times for that of its session."""

    @lru_cache(_NAMES_KEPT)
    def name(kind: str, *parts: str) -> str:
        return hmac.digest(name_key, text_bytes(kind, *parts), "sha256").hex()

    return name


def label_macs(name_key: bytes) -> Callable[..., bytes]:
    """Return the function that gives (label, parts) its 32-byte MAC, under an independent key per label. It keeps the
    keys of some labels: a list of grants asks for the tag of each."""

    @lru_cache(_LABELS_KEPT)
    def mac_key(label: str) -> bytes:
        return hmac.digest(name_key, b"oab/mac/1/" + label.encode(), "sha256")

    return lambda label, *parts: hmac.digest(mac_key(label), text_bytes(*parts), "sha256")


def tag_of(mac: Callable[..., bytes], kind: str, label: str, *parts: str) -> Tag:
    """Return the tag of (kind, label, parts). Raises ValueError for a label that is not a plain word."""
    if not _KIND.fullmatch(label):
        raise ValueError("a label is a word of up to 32 letters")
    return Tag(kind, label, mac(f"tag/{kind}/{label}", *parts)[:16].hex())


def check_tags(key: Key, tags: Iterable[Tag]) -> None:
    """Check that tags are of an entry's kind. Raises ValueError."""
    for tag in tags:
        if tag.kind != key.kind or not _KIND.fullmatch(tag.label) or not _VALUE.fullmatch(tag.value):
            raise ValueError("a tag has the kind of its entry, a word for a label, and a value of 32 hex digits")


def check_kinds(*kinds: str) -> None:
    """Check kinds, which become folder and file names. Raises ValueError for one that is not a plain word."""
    for kind in kinds:
        if not _KIND.fullmatch(kind) or kind in {"locks", "corrupt", "keyring", "tags"}:
            raise ValueError("a kind is a word of up to 32 letters and none of locks, corrupt, keyring, tags")


def check_key(key: Key, kinds: Collection[str]) -> Key:
    """Check a key. Raises ValueError for an unknown kind or a name that is not 64 hex digits."""
    if key.kind not in kinds:
        raise ValueError(f"this store keeps no {key.kind!r}")
    if not is_name(key.name):
        raise ValueError("a key's name is 64 hex digits")
    return key


def fingerprint(data: bytes) -> str:
    """Return sixteen hex digits that identify one damaged copy of a record."""
    return hashlib.sha256(data).hexdigest()[:16]
