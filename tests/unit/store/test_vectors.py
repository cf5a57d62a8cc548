"""The frozen bytes: a sealed record opens for ever, in our reader and in one that shares no line with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.store.format.seal import SealPlace, unseal
from oauthbroker.store.keys.key_encryption_keys import EnvKek
from oauthbroker.store.keys.keyring import Keyring, SeedState, Upgrades
from oauthbroker.store.keys.keyring_home import KeyringFile
from tests.unit.store import second_reader as second
from tests.vectors.make_vectors import documents

VECTORS = Path(__file__).parents[2] / "vectors"
RECORDS = json.loads((VECTORS / "record-v1.json").read_text())
RINGS = json.loads((VECTORS / "keyring-v1.json").read_text())
RINGS_2 = json.loads((VECTORS / "keyring-v2.json").read_text())
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


@pytest.mark.parametrize("frozen", [RINGS, RINGS_2], ids=["format 1", "format 2"])
@pytest.mark.parametrize("text", RINGS["keks"][:2])
def test_a_frozen_keyring_opens_with_each_of_its_keys(frozen, text, tmp_path):
    ring = load(tmp_path, frozen["keyring"], text)
    seeds = {kid: (SeedState(state), second.decode(seed)) for kid, (state, seed) in frozen["seeds"].items()}
    assert (frozen["storeId"], frozen["epoch"]) == (ring.store_id, ring.epoch)
    assert seeds == {seed.kid.hex(): (seed.state, seed.key) for seed in ring.seeds}
    inside = second.open_keyring(text, frozen["keyring"])
    assert (frozen["storeId"], frozen["epoch"], frozen["nameKey"]) == (
        inside["storeId"],
        inside["epoch"],
        inside["nameKey"],
    )
    steps = (inside.get("upgraded"), inside.get("upgrading"))
    assert steps == (frozen.get("upgraded"), frozen.get("upgrading"))
    expected = None if frozen is RINGS else Upgrades(tuple(frozen["upgraded"]), tuple(frozen["upgrading"]))
    assert expected == ring.upgrades
    assert seeds == {each["kid"]: (SeedState(each["state"]), second.decode(each["seed"])) for each in inside["seeds"]}


@pytest.mark.case("69")
@by_why([*RINGS["refused"], *({**each, "why": f"format 2: {each['why']}"} for each in RINGS_2["refused"])])
def test_a_frozen_wrong_keyring_never_opens(vector, tmp_path):
    with pytest.raises(BrokerError) as caught:
        load(tmp_path, vector["keyring"], vector["kek"])
    assert vector["expect"] == caught.value.code


@pytest.mark.parametrize("text", RINGS["keks"][:2])
def test_a_reader_of_format_1_alone_opens_no_keyring_of_format_2(text):
    """As every broker before it does. Nor does it open one whose format was edited: the label of the box has it too."""
    with pytest.raises(second.RefusedError):
        second.open_keyring(text, RINGS_2["keyring"], (1,))
    with pytest.raises(second.RefusedError):
        second.open_keyring(text, RINGS_2["keyring"].replace("oab-keyring-2", "oab-keyring-1"), (1,))
    assert second.open_keyring(text, RINGS["keyring"], (1,))


def test_names_and_macs_are_frozen_too(tmp_path):
    ring = load(tmp_path, RINGS["keyring"], RINGS["keks"][0])
    name_key = second.decode(RINGS["nameKey"])
    for each in RINGS["names"]:
        assert each["name"] == ring.name(*each["parts"]) == second.entry_name(name_key, *each["parts"])
    for each in RINGS["macs"]:
        assert each["mac"] == ring.mac(each["label"], *each["parts"]).hex()
        assert each["mac"] == second.mac(name_key, each["label"], *each["parts"])


@pytest.mark.parametrize("name", sorted(documents()))
def test_the_writer_still_writes_the_frozen_bytes(name):
    assert (VECTORS / name).read_text() == documents()[name]


def load(folder: Path, keyring: str, kek: str) -> Keyring:
    folder.chmod(0o700)
    path = folder / "keyring"
    path.touch(mode=0o600)
    path.write_text(keyring)
    return KeyringFile(path, EnvKek(kek)).load()
