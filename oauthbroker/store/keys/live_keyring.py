"""The keyring of an open store, which follows what other processes make of it.

A reader that meets an unknown seed, and a writer whose seed is no longer the active one, take the newer keyring before
they go on. The data key of a keyring stays the same when seeds come and go, so this asks a key service only after a
`rewrap`.
"""

from __future__ import annotations

import hashlib

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.keyring import KeyProvider, Keyring
from oauthbroker.store.keys.keyring_document import readable_epoch


class LiveKeyring:
    """The newest keyring that this process knows. `document` is the text that it was read from, empty until it is
    compared; `keks` open one with another data key. `goes_back` is for a store that may lose its last changes, those of
    the keyring too. Used by several threads."""

    __slots__ = ("document", "goes_back", "keks", "ring")

    def __init__(self, ring: Keyring) -> None:
        self.ring, self.document, self.goes_back = ring, b"", False
        self.keks: tuple[KeyProvider, ...] = ()

    def __repr__(self) -> str:
        return repr(self.ring)

    def seals(self, document: bytes | None) -> bool:
        """Return whether the active seed is still that of the store's document. A missing one changes nothing."""
        if document is None or document == self.document:
            return True
        return readable_epoch(document) == self.ring.epoch

    def adopt(self, document: bytes | None) -> bool:
        """Take the keyring of a document. False for the one that is in use. May block its thread, to ask a key service.
        Raises `storeUnavailable` for a document that no key opens here: the keyring in use stays."""
        if document is None or document == self.document:
            return False
        ring = self.ring.reopened(document) or self._unwrapped(document)
        if ring.epoch < self.ring.epoch and not self.goes_back:
            return False
        self.take(ring, document)
        return True

    def _unwrapped(self, document: bytes) -> Keyring:
        try:
            return Keyring.opened(document, *self.keks)
        except BrokerError as error:
            why = error.note
        raise BrokerError(Code.STORE_UNAVAILABLE, note=f"the keyring has changed, and does not open here: {why}")

    def take(self, ring: Keyring, document: bytes) -> None:
        self.ring, self.document = ring, document


def mark_of(document: bytes) -> bytes:
    """Return 16 bytes that name a document: a process that has opened it says so."""
    return hashlib.sha256(document).digest()[:16]
