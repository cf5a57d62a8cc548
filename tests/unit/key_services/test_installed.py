"""Key providers of other packages, and the key file under the same contract."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.key_services.installed import GROUP, installed_provider
from oauthbroker.store.keys.key_encryption_keys import EnvKek, FileKek, KeyProvider
from oauthbroker.testing.key_provider_contract import KeyProviderContract


def acme(settings: Mapping[str, Any]) -> KeyProvider:
    return EnvKek(f"oab-kek-1:{settings['slot'] * 43}")


def broken(settings: Mapping[str, Any]) -> KeyProvider:
    raise RuntimeError("canary")


def nothing(settings: Mapping[str, Any]) -> None: ...


def locked(settings: Mapping[str, Any]) -> KeyProvider:
    raise BrokerError(Code.KEY_UNKNOWN, note="the HSM is locked")


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [metadata.EntryPoint(name, f"{__name__}:{name}", GROUP) for name in ("acme", "broken", "nothing", "locked")]
    for each, function in zip(made, (acme, broken, nothing, locked), strict=True):
        vars(each)["load"] = lambda function=function: function
    found = metadata.EntryPoints(
        [*made, metadata.EntryPoint("twice", "a:b", GROUP), metadata.EntryPoint("twice", "c:d", GROUP)]
    )
    monkeypatch.setattr(metadata, "entry_points", found.select)


class TestInstalled(KeyProviderContract):
    @pytest.fixture
    def provider(self) -> KeyProvider:
        return installed_provider("acme", {"slot": "A"})

    @pytest.fixture
    def stranger(self) -> KeyProvider:
        return installed_provider("acme", {"slot": "E"})


class TestKeyFile(KeyProviderContract):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> KeyProvider:
        return FileKek.create(tmp_path / "kek")

    @pytest.fixture
    def stranger(self, tmp_path: Path) -> KeyProvider:
        return FileKek.create(tmp_path / "other")


@pytest.mark.parametrize(
    "name, said",
    [
        ("missing", "no installed package"),
        ("twice", "both have it"),
        ("broken", "the key provider broken: RuntimeError"),
        ("nothing", "made no key provider"),
        ("locked", "the HSM is locked"),
    ],
)
def test_a_provider_that_cannot_be_used_is_one_clear_error(name: str, said: str):
    with pytest.raises(BrokerError) as caught:
        installed_provider(name, {})
    assert Code.KEY_UNKNOWN == caught.value.code
    assert said in caught.value.note
    assert "canary" not in str(caught.value)
