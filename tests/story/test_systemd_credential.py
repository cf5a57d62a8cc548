"""The store's key as a systemd credential: `LoadCredential=oauthbroker.kek:...` in the unit, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.settings import Settings
from oauthbroker.store.keys.key_encryption_keys import FileKek, _check_key_file
from oauthbroker.wiring import init_store, open_vault
from oauthbroker.wiring.key_sources import CREDENTIAL, KEY_ENV, key_origin

ROOT, SERVICE, OTHER = 0, 990, 991  # user ids


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A new store, whose key file then lies where the configuration does not look for it."""
    made = Settings(
        public_base_url="https://broker.example", store_root=str(tmp_path / "store"), key_file=str(tmp_path / "kek")
    )
    init_store(made, {}, SystemClock())
    return replace(made, key_file=str(tmp_path / "elsewhere"))


@pytest.fixture
def credentials(tmp_path: Path, settings: Settings) -> Path:
    """The folder that systemd shows to the service, with the store's key."""
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o700)
    shutil.move(tmp_path / "kek", folder / CREDENTIAL)
    return folder


async def opened(settings: Settings, env: dict[str, str]) -> bool:
    async with open_vault(settings, env=env):
        return True


async def test_the_store_opens_with_the_credential_instead_of_the_key_file(
    settings: Settings, credentials: Path
) -> None:
    env = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert await opened(settings, env)
    assert str(credentials / CREDENTIAL) == key_origin(settings, env)
    with pytest.raises(BrokerError) as refused:
        await opened(settings, {})
    assert Code.KEY_UNKNOWN is refused.value.code


async def test_a_credential_comes_before_the_key_file_and_the_environment_before_both(
    settings: Settings, credentials: Path, tmp_path: Path
) -> None:
    other = FileKek.create(tmp_path / "elsewhere")
    env = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert await opened(settings, env)
    with pytest.raises(BrokerError) as refused:
        await opened(settings, env | {KEY_ENV: (tmp_path / "elsewhere").read_text()})
    assert Code.KEY_MISMATCH is refused.value.code
    assert other.id() not in str(refused.value)


SPOILT: dict[str, tuple[Callable[[Path], object], Code]] = {
    "of another name": (lambda path: path.rename(path.with_name("other")), Code.KEY_UNKNOWN),
    "open to all": (lambda path: path.chmod(0o444), Code.STORE_PERMISSIONS),
    "a link": (lambda path: path.symlink_to(path.rename(path.with_name("other"))), Code.STORE_PERMISSIONS),
    "no key": (lambda path: path.write_text("secret"), Code.KEY_MISMATCH),
}


@pytest.mark.parametrize("spoil", SPOILT)
async def test_a_spoilt_credential_is_refused(settings: Settings, credentials: Path, spoil: str) -> None:
    change, code = SPOILT[spoil]
    change(credentials / CREDENTIAL)
    with pytest.raises(BrokerError) as refused:
        await opened(settings, {"CREDENTIALS_DIRECTORY": str(credentials)})
    assert code is refused.value.code


@pytest.mark.parametrize(
    ("owner", "mode", "reader", "accepted"),
    [
        (SERVICE, 0o400, SERVICE, True),
        (ROOT, 0o440, SERVICE, True),  # systemd 254 and later: an access control list lets the service read it
        (ROOT, 0o400, SERVICE, True),
        (ROOT, 0o440, ROOT, False),  # a service of root gets 0400
        (ROOT, 0o444, SERVICE, False),
        (ROOT, 0o640, SERVICE, False),
        (OTHER, 0o440, SERVICE, False),
        (SERVICE, 0o440, SERVICE, False),
    ],
)
def test_a_credential_is_accepted_with_the_rights_that_systemd_gives_it(
    monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, reader: int, accepted: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: reader)
    found = os.stat_result((0o100000 | mode, 1, 1, 1, owner, owner, 57, 0, 0, 0))
    if accepted:
        _check_key_file(found)
        return
    with pytest.raises(BrokerError) as refused:
        _check_key_file(found)
    assert Code.STORE_PERMISSIONS is refused.value.code
