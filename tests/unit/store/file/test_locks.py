"""A lock that is held: when its holder counts it as lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.store.file.locks import HeldLock
from oauthbroker.store.posix.system_calls import Fs


class FailingStat(Fs):
    is_failing = False

    def stat(self, *name: Any, **folder: Any) -> os.stat_result:
        if self.is_failing:
            raise OSError(errno.EIO, "EIO")
        return super().stat(*name, **folder)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldLock]:
    folder = os.open(tmp_path, os.O_RDONLY)
    fd = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
    yield HeldLock(fs=FailingStat(), folder=folder, name="lock", fd=fd, file=os.fstat(fd))
    os.close(fd)
    os.close(folder)


async def test_a_lock_whose_file_has_its_name_is_held(held: HeldLock) -> None:
    assert (False, True) == (held.lost, await held.holds())


@pytest.mark.parametrize("happens", ["removed", "replaced", "the disk fails"])
async def test_a_lock_is_lost_once_another_process_may_hold_one_of_its_name(
    held: HeldLock, tmp_path: Path, happens: str
) -> None:
    if happens == "the disk fails":
        held.fs.is_failing = True  # type: ignore[attr-defined]
    else:
        (tmp_path / "lock").rename(tmp_path / "old")
    if happens == "replaced":
        (tmp_path / "lock").touch()
    assert (True, False) == (held.lost, await held.holds())
