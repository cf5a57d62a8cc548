"""Wrap a small secret under a long-lived key (a key file around a keyring). Format: docs/store-format.md.

The key schedule is that of a record: a different commitment means a wrong key, a different tag means damage.
"""

from __future__ import annotations

import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.seal import TAG, derive, length_prefixed

SALT, COMMIT, HEADER = slice(0, 32), slice(32, 64), 64


def seal_box(key: bytes, label: str, context: bytes, secret: bytes) -> bytes:
    """Return `salt 32 | commit 32 | ciphertext+tag`, bound to `context`."""
    salt = os.urandom(32)
    keys = derive(key, salt, label)
    header = salt + keys.commit
    return header + AESGCM(keys.key).encrypt(keys.nonce, secret, length_prefixed(header, context))


def open_box(key: bytes, label: str, context: bytes, box: bytes) -> bytes:
    """Return the secret. Raises `keyMismatch` if it was sealed with another key, `recordCorrupt` if bytes are
    damaged."""
    if len(box) < HEADER + TAG:
        raise BrokerError(Code.RECORD_CORRUPT, note="a wrapped key is truncated")
    header = box[:HEADER]
    keys = derive(key, header[SALT], label)
    if not hmac.compare_digest(keys.commit, header[COMMIT]):
        raise BrokerError(Code.KEY_MISMATCH, note="wrapped with another key")
    try:
        return AESGCM(keys.key).decrypt(keys.nonce, box[HEADER:], length_prefixed(header, context))
    except InvalidTag:
        pass
    raise BrokerError(Code.RECORD_CORRUPT, note="a wrapped key is damaged")
