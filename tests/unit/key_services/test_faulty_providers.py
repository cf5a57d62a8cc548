"""Key providers of other packages with faults: no keyring is lost, another key opens it, and the fault has a name."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.key_services import installed
from oauthbroker.store.keys.key_encryption_keys import EnvKek, FileKek, KeyProvider
from oauthbroker.store.keys.keyring_home import KeyringFile


class Faulty:
    """A provider whose methods can be replaced."""

    def __init__(self) -> None:
        sound = EnvKek(f"oab-kek-1:{'A' * 43}")
        self.id, self.wrap, self.unwrap, self.health = sound.id, sound.wrap, sound.unwrap, sound.health


def raises(error: BaseException) -> Callable[..., Any]:
    def method(*_: object) -> Any:
        raise error

    return method


FAULTS = {
    "an exception": (raises(RuntimeError("canary")), "RuntimeError at"),
    "a ValueError": (raises(ValueError("canary")), "ValueError at"),
    "the end of the process": (raises(SystemExit(3)), "SystemExit at"),
    "damage, without a word": (raises(BrokerError(Code.RECORD_CORRUPT)), "does not open its copy"),
    "another key": (raises(BrokerError(Code.KEY_MISMATCH)), "unwrap"),
    "nothing": (lambda *_: None, "an object of the type NoneType"),
    "a text": (lambda *_: "canary", "an object of the type str"),
    "too few bytes": (lambda *_: b"abc", "is not the key of this keyring"),
    "other bytes": (lambda *_: bytes(32), "is not the key of this keyring"),
}
faults = pytest.mark.parametrize("method, said", FAULTS.values(), ids=FAULTS)


@pytest.fixture
def faulty() -> Faulty:
    return Faulty()


@pytest.fixture
def provider(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> KeyProvider:
    point = type("Point", (), {"load": lambda _: lambda _settings: faulty})
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [point()])
    return installed.installed_provider("acme", {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "data" / "keyring"


def refusal(call: Callable[[], object]) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        call()
    assert "canary" not in str(caught.value)
    return caught.value


@faults
def test_a_provider_that_breaks_is_named_and_no_operator_is_told_to_restore_a_backup(
    provider: KeyProvider, faulty: Faulty, path: Path, method: Callable[..., Any], said: str
) -> None:
    KeyringFile(path, provider).create()
    faulty.unwrap = method
    refused = refusal(KeyringFile(path, provider).load)
    assert "the key provider acme" in refused.note
    assert said in refused.note
    assert "damaged" not in refused.note
    assert refused.code in {Code.KEY_UNKNOWN, Code.KEY_MISMATCH}


@faults
def test_another_key_opens_the_keyring_while_a_provider_breaks(
    provider: KeyProvider, faulty: Faulty, path: Path, tmp_path: Path, method: Callable[..., Any], said: str
) -> None:
    home = KeyringFile(path, provider, FileKek.create(tmp_path / "kek"))
    made = home.create()
    faulty.unwrap = method
    assert made.store_id == home.load().store_id, said
    assert [False, True] == [home.load().opens_with(each) for each in home.keks]


def test_another_key_opens_the_keyring_while_a_provider_cannot_say_its_id(
    provider: KeyProvider, faulty: Faulty, path: Path, tmp_path: Path
) -> None:
    home = KeyringFile(path, provider, FileKek.create(tmp_path / "kek"))
    home.create()
    faulty.id = raises(RuntimeError("canary"))
    home.load()


@pytest.mark.parametrize(
    "wrap",
    [lambda secret, _: secret, lambda *_: None, lambda *_: secrets.token_bytes(80), lambda *_: bytes(1 << 20)],
    ids=["as it is", "nothing", "other bytes", "too many bytes"],
)
def test_a_keyring_that_a_provider_would_not_open_again_replaces_none(
    provider: KeyProvider, faulty: Faulty, path: Path, wrap: Callable[..., Any]
) -> None:
    home = KeyringFile(path, provider)
    home.create()
    before, sound = path.read_bytes(), faulty.wrap
    faulty.wrap = wrap
    assert "the key provider acme" in refusal(lambda: home.change(lambda ring: ring.wrapped_for(home.keks))).note
    assert before == path.read_bytes()
    faulty.wrap = sound
    home.load()


def test_a_wrap_that_opens_as_other_bytes_replaces_no_keyring(
    provider: KeyProvider, faulty: Faulty, path: Path
) -> None:
    faulty.unwrap = lambda *_: bytes(32)
    assert "does not open its own wrap" in refusal(KeyringFile(path, provider).create).note
    assert not path.exists()


def test_two_keys_with_one_id_make_no_keyring_and_both_are_named(
    provider: KeyProvider, faulty: Faulty, path: Path, tmp_path: Path
) -> None:
    """The keyring has one wrap for each id: without the second key nothing would open it."""
    other = FileKek.create(tmp_path / "kek")
    faulty.id = other.id
    refused = refusal(KeyringFile(path, provider, other).create)
    assert f"the key provider acme and {other!r} are two keys with one id" in refused.note
    assert not path.exists()


def test_one_key_that_is_configured_twice_opens_its_wrap(provider: KeyProvider, path: Path) -> None:
    KeyringFile(path, provider, EnvKek(f"oab-kek-1:{'A' * 43}")).create()
    KeyringFile(path, provider).load()


def test_packages_that_have_one_key_provider_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [SimpleNamespace(dist=SimpleNamespace(name=name)) for name in ("acme-keys", "acme-hsm")]
    monkeypatch.setattr(metadata, "entry_points", lambda **_: points)
    refused = refusal(lambda: installed.installed_provider("acme", {}))
    assert "the key provider acme: the packages acme-hsm and acme-keys both have it" == refused.note


@pytest.mark.parametrize("found", [None, "", "a\n\x1b[31mb", "x" * 2000])
def test_an_id_is_a_short_printable_text(provider: KeyProvider, faulty: Faulty, found: Any) -> None:
    faulty.id = lambda: found
    assert "the key provider acme" in refusal(provider.id).note
