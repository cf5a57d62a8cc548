"""The frozen bytes: a sealed record opens for ever, in our reader and in one that shares no line with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.trail import FileTrail
from oauthbroker.core.errors import BrokerError
from oauthbroker.store.format.entry_names import label_macs
from oauthbroker.store.format.seal import SealPlace, unseal
from oauthbroker.store.keys.key_encryption_keys import EnvKek
from oauthbroker.store.keys.keyring import Keyring, SeedState
from oauthbroker.store.keys.keyring_home import KeyringFile
from tests.unit.store import second_reader as second
from tests.vectors.make_vectors import documents

VECTORS = Path(__file__).parents[2] / "vectors"
RECORDS = json.loads((VECTORS / "record-v1.json").read_text())
RINGS = json.loads((VECTORS / "keyring-v1.json").read_text())
AUDIT = json.loads((VECTORS / "audit-v1.json").read_text())
SEEDS = {bytes.fromhex(kid): second.decode(seed) for kid, seed in RECORDS["seeds"].items()}
PLACE = SealPlace(RECORDS["storeId"], RECORDS["kind"], RECORDS["name"])


def by_why(vectors: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["why"] for vector in vectors])


@by_why([vector for vector in RECORDS["records"] if "body" in vector])
def test_a_frozen_record_opens_in_both_readers(vector):
    record = second.decode(vector["record"])
    expected = vector["generation"], second.decode(vector["body"])
    assert expected == unseal(SEEDS, PLACE, record)
    assert expected == second.open_record(RECORDS["seeds"], PLACE.store_id, PLACE.kind, PLACE.name, record)


@pytest.mark.case("65", "66", "67")
@by_why([vector for vector in RECORDS["records"] if "expect" in vector])
def test_a_frozen_wrong_record_opens_in_neither(vector):
    record = second.decode(vector["record"])
    with pytest.raises(BrokerError) as caught:
        unseal(SEEDS, PLACE, record, kinds=RECORDS["otherKinds"])
    assert vector["expect"] == caught.value.code
    with pytest.raises(second.RefusedError):
        second.open_record(RECORDS["seeds"], PLACE.store_id, PLACE.kind, PLACE.name, record)


@pytest.mark.parametrize("text", RINGS["keks"][:2])
def test_a_frozen_keyring_opens_with_each_of_its_keys(text, tmp_path):
    ring = load(tmp_path, RINGS["keyring"], text)
    seeds = [(kid, SeedState(state), second.decode(seed), done) for kid, (state, seed, done) in RINGS["seeds"].items()]
    assert (RINGS["storeId"], RINGS["epoch"]) == (ring.store_id, ring.epoch)
    assert seeds == [(seed.kid.hex(), seed.state, seed.key, seed.resealed) for seed in ring.seeds]
    inside = second.open_keyring(text, RINGS["keyring"])
    assert [RINGS["storeId"], RINGS["nameKey"], RINGS["epoch"]] == [*inside.values()][:3]
    assert seeds == [
        (each["kid"], SeedState(each["state"]), second.decode(each["seed"]), each.get("resealed", False))
        for each in inside["seeds"]
    ]


@pytest.mark.case("69")
@by_why(RINGS["refused"])
def test_a_frozen_wrong_keyring_never_opens(vector, tmp_path):
    with pytest.raises(BrokerError) as caught:
        load(tmp_path, vector["keyring"], vector["kek"])
    assert vector["expect"] == caught.value.code


def test_no_contents_open_under_the_word_of_another_format():
    """The word in the document is the label of its box: an edited word makes no reader open the contents."""
    data_key = next(iter(wrapped_data_keys()))
    box, store = second.decode(json.loads(RINGS["keyring"])["sealed"]), RINGS["storeId"].encode()
    assert second.open_box(data_key, "oauthbroker-store-1", second.lp(b"oauthbroker-store-1", store), box)
    for label in (b"oauthbroker-store-2", b"oab/keyring/1", b"oab/keyring/2"):
        with pytest.raises(second.RefusedError):
            second.open_box(data_key, label.decode(), second.lp(label, store), box)


def wrapped_data_keys() -> list[bytes]:
    document = json.loads(RINGS["keyring"])
    keks = [second.decode(text.removeprefix("oab-kek-1:")) for text in RINGS["keks"][:2]]
    context = second.lp(b"oab/keyring/wrap", RINGS["storeId"].encode(), b"3")
    return [
        second.open_box(kek, "oab/kek/1", context, second.decode(wrap["key"]))
        for kek, wrap in zip(keks, document["wraps"], strict=True)
    ]


def test_names_tags_and_macs_are_frozen_too(tmp_path):
    ring = load(tmp_path, RINGS["keyring"], RINGS["keks"][0])
    name_key = second.decode(RINGS["nameKey"])
    for each in RINGS["names"]:
        assert each["name"] == ring.name(*each["parts"]) == second.entry_name(name_key, *each["parts"])
    for each in RINGS["tags"]:
        kind, label, *parts = each["parts"]
        assert each["tag"] == ring.tag(kind, label, *parts).value == second.tag(name_key, kind, label, *parts)
    for each in RINGS["macs"]:
        assert each["mac"] == ring.mac(each["label"], *each["parts"]).hex()
        assert each["mac"] == second.mac(name_key, each["label"], *each["parts"])


async def test_a_frozen_audit_log_is_genuine_for_both_readers(tmp_path):
    (tmp_path / "audit").mkdir(mode=0o700)
    (tmp_path / "audit" / "001").mkdir(mode=0o700)
    for path, text in AUDIT["files"].items():
        (tmp_path / path).touch(mode=0o600)
        (tmp_path / path).write_text(text)
    name_key, anchor = second.decode(AUDIT["nameKey"]), second.decode(AUDIT["anchor"])
    (tmp_path / "audit.anchor").touch(mode=0o600)
    (tmp_path / "audit.anchor").write_bytes(anchor)
    found = await FileTrail(tmp_path, AuditKeys(label_macs(name_key))).verify()
    heads = second.audit_heads(name_key, AUDIT["files"])
    assert found.sound, found
    assert heads == {str(slot): (one.head.seq, one.head.mac.decode()) for slot, one in found.slots.items()}
    for half in second.audit_anchor(name_key, anchor):
        assert heads == {slot: (each["seq"], each["mac"]) for slot, each in half.items()}


@pytest.mark.parametrize("name", sorted(documents()))
def test_the_writer_still_writes_the_frozen_bytes(name):
    assert (VECTORS / name).read_text() == documents()[name]


def load(folder: Path, keyring: str, kek: str) -> Keyring:
    folder.chmod(0o700)
    path = folder / "keyring"
    path.touch(mode=0o600)
    path.write_text(keyring)
    return KeyringFile(path, EnvKek(kek)).load()
