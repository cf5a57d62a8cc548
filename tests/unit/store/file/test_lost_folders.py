"""Folders that go while a store is open, or between two starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.repository.repository import KINDS, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing.stores import open_file_store

FOLDERS = ["data", *(f"data/{name}" for name in (*KINDS, "locks", "tags", "corrupt"))]


async def filled(tmp_path: Path) -> FileStore:
    store = open_file_store(tmp_path)
    await store.put(store.key("secrets", "a"), b"a", expect=0)
    return store


async def test_a_kind_of_a_newer_version_gets_its_folder_and_a_lost_one_does_not(tmp_path: Path) -> None:
    await (await filled(tmp_path)).close()
    data = tmp_path / "store" / "data"
    await open_file_store(tmp_path, kinds=(*KINDS, "newer")).close()
    assert (data / "newer").is_dir()
    (data / "waiting").rmdir()
    with pytest.raises(BrokerError, match="data/waiting is missing: restore it from a backup") as refused:
        open_file_store(tmp_path)
    assert (Code.STORE_UNAVAILABLE, True) == (refused.value.code, refused.value.lasting)
    assert not (data / "waiting").exists()


async def test_a_first_start_that_a_crash_cut_off_goes_on(tmp_path: Path) -> None:
    await open_file_store(tmp_path).close()
    for kind in ("grants", "tags"):
        (tmp_path / "store" / "data" / kind).rmdir()
    await (await filled(tmp_path)).close()


@pytest.mark.parametrize(
    ("name", "told"), [("store", "store/data"), *((f"store/{name}", f"store/{name}") for name in FOLDERS)]
)
async def test_a_folder_that_was_moved_away_takes_no_reservation_until_it_is_back(
    tmp_path: Path, name: str, told: str
) -> None:
    """Descriptors still lead to it; the next start would not, and another process would take other locks."""
    repository = Repository(await filled(tmp_path))
    await repository.probe()
    place, away = tmp_path / name, tmp_path / "away"
    place.rename(away)
    with pytest.raises(BrokerError, match=f"{tmp_path / told} was moved away or replaced: put it back"):
        await repository.probe()
    place.write_bytes(b"")
    with pytest.raises(BrokerError, match=f"{tmp_path / told} was moved away or replaced: put it back"):
        await repository.probe()
    place.unlink()
    shutil.copytree(away, place)
    with pytest.raises(BrokerError, match="or restart the broker on the folder that is there now") as refused:
        await repository.probe()
    assert (Code.STORE_UNAVAILABLE, True) == (refused.value.code, refused.value.lasting)
    shutil.rmtree(place)
    away.rename(place)
    await repository.probe()
    await repository.close()
