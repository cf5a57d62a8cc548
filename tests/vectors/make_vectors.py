"""Made record-v1.json, keyring-v1.json and keyring-v2.json, once. They are frozen: when this script's output differs, the code is wrong.

`python tests/vectors/make_vectors.py` prints all documents; a test compares them with the files. store-v1.json is a whole store that the
last version of format 1 wrote; no version can write it since.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from oauthbroker.store.format.entry_names import length_prefixed
from oauthbroker.store.format.seal import HEADER, SealPlace, derive, seal
from oauthbroker.store.keys.key_encryption_keys import EnvKek
from oauthbroker.store.keys.key_wrapping import seal_box
from oauthbroker.store.keys.keyring import Keyring, Seed, SeedState, Upgrades
from oauthbroker.store.keys.keyring_document import FIRST_FORMAT, FORMAT

Json = dict[str, Any]


def filler(label: str, count: int) -> bytes:
    """Bytes that look random and are the same each time."""
    return hashlib.shake_256(f"oauthbroker vector {label}".encode()).digest(count)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


STORE = filler("store", 16).hex()
SEEDS = {filler("kid one", 16): filler("seed one", 32), filler("kid two", 16): filler("seed two", 32)}
ONE, TWO = SEEDS
NAME = filler("name", 32).hex()
HERE = SealPlace(STORE, "grants", NAME)
GRANT = json.dumps({"subject": "slack:user:T111:U234567", "message": "안녕하세요"}, ensure_ascii=False).encode()


def sealed(
    body: bytes, generation: int = 1, kid: bytes = ONE, place: SealPlace = HERE, seed: bytes | None = None
) -> bytes:
    salt = filler(f"salt {generation} {len(body)}", 32)
    return seal(kid, seed or SEEDS[kid], place, generation, body, salt=salt)


def flipped(record: bytes, position: int, bit: int = 1) -> bytes:
    return record[:position] + bytes([record[position] ^ bit]) + record[position + 1 :]


def with_padding(padding: bytes, length: int) -> bytes:
    """A record whose authenticated plaintext has this padding and claims this body length; we never write such a one."""
    salt = filler("padding", 32)
    keys = derive(SEEDS[ONE], salt, b"oab/1/grants")
    header = b"OAB1\x01" + ONE + (1).to_bytes(8, "big") + salt + keys.commit
    plain = length_prefixed(NAME.encode()) + length.to_bytes(4, "big") + b"body" + padding
    return header + AESGCM(keys.key).encrypt(keys.nonce, plain, HERE.aad(header))


def records() -> list[Json]:
    good = sealed(GRANT)
    opens = [
        ("an empty body", b"", 1, ONE),
        ("a grant, with text beyond ASCII", GRANT, 1, ONE),
        ("a body that fills its step exactly", filler("body", 184), 1, ONE),
        ("a body one byte beyond a step", filler("body", 185), 2, ONE),
        ("a body of zeros, which is not padding", bytes(300), 3, ONE),
        ("a later generation", GRANT, 2**63, ONE),
        ("sealed by an older seed that may still open", GRANT, 9, TWO),
    ]
    found = [
        {"why": why, "record": b64(sealed(body, generation, kid)), "generation": generation, "body": b64(body)}
        for why, body, generation, kid in opens
    ]
    refused = [
        ("another magic", "recordCorrupt", flipped(good, 0)),
        ("another suite", "recordCorrupt", flipped(good, 4, 3)),
        ("a seed that we do not have", "keyUnknown", flipped(good, 5)),
        ("the same id, another seed", "recordCorrupt", sealed(GRANT, seed=filler("another seed", 32))),
        ("the generation edited", "recordCorrupt", flipped(good, 28)),
        ("one bit of the salt", "recordCorrupt", flipped(good, 29)),
        ("one bit of the commitment", "recordCorrupt", flipped(good, HEADER - 1)),
        ("one bit of the body", "recordCorrupt", flipped(good, HEADER + 90)),
        ("one bit of the name inside", "recordCorrupt", flipped(good, HEADER + 10)),
        ("one bit of the tag", "recordCorrupt", flipped(good, len(good) - 1, 128)),
        ("empty", "recordCorrupt", b""),
        ("the header alone", "recordCorrupt", good[:HEADER]),
        ("the last byte missing", "recordCorrupt", good[:-1]),
        ("one byte too many", "recordCorrupt", good + b"\0"),
        ("a whole step too many", "recordCorrupt", good + bytes(256)),
        ("a whole step missing", "recordCorrupt", sealed(bytes(300), 3)[:-256]),
        ("written for another name", "recordMisplaced", sealed(GRANT, place=SealPlace(STORE, "grants", "ab" * 32))),
        ("written for another kind", "recordMisplaced", sealed(GRANT, place=SealPlace(STORE, "sessions", NAME))),
        ("written for another store", "recordCorrupt", sealed(GRANT, place=SealPlace("00" * 16, "grants", NAME))),
        ("padding that is not zero", "recordCorrupt", with_padding(b"\1" * 180, 4)),
        ("a whole step of padding", "recordCorrupt", with_padding(bytes(180 + 256), 4)),
        ("a body longer than the plaintext", "recordCorrupt", with_padding(bytes(180), 1000)),
    ]
    return found + [{"why": why, "expect": expect, "record": b64(record)} for why, expect, record in refused]


def record_document() -> Json:
    return {
        "storeId": STORE,
        "kind": "grants",
        "name": NAME,
        "otherKinds": ["sessions", "events"],
        "seeds": {kid.hex(): b64(seed) for kid, seed in SEEDS.items()},
        "records": records(),
    }


def keyring_document(upgrades: Upgrades | None = None) -> Json:
    keks = [f"oab-kek-1:{b64(filler(f'kek {n}', 32)).rstrip('=')}" for n in (1, 2, 3)]
    seeds = [Seed(kid=ONE, key=SEEDS[ONE], state=SeedState.ACTIVE, created_at="2026-02-01T09:00:00Z")]
    seeds += [Seed(kid=TWO, key=SEEDS[TWO], state=SeedState.DECRYPT_ONLY, created_at="2026-01-01T09:00:00Z")]
    seeds += [Seed(kid=filler("kid three", 16), key=b"", state=SeedState.DESTROYED, created_at="2025-12-01T09:00:00Z")]
    ring = Keyring(store_id=STORE, name_key=filler("name key", 32), seeds=seeds, epoch=7, upgrades=upgrades)
    parts = [
        ["grants", "slack-bot", "slack:team:T111"],
        ["grants", "slack-bots", "lack:team:T111"],
        ["due"],
        ["due", ""],
    ]
    text = keyring_text(ring, keks[:2])
    return {
        "keks": keks,
        "keyring": text,
        "storeId": STORE,
        "epoch": 7,
        "nameKey": b64(filler("name key", 32)),
        "seeds": {seed.kid.hex(): [seed.state.value, b64(seed.key)] for seed in seeds},
        "names": [{"parts": each, "name": ring.name(*each)} for each in parts],
        "macs": [{"label": "csrf", "parts": ["a", "b"], "mac": ring.mac("csrf", "a", "b").hex()}],
        "refused": [
            {"why": "a key that it is not wrapped for", "kek": keks[2], "keyring": text, "expect": "keyMismatch"},
            {"why": "half of it", "kek": keks[0], "keyring": text[: len(text) // 2], "expect": "keyMismatch"},
            {"why": "empty", "kek": keks[0], "keyring": "", "expect": "keyMismatch"},
            {"why": "another store's name", "kek": keks[0], "keyring": text.replace(STORE, "00" * 16), "expect": "keyMismatch"},
            *(of_another_format(text, keks[0]) if upgrades is not None else []),
        ],
    }  # fmt: skip


def of_another_format(text: str, kek: str) -> list[Json]:
    """The number of the format is bound to the contents: a changed number makes no older broker open an upgraded store."""
    return [
        {
            "why": f"called format {n}",
            "kek": kek,
            "keyring": text.replace(FORMAT, f"oab-keyring-{n}"),
            "expect": "keyMismatch",
        }
        for n in (1, 3)
    ]


def keyring_text(ring: Keyring, keks: list[str]) -> str:
    """As Keyring.sealed_for writes it, with salts that repeat."""
    data_key, context = filler("data key", 32), length_prefixed(b"oab/keyring/1", ring.store_id.encode())
    wraps = [
        {
            "kek": EnvKek(text).id(),
            "key": b64(seal_box(EnvKek(text)._key, "oab/kek/1", context, data_key, salt=filler(f"wrap {n}", 32))),
        }
        for n, text in enumerate(keks)
    ]
    number = "1" if ring.upgrades is None else "2"
    label = f"oab/keyring/{number}"
    body = json.dumps(ring._encode(), separators=(",", ":")).encode()
    about = length_prefixed(label.encode(), ring.store_id.encode())
    box = seal_box(data_key, label, about, body, salt=filler("keyring salt", 32))
    document = {
        "format": FIRST_FORMAT if number == "1" else FORMAT,
        "storeId": ring.store_id,
        "wraps": wraps,
        "sealed": b64(box),
    }
    return json.dumps(document, indent=1) + "\n"


def documents() -> dict[str, str]:
    upgrades = Upgrades(("one", "two"), ("three",))
    made = {
        "record-v1.json": record_document(),
        "keyring-v1.json": keyring_document(),
        "keyring-v2.json": {
            **keyring_document(upgrades),
            "upgraded": list(upgrades.done),
            "upgrading": list(upgrades.under_way),
        },
    }
    return {name: json.dumps(document, indent=1, ensure_ascii=True) + "\n" for name, document in made.items()}


if __name__ == "__main__":
    for name, text in documents().items():
        sys.stdout.write(f"// {name}\n{text}")
