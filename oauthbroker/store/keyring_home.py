"""Where a store's keyring lies, with the keys that open it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.file.system_calls import Fs, at_border
from oauthbroker.store.keyring import KeyProvider, Keyring, Upgrades
from oauthbroker.store.keyring_file import read_keyring, replace_keyring


class KeyringHome(ABC):
    """The place of one keyring. Its methods block their thread, also to ask a key service."""

    @property
    @abstractmethod
    def keks(self) -> tuple[KeyProvider, ...]:
        """The keys of the configuration. A new wrap is made for each of them, and the first one that can opens."""

    @abstractmethod
    def read(self) -> bytes | None:
        """Return the document, or None."""

    @abstractmethod
    def replace(self, before: bytes, ring: Keyring) -> None:
        """Replace the document, durably. Raises `storeLocked` if it is no longer `before`."""

    def load(self) -> Keyring:
        """Open the keyring. Raises as `Keyring.opened` does."""
        return Keyring.opened(self.read(), *self.keks)

    def change(self, change: Callable[[Keyring], Keyring]) -> Keyring:
        """Replace the keyring by another one that `change` makes of it, and return it. Call it under the lease of
        upgrades."""
        before = self.read()
        found = Keyring.opened(before, *self.keks)
        ring = change(found)
        if ring is not found:
            self.replace(before or b"", ring)
        return ring

    def rewrite(self, upgrades: Upgrades) -> Keyring:
        """Replace the keyring by one that names these upgrades, and return it. Its keys and wraps stay."""
        return self.change(lambda ring: ring.with_upgrades(upgrades))


@dataclass(frozen=True, slots=True)
class KeyringFile(KeyringHome):
    """The keyring of a store in files."""

    path: Path
    kek: KeyProvider
    fs: Fs | None = None
    _: KW_ONLY
    also: tuple[KeyProvider, ...] = ()

    @property
    def keks(self) -> tuple[KeyProvider, ...]:
        return (self.kek, *self.also)

    def read(self) -> bytes | None:
        return at_border(partial(read_keyring, self.fs or Fs(), self.path))

    def replace(self, before: bytes, ring: Keyring) -> None:
        if self.read() != before:
            raise BrokerError(Code.STORE_LOCKED, note="another process has changed the keyring")
        at_border(partial(replace_keyring, self.fs or Fs(), self.path, ring.document()))
