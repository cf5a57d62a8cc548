"""A key file whose name a loss of power could take is synced before a store relies on it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import FileKek
from oauthbroker.store.posix.system_calls import Fs


class Disk(Fs):
    """Counts the syncs, which fail with `error` if there is one."""

    def __init__(self, error: int = 0) -> None:
        self.error, self.syncs = error, 0

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        if self.error:
            raise OSError(self.error, "sync")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FileKek.create(tmp_path / "kek")
    return tmp_path / "kek"


@pytest.mark.parametrize("durably", [False, True])
def test_a_key_file_is_synced_where_it_must_last_and_nowhere_else(path: Path, durably: bool) -> None:
    disk = Disk()
    FileKek.open(path, fs=disk, durably=durably)
    assert durably == disk.syncs


@pytest.mark.parametrize("error", [errno.EROFS, errno.EINVAL])
def test_a_mounted_secret_that_takes_no_sync_is_opened(path: Path, error: int) -> None:
    assert FileKek.open(path).id() == FileKek.open(path, fs=Disk(error), durably=True).id()


def test_a_key_file_that_a_failing_disk_does_not_sync_is_refused(path: Path) -> None:
    with pytest.raises(BrokerError) as refused:
        FileKek.open(path, fs=Disk(errno.EIO), durably=True)
    assert Code.STORE_UNAVAILABLE is refused.value.code
