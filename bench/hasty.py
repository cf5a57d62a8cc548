"""A store that is filled quickly, for benches that measure what is done over many grants and not how they got there."""

from __future__ import annotations

from oauthbroker.store.file.fs import Fs


class Hasty(Fs):
    """Waits for no disk, so that the grants are there soon. What is measured with it are reads, not writes."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""
