"""Made record-v1.json, keyring-v1.json and audit-v1.json: format 1 of the store. They are frozen: when this script's output differs, the
code is wrong.

`python -m tests.vectors.make_vectors` prints all documents; a test compares them with the files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from oauthbroker.audit import TokenIssued
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.store.format.seal import HEADER, SealPlace, derive, length_prefixed, seal
from oauthbroker.store.keys.key_encryption_keys import EnvKek
from oauthbroker.store.keys.keyring import Keyring, Seed, SeedState
from oauthbroker.store.keys.keyring_document import FORMAT

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
    keys = derive(SEEDS[ONE], salt, "oab/1/grants")
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


def random_of(label: str) -> Callable[[int], bytes]:
    """What stands for `os.urandom`: other bytes at each call, and the same at each run."""
    calls = iter(range(1000))
    return lambda count: filler(f"{label} {next(calls)}", count)


def keyring() -> Keyring:
    seeds = [
        Seed(kid=filler("kid three", 16), key=b"", state=SeedState.DESTROYED, created_at="2025-12-01T09:00:00Z"),
        Seed(kid=TWO, key=SEEDS[TWO], state=SeedState.DECRYPT_ONLY, created_at="2026-01-01T09:00:00Z", resealed=True),
        Seed(kid=ONE, key=SEEDS[ONE], state=SeedState.ACTIVE, created_at="2026-02-01T09:00:00Z"),
    ]
    return Keyring(store_id=STORE, name_key=filler("name key", 32), seeds=seeds, epoch=3)


def keyring_document() -> Json:
    keks = [f"oab-kek-1:{b64(filler(f'kek {n}', 32)).rstrip('=')}" for n in (1, 2, 3)]
    ring = keyring()
    parts = [
        ["grants", "slack-bot", "slack:team:T111"],
        ["grants", "slack-bots", "lack:team:T111"],
        ["due"],
        ["due", ""],
    ]
    with mock.patch("os.urandom", random_of("keyring")):
        text = ring.wrapped_for(map(EnvKek, keks[:2])).document().decode()
    refused = [
        ("a key that it is not wrapped for", "keyMismatch", keks[2], text),
        ("half of it", "keyMismatch", keks[0], text[: len(text) // 2]),
        ("empty", "keyMismatch", keks[0], ""),
        ("another store's name", "keyMismatch", keks[0], text.replace(STORE, "00" * 16)),
        ("another epoch", "keyMismatch", keks[0], text.replace('"epoch": 3,\n "wraps"', '"epoch": 4,\n "wraps"')),
        ("no epoch", "keyMismatch", keks[0], text.replace('"epoch": 3,\n "wraps"', '"wraps"')),
        ("a word that is no format", "keyMismatch", keks[0], text.replace(FORMAT, "keyring")),
        ("format 1 of a development version", "storeFormat", keks[0], text.replace(FORMAT, "oab-keyring-1")),
        ("format 2 of a development version", "storeFormat", keks[0], text.replace(FORMAT, "oab-keyring-2")),
        ("a later format", "storeFormat", keks[0], text.replace(FORMAT, "oauthbroker-store-2")),
    ]
    tags = [["grants", "app", "slack-bot"], ["grants", "who", "slack:team:T111"]]
    return {
        "keks": keks,
        "keyring": text,
        "storeId": STORE,
        "epoch": ring.epoch,
        "nameKey": b64(filler("name key", 32)),
        "seeds": {seed.kid.hex(): [seed.state.value, b64(seed.key), seed.resealed] for seed in ring.seeds},
        "names": [{"parts": each, "name": ring.name(*each)} for each in parts],
        "tags": [{"parts": each, "tag": ring.tag(each[0], each[1], *each[2:]).value} for each in tags],
        "macs": [{"label": "csrf", "parts": ["a", "b"], "mac": ring.mac("csrf", "a", "b").hex()}],
        "refused": [{"why": why, "kek": kek, "keyring": wrong, "expect": code} for why, code, kek, wrong in refused],
    }


def audit_document() -> Json:
    """Three lines of one process, in slot 0, one of a second process that ran beside it, in slot 1, and the anchors."""
    at = datetime(2026, 2, 1, 9, tzinfo=UTC)
    entry = TokenIssued(app="mail", grant="sha256:00", agent="planner", tool=None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = [AuditFile(folder, AuditKeys(keyring().mac)) for _ in range(2)]
        for log in (logs[0], logs[0], logs[0], logs[1]):
            log.write(entry, at)
        for log in logs:
            log.close()
        files = {path: (folder / path).read_text() for path in ("audit.jsonl", "audit/001/audit.jsonl")}
        anchor = (folder / "audit.anchor").read_bytes()
    return {"nameKey": b64(filler("name key", 32)), "files": files, "anchor": b64(anchor)}


def documents() -> dict[str, str]:
    made = {
        "record-v1.json": record_document(),
        "keyring-v1.json": keyring_document(),
        "audit-v1.json": audit_document(),
    }
    return {name: json.dumps(document, indent=1, ensure_ascii=True) + "\n" for name, document in made.items()}


if __name__ == "__main__":
    for name, text in documents().items():
        sys.stdout.write(f"// {name}\n{text}")
