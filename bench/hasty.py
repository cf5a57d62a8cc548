"""A store that is filled quickly, for benches that measure work over many grants and not their making."""

from __future__ import annotations

from oauthbroker.store.posix.system_calls import Fs


class Hasty(Fs):
    """Waits for no disk, so that the grants are there soon. It serves measurements of reads, not of writes."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""
