"""The store of the settings: where it is, how it is made once, and what a refusal tells of its key."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.settings import KeySource, Settings
from oauthbroker.observability.logging import Log, json_log
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.wiring.offline_store import look_into, open_vault
from oauthbroker.wiring.storage import data_of, default_audit, init_store, store_url, unlocked, url_in
from oauthbroker.wiring.store_keys import open_keys
from oauthbroker.wiring.store_place import word_of

CLOCK = TestClock()
URL = "postgresql://db.example/broker"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(key_file=str(tmp_path / "keys" / "broker.kek"), store_root=str(tmp_path / "store"))


@pytest.fixture
def log() -> Log:
    return json_log(io.StringIO(), CLOCK)


def refused(settings: Settings, log: Log) -> BrokerError:
    with pytest.raises(BrokerError) as raised:
        unlocked(settings, {}, log)
    return raised.value


def test_a_new_store_has_a_key_and_a_keyring_and_opens(settings: Settings, log: Log) -> None:
    made = init_store(settings, {}, CLOCK)
    assert (settings.key_file, True, str(data_of(settings) / "keyring")) == made
    assert 1 == unlocked(settings, {}, log).epoch


def test_a_key_that_is_there_is_kept(settings: Settings) -> None:
    Path(settings.key_file).parent.mkdir(mode=0o700)
    FileKek.create(Path(settings.key_file))
    before = Path(settings.key_file).read_bytes()
    assert not init_store(settings, {}, CLOCK).key_is_new
    assert before == Path(settings.key_file).read_bytes()


def test_a_store_is_never_made_over_another_one(settings: Settings, log: Log) -> None:
    init_store(settings, {}, CLOCK)
    with pytest.raises(BrokerError) as raised:
        init_store(settings, {}, CLOCK)
    assert Code.KEY_EXISTS is raised.value.code
    Path(settings.key_file).unlink()
    with pytest.raises(BrokerError) as raised:
        init_store(settings, {}, CLOCK)
    assert Code.KEY_UNKNOWN is raised.value.code
    assert not Path(settings.key_file).exists(), "a new key would open nothing"


def test_a_refusal_names_the_place_of_the_key_and_says_how_to_make_a_first_store(settings: Settings, log: Log) -> None:
    error = refused(settings, log)
    assert Code.KEY_UNKNOWN is error.code
    assert settings.key_file in error.note
    assert "There is no store yet. Run: `oauthbroker init`" == error.message()
    init_store(settings, {}, CLOCK)
    Path(settings.key_file).unlink()
    error = refused(settings, log)
    assert "Put the key file back." in error.message(), "there is a store, and its key is missing"
    assert f"move {settings.store_root} away" in error.message()


def test_a_further_key_that_is_missing_is_named_and_the_store_is_left_alone(settings: Settings, log: Log) -> None:
    init_store(settings, {}, CLOCK)
    further = str(Path(settings.key_file).with_name("further"))
    error = refused(replace(settings, other_keys=(KeySource("file", further),)), log)
    assert (Code.KEY_UNKNOWN, True) == (error.code, further in error.message())
    assert "`oauthbroker keys new`" in error.message()
    assert settings.key_file not in str(error), "this one is there"
    assert " away" not in error.message()
    Path(further).write_text("none")
    Path(further).chmod(0o600)
    error = refused(replace(settings, other_keys=(KeySource("file", further),)), log)
    assert (Code.KEY_MISMATCH, True, False) == (error.code, further in error.note, settings.key_file in error.note)


@pytest.mark.parametrize("below", ["", "store"])
def test_a_file_in_the_place_of_the_store_is_one_cause_in_the_same_words(
    settings: Settings, log: Log, tmp_path: Path, below: str
) -> None:
    (tmp_path / "taken").touch()
    settings = replace(settings, store_root=str(tmp_path / "taken" / below))
    with pytest.raises(BrokerError) as raised:
        init_store(settings, {}, CLOCK)
    error = refused(settings, log)
    assert (Code.STORE_UNAVAILABLE, str(error)) == (error.code, str(raised.value))
    assert "a file is in its place" in error.note
    assert f"store: {settings.store_root}" in error.note
    assert not Path(settings.key_file).exists()


def test_a_key_of_another_store_does_not_open_it(settings: Settings, log: Log) -> None:
    init_store(settings, {}, CLOCK)
    Path(settings.key_file).unlink()
    FileKek.create(Path(settings.key_file))
    error = refused(settings, log)
    assert Code.KEY_MISMATCH is error.code
    assert settings.key_file in error.note


def test_a_store_of_another_format_is_named_by_its_place(settings: Settings, log: Log) -> None:
    init_store(settings, {}, CLOCK)
    keyring = data_of(settings) / "keyring"
    keyring.write_bytes(keyring.read_bytes().replace(b"oauthbroker-store-1", b"oauthbroker-store-9"))
    error = refused(settings, log)
    assert Code.STORE_FORMAT is error.code
    assert f"store: {settings.store_root}" in error.note
    assert settings.key_file not in error.note


def test_a_database_is_named_by_its_variable(settings: Settings) -> None:
    database = replace(settings, store_url_env="DB")
    assert (settings.store_root, "env:DB") == (word_of(settings), word_of(database))
    assert None is store_url(settings, {"DB": URL})
    url = store_url(database, {"DB": URL})
    assert url is not None
    assert URL == url.reveal()


@pytest.mark.parametrize("env", [{}, {"DB": ""}])
def test_a_variable_without_a_url_is_named(env: dict[str, str]) -> None:
    with pytest.raises(BrokerError) as raised:
        url_in("DB", env)
    assert (Code.STORE_UNAVAILABLE, True) == (raised.value.code, "DB" in raised.value.note)


async def test_the_audit_log_lies_beside_the_records_and_in_memory_for_a_store_in_memory(
    settings: Settings, log: Log
) -> None:
    memory = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=CLOCK)
    assert isinstance(default_audit(settings, memory, CLOCK, log), AuditList)
    init_store(settings, {}, CLOCK)
    async with open_keys(settings, env={}) as keys:
        assert isinstance(keys.audit, AuditFile)


# Without a broker


async def test_a_store_that_no_broker_has_opened_is_not_looked_into(settings: Settings, log: Log) -> None:
    init_store(settings, {}, CLOCK)
    ring = unlocked(settings, {}, log)
    assert None is look_into(settings, ring, env={}, clock=CLOCK)
    async with open_vault(settings, env={}, clock=CLOCK):
        pass
    found = look_into(settings, ring, env={}, clock=CLOCK)
    assert found is not None
    await found[0].close()


async def test_a_secret_that_is_set_without_a_broker_is_there_for_the_next_one(settings: Settings) -> None:
    init_store(settings, {}, CLOCK)
    async with open_vault(settings, env={}, clock=CLOCK) as vault:
        await vault.secrets.put("mail", "client", Secret("a-client-secret"))
    async with open_vault(settings, env={}, clock=CLOCK) as vault:
        assert [("mail", "client")] == await vault.secrets.names()
