"""API keys: shown once, kept as hashes, several at a time, honoured and forgotten by every worker."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.records.api_key import ApiKey
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock


def keys_on(store: MemoryStore, clock: TestClock) -> ApiKeys:
    return ApiKeys(records=Repository(store).records("apikeys", ApiKey.from_plaintext), clock=clock, audit=AuditList())


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(clock: TestClock) -> MemoryStore:
    return MemoryStore(kinds=KINDS, clock=clock)


@pytest.fixture
def keys(store: MemoryStore, clock: TestClock) -> ApiKeys:
    return keys_on(store, clock)


async def good(keys: ApiKeys, text: Secret | str) -> bool:
    try:
        return bool(await keys.check(text.reveal() if isinstance(text, Secret) else text))
    except BrokerError as error:
        if error.code is not Code.UNAUTHENTICATED:
            raise
        return False


async def test_a_key_is_who_it_was_made_for_and_is_kept_as_a_hash(keys: ApiKeys, store: MemoryStore) -> None:
    key, text = await keys.create("planner-runtime", ["runtime"])
    found = await keys.check(text.reveal())
    assert (found.id, found.name, found.roles) == (key.id, "planner-runtime", frozenset({"runtime"}))
    [kept] = [entry.body async for entry in store.scan("apikeys")]
    secret = text.reveal().rpartition(".")[2]
    assert secret.encode() not in kept
    assert secret not in repr(key)
    assert "secretHash" not in key.to_json()


@pytest.mark.case("79")
async def test_every_dead_or_wrong_key_gets_the_same_refusal(keys: ApiKeys) -> None:
    _, text = await keys.create("one", ["operator"])
    prefix, locator, secret = text.reveal().split(".")
    for wrong in ("", prefix, f"{prefix}.{locator}", f"{prefix}.{locator}.{secret[:-1]}", f"{prefix}.{locator}.{'A' * 43}",
                  f"{prefix}.{'A' * 22}.{secret}", f"oabt.{locator}.{secret}", text.reveal() + "A", "é" * 70):  # fmt: skip
        assert not await good(keys, wrong)


async def test_a_rotated_key_works_until_the_overlap_is_over(keys: ApiKeys, clock: TestClock) -> None:
    _, old = await keys.create("runtime", ["runtime", "operator"])
    _, other = await keys.create("else", ["runtime"])
    key, new = await keys.rotate("runtime", overlap_seconds=3600)
    assert key.roles == {"runtime", "operator"}
    assert [True, True, True] == [await good(keys, each) for each in (old, new, other)]
    clock.advance(3600)
    assert [False, True, True] == [await good(keys, each) for each in (old, new, other)]


async def test_a_rotation_never_lengthens_a_life(keys: ApiKeys, clock: TestClock) -> None:
    _, short = await keys.create("runtime", ["runtime"], lives_seconds=60)
    await keys.rotate("runtime", overlap_seconds=3600)
    clock.advance(61)
    assert not await good(keys, short)


async def test_what_one_worker_removes_no_worker_takes(keys: ApiKeys, store: MemoryStore, clock: TestClock) -> None:
    other = keys_on(store, clock)
    key, text = await keys.create("runtime", ["runtime"])
    assert await good(other, text)
    assert await keys.remove(key.id)
    assert not await keys.remove(key.id)
    assert not await good(other, text)
    assert [] == await other.list()


@pytest.mark.parametrize(
    ("name", "roles", "lives"),
    [("", ["runtime"], None), ("a b", ["runtime"], None), ("x" * 65, ["runtime"], None), ("a", [], None),
     ("a", ["admin"], None), ("a", ["runtime"], 0), ("a", ["runtime"], 10**12), ("a", ["runtime"], "5"), ("a", ["runtime"], 1.5), ("-a", ["runtime"], None)],
)  # fmt: skip
async def test_a_key_without_a_name_a_role_or_a_whole_number_of_seconds_is_not_made(
    keys: ApiKeys, name: str, roles: Any, lives: Any
) -> None:
    with pytest.raises(BrokerError) as caught:
        await keys.create(name, roles, lives_seconds=lives)
    assert Code.REQUEST_INVALID is caught.value.code
    assert [] == await keys.list()


async def test_nothing_is_rotated_where_nothing_lives(keys: ApiKeys, clock: TestClock) -> None:
    await keys.create("runtime", ["runtime"], lives_seconds=60)
    clock.advance(61)
    with pytest.raises(BrokerError):
        await keys.rotate("runtime", overlap_seconds=60)
