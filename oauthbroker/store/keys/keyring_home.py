"""Where a store's keyring lies, with the keys that open it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.keyring import KeyProvider, Keyring
from oauthbroker.store.keys.keyring_document import keyring_missing
from oauthbroker.store.posix.atomic_files import create_whole, lock_soon
from oauthbroker.store.posix.checked_files import check_folder, closing, content_of
from oauthbroker.store.posix.folders import has_records, open_data
from oauthbroker.store.posix.system_calls import Fs, at_border

KEYRING, KEYRING_LIMIT = "keyring", 1024 * 1024  # the name of its file, and the most bytes in it


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
        """Make the folders above the file, too. A lock on the last one lets one writer win."""
        return at_border(partial(self._created, ring.document()))

    def read(self) -> bytes | None:
        return at_border(self._content)

    def replace(self, before: bytes, ring: Keyring) -> None:
        if self.read() != before:
            raise BrokerError(Code.STORE_LOCKED, note="another process has changed the keyring")
        at_border(partial(self._replaced, ring.document()))

    def _created(self, text: bytes) -> bool:
        with closing(self._fs, open_data(self._fs, self._path.parent.parent)) as folder:
            lock_soon(self._fs, folder)
            if self._path.name in self._fs.listdir(folder) or has_records(self._fs, folder):
                return False
            create_whole(self._fs, folder, self._path.name, text)
        return True

    def _content(self) -> bytes | None:
        try:
            folder = self._fs.open_root(self._path.parent)
        except FileNotFoundError:
            return None
        with closing(self._fs, folder):
            check_folder(self._fs.fstat(folder), self._path.parent.name)
            document = content_of(self._fs, folder, self._path.name, KEYRING_LIMIT)
            if document is None and has_records(self._fs, folder):
                raise keyring_missing(f"keyring: {self._path}")
            return document

    def _replaced(self, text: bytes) -> None:
        with closing(self._fs, self._fs.open_root(self._path.parent)) as folder:
            check_folder(self._fs.fstat(folder), self._path.parent.name)
            create_whole(self._fs, folder, self._path.name, text)
