"""Which key opens the store: a key service before the environment, that before a credential, that before the file."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.config.key_file import CREDENTIALS_ENV
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.settings import KeySource, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.store.keys.key_encryption_keys import EnvKek, FileKek
from oauthbroker.testing import TestClock
from oauthbroker.wiring.key_sources import CREDENTIAL, KEY_ENV, key_free, key_origin, key_providers, provider_of

SERVICE = KeySource("vault", "transit-key")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(key_file=str(tmp_path / "broker.kek"), store_root=str(tmp_path / "store"))


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


def key_in(path: Path) -> str:
    """Make a key file and return its line, which is what the environment takes."""
    FileKek.create(path)
    return path.read_text().strip()


def test_the_origin_is_the_first_of_service_variable_credential_and_file(settings: Settings, tmp_path: Path) -> None:
    credentials = {CREDENTIALS_ENV: str(tmp_path)}
    assert settings.key_file == key_origin(settings, {})
    assert settings.key_file == key_origin(settings, credentials), "no credential of that name"
    (tmp_path / CREDENTIAL).touch()
    assert str(tmp_path / CREDENTIAL) == key_origin(settings, credentials)
    assert KEY_ENV == key_origin(settings, {**credentials, KEY_ENV: "a-key"})
    assert settings.key_file == key_origin(settings, {KEY_ENV: ""}), "an empty variable is none"
    assert "vault transit-key" == key_origin(replace(settings, key_service=SERVICE), {KEY_ENV: "a-key"})


def test_the_key_of_the_file_comes_first_and_further_ones_follow(
    settings: Settings, tmp_path: Path, log: io.StringIO
) -> None:
    key_in(Path(settings.key_file))
    key_in(tmp_path / "old.kek")
    others = replace(settings, other_keys=(KeySource("file", str(tmp_path / "old.kek")),))
    first, second = key_providers(others, {}, json_log(log, TestClock()))
    assert (FileKek.open(Path(settings.key_file)).id(), FileKek.open(tmp_path / "old.kek").id()) == (
        first.id(), second.id(),
    )  # fmt: skip
    assert "" == log.getvalue()


def test_a_key_in_the_environment_is_used_with_a_warning(settings: Settings, tmp_path: Path, log: io.StringIO) -> None:
    key = key_in(tmp_path / "another.kek")
    (provider,) = key_providers(settings, {KEY_ENV: key}, json_log(log, TestClock()))
    assert isinstance(provider, EnvKek)
    assert FileKek.open(tmp_path / "another.kek").id() == provider.id()
    assert 1 == log.getvalue().count("the key comes from the environment")
    assert key not in log.getvalue()


@pytest.mark.parametrize("which", ["store_root", "bundle_root"])
def test_no_key_lies_in_a_folder_that_is_copied_with_the_store_or_the_bundle(
    settings: Settings, tmp_path: Path, log: io.StringIO, which: str
) -> None:
    copied = tmp_path / "copied"
    copied.mkdir()
    key_in(copied / "kek")
    beside = replace(settings, key_file=str(copied / "kek"), **{which: str(copied)})  # type: ignore[arg-type]
    with pytest.raises(BrokerError) as refused:
        key_providers(beside, {}, json_log(log, TestClock()))
    assert Code.STORE_PERMISSIONS is refused.value.code
    assert copied in key_free(beside)


def test_folders_that_are_not_named_hold_nothing(settings: Settings) -> None:
    assert () == key_free(replace(settings, store_root="", bundle_root=""))


def test_a_token_file_in_the_store_is_refused_before_the_service_is_asked(settings: Settings, tmp_path: Path) -> None:
    source = KeySource(
        "vault", "transit-key", {"address": "https://vault.example", "tokenFile": str(tmp_path / "store/t")}
    )
    with pytest.raises(BrokerError) as refused:
        provider_of(source, {}, key_free(settings), None)
    assert Code.STORE_PERMISSIONS is refused.value.code


def test_a_missing_key_file_is_an_unknown_key(settings: Settings, log: io.StringIO) -> None:
    with pytest.raises(BrokerError) as refused:
        key_providers(settings, {}, json_log(log, TestClock()))
    assert Code.KEY_UNKNOWN is refused.value.code
