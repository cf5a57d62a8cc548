"""The keyring of a world's store, and the key that opens it."""

from __future__ import annotations

from functools import cache

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import LocalKek
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.keys.keyring_home import KeyringHome
from tests.world.database import Database


@cache
def kek() -> LocalKek:
    return LocalKek(bytes(range(32)))


class KeyringRow(KeyringHome):
    """The keyring in the database, as `KeyringTable` keeps it, for one host."""

    def __init__(self, database: Database, host: str) -> None:
        super().__init__(kek())
        self._database, self._host = database, host

    def keep(self, ring: Keyring) -> bool:
        if self._database.tables.keyring is not None or self._database.tables.entry:
            return False
        self._database.tables.keyring = ring.document(), ring.epoch
        return True

    def read(self) -> bytes | None:
        if self._database.refuses(self._host):
            raise BrokerError(Code.STORE_UNAVAILABLE, note="database: OperationalError")
        found = self._database.tables.keyring
        return None if found is None else found[0]

    def replace(self, before: bytes, ring: Keyring) -> None:
        if self.read() != before:
            raise BrokerError(Code.STORE_LOCKED, note="another process has changed the keyring")
        self._database.tables.keyring = ring.document(), ring.epoch
