"""Change the keys of an open store while brokers work on it. What happens in which order: docs/keys.md.

A new seed is first one that opens. It seals when every process has opened the keyring that has it. From then on no
process seals with the old one: a writer compares the epoch under its lock, or in its statement. So the records that
are sealed anew once stay so, and an old seed that no record needs is destroyed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NamedTuple, Protocol

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import on_thread
from oauthbroker.core.progress import Count, Progress, unseen
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.keys.keyring_home import KeyringHome
from oauthbroker.store.keys.live_keyring import LiveKeyring, mark_of

LEASE_KIND = "keys"
PATIENCE_SECONDS = 60.0  # a change that waits longer for another one answers `storeLocked`
POLL_SECONDS = 0.5
TOGETHER = 128  # records that a command seals anew at once: they share the waits for the disk
GENTLE_SECONDS = 0.002  # that a broker rests after each record that it seals anew


class SealedEntries(Protocol):
    """The entries of a store, and the processes that open them. Methods may raise `BrokerError` with a store code."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    async def document(self) -> bytes | None:
        """Return the stored keyring document."""
        ...

    async def report(self, mark: bytes) -> None:
        """Let the others see which document this process has opened."""
        ...

    async def behind(self, mark: bytes) -> int:
        """Count the living processes that have not opened this document."""
        ...

    async def settle_writers(self) -> None:
        """Wait until every write has ended that began before this call."""
        ...

    async def to_reseal(self, kind: str) -> int:
        """Count what `reseal` will yield, about: others may be writing."""
        ...

    def reseal(self, kind: str, together: int) -> AsyncIterator[Counter[bool | None]]:
        """Seal each entry of a kind under the active seed, in its generation, so many together. Counts those that were
        sealed anew, that were not, and, as None, that cannot be opened."""
        ...

    def seals(self, kind: str) -> AsyncIterator[Counter[bytes]]:
        """Count the entries of a kind by the id of their seed, some at a time."""
        ...


class SealedStore(Store, Protocol):
    """A store whose entries are sealed under a keyring."""

    @property
    def keyring(self) -> LiveKeyring: ...

    @property
    def sealed(self) -> SealedEntries: ...


class Resealed(NamedTuple):
    """What one pass over a store did. `unreadable` entries cannot be opened and stay as they are."""

    seen: int = 0
    resealed: int = 0
    unreadable: int = 0
    done: bool = True


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """Changes the keys of one open store. One process at a time makes a change, and can make it again after any
    interruption."""

    store: SealedStore
    home: KeyringHome
    clock: Clock

    def __post_init__(self) -> None:
        self.store.keyring.keks = self.home.keks

    @property
    def ring(self) -> Keyring:
        return self.store.keyring.ring

    async def follow(self) -> None:
        """Open the keyring anew if it has changed, and report it. Asks a key service only after a `rewrap`. Raises as
        `Keyring.opened` does; the keyring in use stays then."""
        live, document = self.store.keyring, await self.store.sealed.document()
        if document is None:
            raise BrokerError(Code.KEY_UNKNOWN, note="the keyring is missing")
        if document != live.document:
            await on_thread(partial(live.adopt, document))
        await self.store.sealed.report(mark_of(document))

    async def rotate(self, *, wait: float) -> bool:
        """Make a new seed the one that seals. False if a process could not open it within `wait` seconds: then it seals
        nothing yet, and the next call goes on with it."""
        async with self.store.lease(self.store.key(LEASE_KIND), wait=PATIENCE_SECONDS):
            await self._change(lambda ring: ring if ring.next_seed else ring.with_next_seed(self.clock))
            deadline = asyncio.get_running_loop().time() + wait
            while await self.behind():
                if asyncio.get_running_loop().time() >= deadline:
                    return False
                await asyncio.sleep(POLL_SECONDS)
            await self._change(lambda ring: ring.with_next_active() if ring.next_seed else ring)
        return True

    async def rewrap(self) -> None:
        """Wrap the keyring under a new data key for every key of the configuration, and no other one. Raises what a key
        raises that cannot be used; nothing has changed then."""
        async with self.store.lease(self.store.key(LEASE_KIND), wait=PATIENCE_SECONDS):
            await self._change(lambda ring: ring.wrapped_for(self.home.keks))

    async def reseal(
        self, *, rest: float = 0.0, wait: float = PATIENCE_SECONDS, progress: Progress = unseen
    ) -> Resealed:
        """Seal every record under the active seed, with `rest` seconds after each one. Raises `storeLocked` while
        another process does it."""
        await self.follow()
        if all(seed.resealed for seed in self.ring.old_seeds):
            return Resealed()
        async with self.store.lease(self.store.key(LEASE_KIND, "reseal"), wait=wait):
            epoch, counts, sealed = self.ring.epoch, Counter[bool | None](), self.store.sealed
            await sealed.settle_writers()
            count = Count("records sealed anew", sum([await sealed.to_reseal(kind) for kind in sealed.kinds]), progress)
            for kind in sealed.kinds:
                async for outcomes in sealed.reseal(kind, 1 if rest else TOGETHER):
                    counts += outcomes
                    count.add(outcomes.total())
                    await asyncio.sleep(rest if outcomes[True] else 0)
            done = not counts[None] and epoch == self.ring.epoch
            if done:
                async with self.store.lease(self.store.key(LEASE_KIND), wait=PATIENCE_SECONDS):
                    await self._change(lambda ring: ring.with_resealed() if ring.epoch == epoch else ring)
            return Resealed(counts.total(), counts[True], counts[None], done)

    async def retire(self, progress: Progress = unseen) -> int:
        """Destroy the old seeds. Returns how many entries are sealed with one of them; with any, nothing is changed."""
        async with self.store.lease(self.store.key(LEASE_KIND), wait=PATIENCE_SECONDS):
            await self.follow()
            await self.store.sealed.settle_writers()
            old, epoch = {seed.kid for seed in self.ring.old_seeds}, self.ring.epoch
            counted = await self.seals(progress)
            left = sum(counted[kid] for kid in old)
            if old and not left:
                await self._change(lambda ring: ring.without_old() if ring.epoch == epoch else ring)
            return left

    async def seals(self, progress: Progress = unseen) -> Counter[bytes]:
        """Count all entries by the id of their seed. Reads the header of every entry."""
        counted, sealed = Counter[bytes](), self.store.sealed
        count = Count("records counted", sum([await self.store.count(kind) for kind in sealed.kinds]), progress)
        for kind in sealed.kinds:
            async for some in sealed.seals(kind):
                counted += some
                count.add(some.total())
        return counted

    async def behind(self) -> int:
        """Count the living processes that have not opened the newest keyring."""
        document = await self.store.sealed.document()
        return 0 if document is None else await self.store.sealed.behind(mark_of(document))

    async def _change(self, change: Callable[[Keyring], Keyring]) -> None:
        await on_thread(partial(self.home.change, change))
        await self.follow()
