"""What every store with a keyring does alike: names and tags under its key, kinds, and who may use it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.store.format.entry_names import check_kinds
from oauthbroker.store.format.port import Damage, Key, Tag
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.keys.live_keyring import LiveKeyring


class KeyedStore:
    """The part of a `Store` that its keyring and its kinds decide. `kinds` have entries, `lease_kinds` only leases."""

    def __init__(
        self, keyring: Keyring, opened: OpenedHere, *, kinds: Sequence[str], lease_kinds: Sequence[str], damage: Damage
    ) -> None:
        check_kinds(*kinds, *lease_kinds)
        self.keyring, self._opened_here, self._on_damage = LiveKeyring(keyring), opened, damage
        self._kinds, self._lease_kinds = tuple(kinds), frozenset(lease_kinds)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.keyring!r}, {len(self._kinds)} kinds)"

    def key(self, kind: str, *parts: str) -> Key:
        if kind not in self._kinds and kind not in self._lease_kinds:
            raise ValueError(f"this store keeps no {kind!r}")
        return Key(kind, self.keyring.ring.name(kind, *parts))

    def mac(self, label: str, *parts: str) -> bytes:
        """Return 32 bytes that only brokers with this store's keyring can compute (for CSRF tokens and the like)."""
        return self.keyring.ring.mac(label, *parts)

    def tag(self, kind: str, label: str, *parts: str) -> Tag:
        self._check_kind(kind)
        return self.keyring.ring.tag(kind, label, *parts)

    async def tidy(self, lease_kinds: Collection[str]) -> None:
        """Do nothing: a free lease leaves nothing."""

    def _check_kind(self, kind: str) -> None:
        if kind not in self._kinds:
            raise ValueError(f"this store keeps no {kind!r}")
        self._opened_here.check_open()

    def _report_damage(self, key: Key, error: BrokerError) -> None:
        self._on_damage(f"{key.kind}/{key.name[:8]}", error.code)
