"""Where a store's keyring lies, with the keys that open it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.keyring import KeyProvider, Keyring
from oauthbroker.store.keys.keyring_file import read_keyring, replace_keyring, write_keyring
from oauthbroker.store.posix.system_calls import Fs, at_border


class KeyringHome(ABC):
    """The place of one keyring. Its methods block their thread, also to ask a key service."""

    def __init__(self, *keks: KeyProvider) -> None:
        """`keks` are the keys of the configuration. A new wrap is made for each of them, and the first one that can
        opens."""
        self.keks = keks

    @abstractmethod
    def keep(self, ring: Keyring) -> bool:
        """Keep the keyring of a new store, durably. False if a keyring or entries exist; one of several callers
        wins."""

    @abstractmethod
    def read(self) -> bytes | None:
        """Return the document, None for a new store. Raises `keyUnknown` for records without a keyring."""

    @abstractmethod
    def replace(self, before: bytes, ring: Keyring) -> None:
        """Replace the document, durably. Raises `storeLocked` if it is no longer `before`."""

    def create(self, *, clock: Clock | None = None) -> Keyring:
        """Make the keyring of a new store. Raises `keyExists` if there is a keyring, and `keyUnknown` if there are
        records that a new keyring could not open."""
        ring = Keyring.fresh(clock=clock).wrapped_for(self.keks)
        if not self.keep(ring):
            self.read()
            raise BrokerError(Code.KEY_EXISTS)
        return ring

    def load(self) -> Keyring:
        """Open the keyring, and change nothing. Raises as `Keyring.opened` does."""
        return Keyring.opened(self.read(), *self.keks)

    def change(self, change: Callable[[Keyring], Keyring]) -> Keyring:
        """Replace the keyring by another one that `change` makes of it, and return it. Call it under the lease of
        the keyring."""
        before = self.read()
        found = Keyring.opened(before, *self.keks)
        ring = change(found)
        if ring is not found:
            self.replace(before or b"", ring)
        return ring


class KeyringFile(KeyringHome):
    """The keyring of a store in files, at `<root>/data/keyring`. Raises `storePermissions` if others can access it."""

    def __init__(self, path: Path, *keks: KeyProvider, fs: Fs | None = None) -> None:
        super().__init__(*keks)
        self._path, self._fs = path, fs or Fs()

    def keep(self, ring: Keyring) -> bool:
        """Make the folders above the file, too."""
        return at_border(partial(write_keyring, self._fs, self._path, ring.document()))

    def read(self) -> bytes | None:
        return at_border(partial(read_keyring, self._fs, self._path))

    def replace(self, before: bytes, ring: Keyring) -> None:
        if self.read() != before:
            raise BrokerError(Code.STORE_LOCKED, note="another process has changed the keyring")
        at_border(partial(replace_keyring, self._fs, self._path, ring.document()))
