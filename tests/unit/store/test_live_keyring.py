"""The keyring of an open store beside those of other processes: which one seals, and which one is taken."""

from __future__ import annotations

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import EnvKek
from oauthbroker.store.keys.keyring import Keyring, SeedState
from oauthbroker.store.keys.live_keyring import LiveKeyring

KEK, OTHER = EnvKek("oab-kek-1:" + "A" * 43), EnvKek("oab-kek-1:" + "B" * 42 + "A")
FIRST = Keyring.fresh().wrapped_for([KEK])
WITH_NEXT = FIRST.with_next_seed()
SECOND = WITH_NEXT.with_next_active()


def test_a_reseal_and_a_retirement_concern_the_seeds_before_the_active_one_and_no_other() -> None:
    """`SECOND` has one of them. A seed that is to seal next may already seal on another host."""
    three = SECOND.with_next_seed()
    assert [True, False, False] == [seed.resealed for seed in three.with_resealed().seeds]
    retired = three.without_old()
    assert [SeedState.DESTROYED, SeedState.ACTIVE, SeedState.DECRYPT_ONLY] == [seed.state for seed in retired.seeds]
    assert [b"", *(seed.key for seed in three.seeds[1:])] == [seed.key for seed in retired.seeds]


@pytest.fixture
def live() -> LiveKeyring:
    live = LiveKeyring(FIRST)
    live.keks = (KEK,)
    return live


@pytest.mark.parametrize(
    ("document", "seals"),
    [(None, True), (FIRST.document(), True), (WITH_NEXT.document(), True), (SECOND.document(), False)],
    ids=["missing", "the same", "with a next seed", "of the next epoch"],
)
def test_a_seed_seals_until_the_stores_document_has_another_active_one(
    live: LiveKeyring, document: bytes | None, seals: bool
) -> None:
    assert seals is live.seals(document)


def test_a_later_document_is_taken_once_and_an_earlier_one_never(live: LiveKeyring) -> None:
    later = SECOND.document()
    assert (True, False) == (live.adopt(later), live.adopt(later))
    assert (2, True) == (live.ring.epoch, live.seals(later))
    assert not live.adopt(FIRST.document())
    assert not live.adopt(None)
    assert 2 == live.ring.epoch


def test_a_document_with_another_data_key_is_opened_by_a_key(live: LiveKeyring) -> None:
    assert live.adopt(SECOND.wrapped_for([KEK]).document())
    assert 2 == live.ring.epoch


def test_a_document_that_no_key_opens_here_leaves_the_keyring_in_use(live: LiveKeyring) -> None:
    with pytest.raises(BrokerError) as raised:
        live.adopt(SECOND.wrapped_for([OTHER]).document())
    assert (Code.STORE_UNAVAILABLE, FIRST) == (raised.value.code, live.ring)
