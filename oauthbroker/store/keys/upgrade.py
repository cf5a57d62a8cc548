"""Upgrade a store in place. The keyring names the steps that are done and those under way: store/README.md.

A keyring that names a step under way is written before the step changes anything. So a broker that does not know the
step refuses the store from then on, and the next opening continues an upgrade that was interrupted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.format.port import Store
from oauthbroker.store.keys.keyring import Keyring, Upgrades
from oauthbroker.store.keys.keyring_home import KeyringHome

LEASE_KIND = "upgrade"
PATIENCE_SECONDS = 60.0  # an opening that waits longer for another one's upgrade answers `storeLocked`


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """One change of what lies in a store. `run` is idempotent, also after a crash in the middle of it, and is called
    by one process at a time."""

    name: str
    run: Callable[[Store], Awaitable[None]]


def names_of(steps: Sequence[UpgradeStep]) -> tuple[str, ...]:
    return tuple(step.name for step in steps)


def left_of(ring: Keyring, steps: Sequence[UpgradeStep]) -> tuple[str, ...]:
    """Return the names of the steps that the store still needs, in their order. Raises `keyMismatch` for a store that
    a newer broker has upgraded."""
    known, upgrades = names_of(steps), ring.upgrades or Upgrades()
    if not upgrades.names.issubset(known):
        raise BrokerError(Code.KEY_MISMATCH, note="a newer oauthbroker has upgraded this store: start that version")
    return tuple(name for name in known if name not in upgrades.done)


def is_behind(ring: Keyring, steps: Sequence[UpgradeStep]) -> bool:
    """Tell whether the store needs an upgrade: it is of the first format, or lacks a step. Raises `keyMismatch`."""
    return bool(left_of(ring, steps)) or ring.upgrades is None


async def upgrade(
    store: Store, ring: Keyring, file: KeyringHome, steps: Sequence[UpgradeStep], *, wait: float = PATIENCE_SECONDS
) -> None:
    """Run the steps that the store still needs. `ring` is its keyring as the store was opened with it.

    Costs nothing for a store that needs none. Waits for an upgrade in another process, at most `wait` seconds, then
    raises `storeLocked`. After any failure the next opening goes on.
    """
    if not is_behind(ring, steps):
        return
    async with store.lease(store.key(LEASE_KIND), wait=wait):
        await _run(store, file, steps)


async def _run(store: Store, file: KeyringHome, steps: Sequence[UpgradeStep]) -> None:
    ring = file.load()
    if not is_behind(ring, steps):
        return
    left, done = left_of(ring, steps), ring.upgrades.done if ring.upgrades is not None else ()
    file.rewrite(Upgrades(done, left))  # also where it says so: that process's sync may have failed
    for step in steps:
        if step.name in left:
            await step.run(store)
            done, left = (*done, step.name), left[1:]
            file.rewrite(Upgrades(done, left))
