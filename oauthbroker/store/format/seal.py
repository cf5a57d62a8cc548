"""Record version 1: one sealed body, bound to its place. Pure functions. Format: docs/store-format.md.

Every version of every record has its own key, derived from a seed and a fresh 32-byte salt, so nonces never repeat
under one key. Nothing is configurable: another cipher would be another suite number and another reader.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from oauthbroker.core.errors import BrokerError, Code

MAGIC = b"OAB1\x01"  # magic and suite 1: HKDF-SHA256 with AES-256-GCM
KID, GENERATION, SALT, COMMIT = slice(5, 21), slice(21, 29), slice(29, 61), slice(61, 93)
HEADER = 93
TAG = 16
STEP = 256  # plaintexts are padded in steps, because the length of a token identifies its provider
MAX_BODY = 4 * 1024 * 1024
MAX_RECORD = MAX_BODY + HEADER + TAG + 2 * STEP
UNOPENED = frozenset({Code.RECORD_CORRUPT, Code.RECORD_MISPLACED, Code.KEY_UNKNOWN})  # what `unseal` raises
_SHA256 = SHA256()
_LENGTH = struct.Struct(">I").pack


def length_prefixed(*parts: bytes) -> bytes:
    """Join the parts, each behind its length (4 bytes, big-endian), so that two different lists never give the same
    bytes."""
    pieces: list[bytes] = []
    for part in parts:
        pieces += (_LENGTH(len(part)), part)
    return b"".join(pieces)


class SealPlace(NamedTuple):
    """The place of a record. It can be opened only there."""

    store_id: str
    kind: str
    name: str

    def aad(self, header: bytes) -> bytes:
        return length_prefixed(header, self.store_id.encode(), self.kind.encode(), self.name.encode())


class OneTimeKeys(NamedTuple):
    """The keys derived from one salt under one seed, used for one message."""

    key: bytes
    commit: bytes
    nonce: bytes


def generation_of(record: bytes) -> int:
    """Return the generation that a record says. Only opening it tells whether that is true."""
    return int.from_bytes(record[GENERATION])


def derive(seed: bytes, salt: bytes, info: str) -> OneTimeKeys:
    okm = HKDF(_SHA256, 76, salt, info.encode()).derive(seed)
    return OneTimeKeys(okm[:32], okm[32:64], okm[64:])


def seal(
    kid: bytes, seed: bytes, place: SealPlace, generation: int, body: bytes, *, salt: bytes | None = None
) -> bytes:
    """Seal one record. `salt` is for frozen vectors only: it must never repeat under one seed."""
    if len(body) > MAX_BODY:
        raise ValueError(f"a body has at most {MAX_BODY} bytes")
    salt = os.urandom(32) if salt is None else salt
    keys = derive(seed, salt, f"oab/1/{place.kind}")
    header = b"".join((MAGIC, kid, generation.to_bytes(8, "big"), salt, keys.commit))
    return header + AESGCM(keys.key).encrypt(keys.nonce, _padded(place.name, body), place.aad(header))


def unseal(
    seeds: Mapping[bytes, bytes], place: SealPlace, record: bytes, *, kinds: Iterable[str] = ()
) -> tuple[int, bytes]:
    """Return (generation, body) of a record found at `place`.

    `kinds` are the store's other kinds, tried only to name a failure. Raises `keyUnknown` (no seed with that id),
    `recordMisplaced` (intact, but proven to be written for another place of this store) or `recordCorrupt`.
    """
    _check_shape(record)
    header = record[:HEADER]
    seed = seeds.get(header[KID])
    if seed is None:
        raise BrokerError(Code.KEY_UNKNOWN, note="no seed of that id")
    keys = derive(seed, header[SALT], f"oab/1/{place.kind}")
    if not hmac.compare_digest(keys.commit, header[COMMIT]):
        raise _foreign_kind(seed, header, place, kinds)
    plain = _open(keys, record, place)
    if plain is None:
        raise _misplaced_or_corrupt(keys, record, place)
    return int.from_bytes(header[GENERATION], "big"), _unpadded(plain, place.name)


def _check_shape(record: bytes) -> None:
    if record[:4] != MAGIC[:4]:
        raise BrokerError(Code.RECORD_CORRUPT, note="not a record")
    if record[4:5] != MAGIC[4:]:
        raise BrokerError(Code.RECORD_CORRUPT, note="unknown suite")
    if len(record) <= HEADER + TAG or (len(record) - HEADER - TAG) % STEP or len(record) > MAX_RECORD:
        raise BrokerError(Code.RECORD_CORRUPT, note="cut or extended")


def _open(keys: OneTimeKeys, record: bytes, place: SealPlace) -> bytes | None:
    try:
        return AESGCM(keys.key).decrypt(keys.nonce, record[HEADER:], place.aad(record[:HEADER]))
    except InvalidTag:
        return None


def _foreign_kind(seed: bytes, header: bytes, place: SealPlace, kinds: Iterable[str]) -> BrokerError:
    """Name the failure when the commitment does not fit this kind. If it fits another kind, the file was moved; else
    bytes are damaged."""
    commits = (derive(seed, header[SALT], f"oab/1/{kind}").commit for kind in kinds if kind != place.kind)
    if any(hmac.compare_digest(commit, header[COMMIT]) for commit in commits):
        return BrokerError(Code.RECORD_MISPLACED, note="written for another kind")
    return BrokerError(Code.RECORD_CORRUPT, note="the key commitment does not fit")


def _misplaced_or_corrupt(keys: OneTimeKeys, record: bytes, place: SealPlace) -> BrokerError:
    """Name the failure when the key fits but the tag does not: damaged bytes, or another place.

    Every plaintext begins with the name it was written for. That claim is read untrusted, then proven by opening the
    record with the claimed name: only an intact record, sealed with our key, passes.
    """
    claimed = _claimed_name(keys, record)
    if claimed is not None and claimed != place.name:
        elsewhere = SealPlace(place.store_id, place.kind, claimed)
        if _open(keys, record, elsewhere) is not None:
            return BrokerError(Code.RECORD_MISPLACED, note="written for another name")
    return BrokerError(Code.RECORD_CORRUPT, note="damaged")


def _claimed_name(keys: OneTimeKeys, record: bytes) -> str | None:
    """Return the unproven name in the record: GCM is counter mode, and its second counter block starts the
    plaintext."""
    counter = CTR(keys.nonce + (2).to_bytes(4, "big"))
    peek = Cipher(AES(keys.key), counter).decryptor().update(record[HEADER : HEADER + 68])
    return peek[4:].decode("ascii", "replace") if peek[:4] == (64).to_bytes(4, "big") else None


def record_size(size: int) -> int:
    """Return the size in bytes of the record around a body of `size` bytes. Raises ValueError beyond the limit."""
    if size > MAX_BODY:
        raise ValueError(f"a body has at most {MAX_BODY} bytes")
    plain = 4 + 64 + 4 + size
    return HEADER + plain + -plain % STEP + TAG


def _padded(name: str, body: bytes) -> bytes:
    plain = length_prefixed(name.encode(), body)
    return plain + bytes(-len(plain) % STEP)


def _unpadded(plain: bytes, name: str) -> bytes:
    """Return the body of authenticated bytes. A shape that we never write is refused."""
    head = length_prefixed(name.encode())
    start = len(head) + 4
    end = start + int.from_bytes(plain[len(head) : start], "big")
    padding = len(plain) - end
    if not plain.startswith(head) or not 0 <= padding < STEP or plain[end:] != bytes(padding):
        raise BrokerError(Code.RECORD_CORRUPT, note="unknown padding")
    return plain[start:end]
