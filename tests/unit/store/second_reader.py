"""A second reader of the store's format, written from docs/store-format.md alone: nothing of oauthbroker is imported."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class RefusedError(Exception):
    """Not a record or keyring that opens here."""


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def lp(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def hkdf(seed: bytes, salt: bytes, info: bytes) -> tuple[bytes, bytes, bytes]:
    """RFC 5869 with SHA-256, 76 bytes: key, commitment, nonce."""
    prk = hmac.new(salt, seed, hashlib.sha256).digest()
    block, okm = b"", b""
    for count in (1, 2, 3):
        block = hmac.new(prk, block + info + bytes([count]), hashlib.sha256).digest()
        okm += block
    return okm[:32], okm[32:64], okm[64:76]


def gcm(key: bytes, nonce: bytes, sealed: bytes, aad: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(nonce, sealed, aad)
    except InvalidTag:
        raise RefusedError from None


def open_record(seeds: dict[str, str], store: str, kind: str, name: str, record: bytes) -> tuple[int, bytes]:
    header, sealed = record[:93], record[93:]
    if header[:5] != b"OAB1\x01" or len(sealed) < 272 or (len(sealed) - 16) % 256:
        raise RefusedError
    kid, generation, salt, commit = header[5:21], header[21:29], header[29:61], header[61:93]
    if kid.hex() not in seeds:
        raise RefusedError
    key, expected, nonce = hkdf(decode(seeds[kid.hex()]), salt, b"oab/1/" + kind.encode())
    if commit != expected:
        raise RefusedError
    plain = gcm(key, nonce, sealed, lp(header, store.encode(), kind.encode(), name.encode()))
    size = int.from_bytes(plain[68:72], "big")
    body, padding = plain[72 : 72 + size], plain[72 + size :]
    if plain[:68] != lp(name.encode()) or len(body) != size or len(padding) > 255 or any(padding):
        raise RefusedError
    return int.from_bytes(generation, "big"), body


def open_box(key: bytes, label: str, context: bytes, box: bytes) -> bytes:
    message_key, commit, nonce = hkdf(key, box[:32], label.encode())
    if box[32:64] != commit:
        raise RefusedError
    return gcm(message_key, nonce, box[64:], lp(box[:64], context))


def kek_id(kek: bytes) -> str:
    return "kek-" + hmac.new(kek, b"oab/kek/id", hashlib.sha256).hexdigest()[:16]


def open_keyring(kek_text: str, text: str) -> dict[str, Any]:
    kek, label = decode(kek_text.strip().removeprefix("oab-kek-1:")), "oauthbroker-store-1"
    document = json.loads(text)
    if document["format"] != label:
        raise RefusedError
    (wrap,) = [wrap for wrap in document["wraps"] if wrap["kek"] == kek_id(kek)]
    store = document["storeId"].encode()
    context = lp(b"oab/keyring/wrap", store, str(wrap["epoch"]).encode())
    data_key = open_box(kek, "oab/kek/1", context, decode(wrap["key"]))
    sealed = decode(document["sealed"])
    inside: dict[str, Any] = json.loads(open_box(data_key, label, lp(label.encode(), store), sealed))
    if document["epoch"] != inside["epoch"]:
        raise RefusedError
    return inside


def entry_name(name_key: bytes, kind: str, *parts: str) -> str:
    return hmac.new(name_key, lp(*(part.encode() for part in (kind, *parts))), hashlib.sha256).hexdigest()


def mac(name_key: bytes, label: str, *parts: str) -> str:
    own = hmac.new(name_key, b"oab/mac/1/" + label.encode(), hashlib.sha256).digest()
    return hmac.new(own, lp(*(part.encode() for part in parts)), hashlib.sha256).hexdigest()


def tag(name_key: bytes, kind: str, label: str, *parts: str) -> str:
    return mac(name_key, f"tag/{kind}/{label}", *parts)[:32]


def audit_heads(name_key: bytes, files: dict[str, str]) -> dict[str, tuple[int, str]]:
    """The number and the MAC of the last line of each slot."""
    heads = {}
    for path, text in files.items():
        slot = int(path.split("/")[1]) if "/" in path else 0
        key = bytes.fromhex(mac(name_key, "audit", "chain", *([str(slot)] if slot else [])))
        before, number = "0" * 32, 0
        for line in text.splitlines():
            body, _, rest = line.rpartition(',"mac":"')
            made = hmac.new(key, (before + body).encode(), hashlib.sha256).hexdigest()[:32]
            if rest != made + '"}' or json.loads(line)["seq"] != number + 1:
                raise RefusedError
            before, number = made, number + 1
        heads[str(slot)] = number, before
    return heads


def audit_anchor(name_key: bytes, text: bytes) -> list[dict[str, Any]]:
    """The two halves of the anchors."""
    halves, key = [], bytes.fromhex(mac(name_key, "audit", "roll"))
    for offset in (0, 16384):
        line = text[offset:].partition(b"\n")[0]
        seal, _, body = line.rstrip().partition(b" ")
        if len(line) != 511 or seal.decode() != hmac.new(key, body, hashlib.sha256).hexdigest()[:32]:
            raise RefusedError
        halves.append(json.loads(body))
    return halves
