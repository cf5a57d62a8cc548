"""One record: it opens where it belongs, and every other use is refused for the right reason."""

from __future__ import annotations

import os

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import example, given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.seal import (
    HEADER,
    MAGIC,
    MAX_BODY,
    MAX_RECORD,
    TAG,
    SealPlace,
    derive,
    generation_of,
    length_prefixed,
    record_size,
    seal,
    unseal,
)
from oauthbroker.store.keys.key_wrapping import open_box, seal_box

KID, SEED = os.urandom(16), os.urandom(32)
SEEDS = {KID: SEED}
HERE = SealPlace("store", "grants", "0a" * 32)
KINDS = ("grants", "sessions", "events")


def refusal(record: bytes, place: SealPlace = HERE, seeds: dict[bytes, bytes] = SEEDS) -> Code:
    with pytest.raises(BrokerError) as caught:
        unseal(seeds, place, record, kinds=KINDS)
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value.code


@given(st.binary(max_size=2000), st.integers(0, 2**64 - 1))
def test_a_sealed_text_opens(body, generation):
    assert (generation, body) == unseal(SEEDS, HERE, seal(KID, SEED, HERE, generation, body))


@given(st.integers(0, 3000))
def test_a_record_tells_the_size_of_its_body_only_in_steps(size):
    record = seal(KID, SEED, HERE, 1, bytes(size))
    assert 0 == (len(record) - HEADER - TAG) % 256
    assert len(record) - HEADER - TAG - 256 < size + 72 <= len(record) - HEADER - TAG


def test_the_same_body_never_looks_the_same_twice():
    records = {seal(KID, SEED, HERE, 1, b"same") for _ in range(50)}
    assert 50 == len(records) == len({record[HEADER:] for record in records})


def test_nothing_of_the_place_stands_in_clear():
    record = seal(KID, SEED, HERE, 1, b"CANARY")
    for word in (b"CANARY", HERE.kind.encode(), HERE.name.encode(), bytes.fromhex(HERE.name), b"store"):
        assert word not in record


def test_the_largest_body_opens_and_one_byte_more_is_refused():
    """The bounds are part of the format: docs/store-format.md."""
    assert (4_194_304, 4_194_925) == (MAX_BODY, MAX_RECORD)
    record = seal(KID, SEED, HERE, 1, bytes(MAX_BODY))
    assert (1, bytes(MAX_BODY)) == unseal(SEEDS, HERE, record)
    assert len(record) == record_size(MAX_BODY) <= MAX_RECORD
    with pytest.raises(ValueError, match="4194304"):
        seal(KID, SEED, HERE, 1, bytes(MAX_BODY + 1))
    with pytest.raises(ValueError, match="4194304"):
        record_size(MAX_BODY + 1)


@given(st.integers(0, 3000))
@example(184)  # the last byte of a step
@example(185)
def test_the_size_of_a_record_is_known_before_it_is_sealed(size):
    assert record_size(size) == len(seal(KID, SEED, HERE, 1, bytes(size)))


@pytest.mark.parametrize("generation", [0, 1, 2**64 - 1])
def test_a_record_says_its_generation(generation):
    assert generation == generation_of(seal(KID, SEED, HERE, generation, b"body"))


@pytest.mark.parametrize("body", [b"x", b"x" * 184, b"x" * 185, b"\0" * 183])
def test_a_body_may_end_with_what_padding_consists_of(body):
    assert (1, body + b"\0") == unseal(SEEDS, HERE, seal(KID, SEED, HERE, 1, body + b"\0"))


def shaped(length: int) -> bytes:
    """Bytes that begin as a record does."""
    return MAGIC + KID + bytes(length - 21)


SHAPES = {
    "another magic": (b"oab1" + shaped(HEADER + TAG + 256)[4:], "not a record"),
    "another suite": (MAGIC[:4] + b"\2" + shaped(HEADER + TAG + 256)[5:], "unknown suite"),
    "no suite": (MAGIC[:4], "unknown suite"),
    "nothing sealed": (shaped(HEADER + TAG), "cut or extended"),
    "the magic alone": (MAGIC, "cut or extended"),
    "no whole step": (shaped(HEADER + TAG + 255), "cut or extended"),
    "one step": (shaped(HEADER + TAG + 256), "the key commitment does not fit"),
    "the longest": (shaped(MAX_RECORD), "the key commitment does not fit"),
    "longer": (shaped(MAX_RECORD + 256), "cut or extended"),
}


@pytest.mark.case("65")
@pytest.mark.parametrize(("record", "note"), SHAPES.values(), ids=SHAPES)
def test_a_shape_that_is_never_written_is_refused_before_any_key_is_tried(record, note):
    with pytest.raises(BrokerError) as caught:
        unseal(SEEDS, HERE, record)
    assert (Code.RECORD_CORRUPT, note) == (caught.value.code, caught.value.note)


def sealed_by_hand(plain: bytes) -> bytes:
    """A record around exactly these authenticated bytes."""
    salt = bytes(32)
    keys = derive(SEED, salt, "oab/1/grants")
    header = b"".join((MAGIC, KID, (1).to_bytes(8, "big"), salt, keys.commit))
    return header + AESGCM(keys.key).encrypt(keys.nonce, plain, HERE.aad(header))


NAMED = length_prefixed(HERE.name.encode())
PLAINS = {
    "as we write it": (NAMED + length_prefixed(b"body") + bytes(180), b"body"),
    "a whole step of padding": (NAMED + length_prefixed(bytes(184)) + bytes(256), None),
    "more than a step of padding": (NAMED + length_prefixed(b"body") + bytes(180 + 256), None),
    "padding that is not zero": (NAMED + length_prefixed(b"body") + bytes(179) + b"\1", None),
    "no padding": (NAMED + length_prefixed(bytes(184)), bytes(184)),
    "the longest padding": (NAMED + length_prefixed(bytes(185)) + bytes(255), bytes(185)),
    "a body that is longer than the record": (NAMED + (185).to_bytes(4, "big") + bytes(184), None),
    "another name inside": (length_prefixed(b"0b" * 32, b"body") + bytes(180), None),
}


@pytest.mark.parametrize(("plain", "body"), PLAINS.values(), ids=PLAINS)
def test_authenticated_bytes_of_a_shape_that_is_never_written_are_refused(plain, body):
    assert 0 == len(plain) % 256
    if body is None:
        assert Code.RECORD_CORRUPT == refusal(sealed_by_hand(plain))
    else:
        assert (1, body) == unseal(SEEDS, HERE, sealed_by_hand(plain))


@pytest.mark.case("65")
def test_a_cut_record_is_corrupt_at_each_length():
    record = seal(KID, SEED, HERE, 1, bytes(700))
    assert {Code.RECORD_CORRUPT} == {refusal(record[:length]) for length in range(len(record))}


@pytest.mark.case("65")
@pytest.mark.parametrize("tail", [b"\0", b"x" * 16, bytes(255), bytes(256), os.urandom(512)], ids=len)
def test_garbage_at_the_end_is_corrupt(tail):
    assert Code.RECORD_CORRUPT == refusal(seal(KID, SEED, HERE, 1, b"body") + tail)


@pytest.mark.case("66")
def test_no_flipped_bit_is_accepted():
    record = seal(KID, SEED, HERE, 1, b"body")
    codes = {refusal(flip(record, bit)) for bit in range(8 * len(record))}
    assert {Code.RECORD_CORRUPT, Code.KEY_UNKNOWN} == codes
    in_the_kid = {refusal(flip(record, bit)) for bit in range(8 * 5, 8 * 21)}
    assert {Code.KEY_UNKNOWN} == in_the_kid


MOVED = {
    "another name": (SealPlace("store", "grants", "0b" * 32), Code.RECORD_MISPLACED),
    "another kind, same name": (SealPlace("store", "sessions", HERE.name), Code.RECORD_MISPLACED),
    "another kind, another name": (SealPlace("store", "events", "0b" * 32), Code.RECORD_MISPLACED),
    "another store with the same seeds": (SealPlace("other", "grants", HERE.name), Code.RECORD_CORRUPT),
}


@pytest.mark.case("67")
@pytest.mark.parametrize(("place", "code"), MOVED.values(), ids=MOVED)
def test_a_record_opens_nowhere_else(place, code):
    assert code == refusal(seal(KID, SEED, HERE, 1, b"body"), place)


@pytest.mark.case("67")
def test_a_record_of_another_store_has_a_key_that_is_unknown_here():
    assert Code.KEY_UNKNOWN == refusal(seal(KID, SEED, HERE, 1, b"body"), seeds={os.urandom(16): SEED})


def test_damage_to_a_moved_record_is_damage():
    """Only an intact record is said to be misplaced: the claim inside must be proven."""
    record, elsewhere = seal(KID, SEED, HERE, 1, b"body"), SealPlace("store", "grants", "0b" * 32)
    assert Code.RECORD_CORRUPT == refusal(flip(record, 8 * (len(record) - 1)), elsewhere)


def test_no_record_opens_under_two_keys():
    """The commitment: the same id with another seed is refused before anything is decrypted."""
    assert Code.RECORD_CORRUPT == refusal(seal(KID, SEED, HERE, 1, b"body"), seeds={KID: os.urandom(32)})


def test_a_box_opens_with_its_key_and_context():
    key = os.urandom(32)
    box = seal_box(key, "label", b"context", b"secret")
    assert b"secret" == open_box(key, "label", b"context", box)
    refusals = [
        (os.urandom(32), "label", b"context", box, Code.KEY_MISMATCH),
        (key, "other", b"context", box, Code.KEY_MISMATCH),
        (key, "label", b"other", box, Code.RECORD_CORRUPT),
        (key, "label", b"context", box[:-1], Code.RECORD_CORRUPT),
        (key, "label", b"context", box[:70], Code.RECORD_CORRUPT),
    ]
    for tried, label, context, data, code in refusals:
        with pytest.raises(BrokerError) as caught:
            open_box(tried, label, context, data)
        assert code == caught.value.code


def test_no_flipped_bit_of_a_box_is_accepted():
    key = os.urandom(32)
    box = seal_box(key, "label", b"context", b"secret")
    for bit in range(8 * len(box)):
        with pytest.raises(BrokerError):
            open_box(key, "label", b"context", flip(box, bit))


def flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
