"""A raw store in memory, and records sealed for it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import EnvKek
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.migration.raw import LAST, RawRecord
from oauthbroker.store.posix.migration_marker import MigrationMarker

KINDS = ("grants", "sessions", "due")
KEK = EnvKek("oab-kek-1:" + "A" * 43)


class RawMemory:
    """A raw store that notes its changes. `in_use` are the answers of `users`, the last one for ever."""

    def __init__(self, word: str, document: bytes | None = None) -> None:
        self.word, self.document = word, document
        self.marker: MigrationMarker | None = None
        self.kept: dict[str, dict[str, RawRecord]] = {}
        self.changes, self.in_use, self.loose = list[tuple[Any, ...]](), [0], 0
        self.lost = list[str]()

    def keyring(self) -> bytes | None:
        return self.document

    def put_keyring(self, document: bytes) -> None:
        self.changes.append(("keyring",))
        self.document = document

    def mark(self) -> MigrationMarker | None:
        return self.marker

    def set_mark(self, mark: MigrationMarker | None, *, expect: MigrationMarker | None) -> None:
        if expect != self.marker:
            raise BrokerError(Code.STORE_LOCKED)
        self.changes.append(("mark", mark.state.value if mark is not None else None))
        self.marker = mark

    def users(self) -> int:
        return self.in_use.pop(0) if len(self.in_use) > 1 else self.in_use[0]

    def kinds(self) -> set[str]:
        return {kind for kind, records in self.kept.items() if records}

    def records(self, kind: str, after: str = "", *, upto: str = LAST, limit: int | None = None) -> list[RawRecord]:
        found = [each for name, each in sorted(self.kept.get(kind, {}).items()) if after < name <= upto]
        return found if limit is None else found[:limit]

    def count(self, kind: str) -> int:
        return len(self.kept.get(kind, ()))

    def write(self, kind: str, records: Collection[RawRecord]) -> None:
        self.changes.append(("write", kind, len(records)))
        self.kept.setdefault(kind, {}).update({each.name: each for each in records})

    def remove(self, kind: str, names: Iterable[str]) -> None:
        gone = list(names)
        self.changes.append(("remove", kind, len(gone)))
        for name in gone:
            del self.kept[kind][name]

    def missing(self, kinds: Collection[str]) -> list[str]:
        return [kind for kind in kinds if kind in self.lost]

    def loose_tags(self, kind: str) -> int:
        return self.loose

    def close(self) -> None: ...

    def fill(self, ring: Keyring, kind: str, *numbers: int, body: bytes = b"{}") -> None:
        for number in numbers:
            each = sealed(ring, kind, number, body)
            self.kept.setdefault(kind, {})[each.name] = each

    def damage(self, kind: str, number: int) -> None:
        each = self.kept[kind][name_of(number)]
        self.kept[kind][each.name] = each._replace(record=each.record[:-1] + bytes([each.record[-1] ^ 1]))


def ring_of_new_store() -> Keyring:
    return Keyring.fresh().wrapped_for([KEK])


def name_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def sealed(ring: Keyring, kind: str, number: int, body: bytes = b"{}") -> RawRecord:
    name = name_of(number)
    tags = frozenset({("app", name[:32])})
    return RawRecord(name, ring.seal(kind, name, 1, body), tags)
