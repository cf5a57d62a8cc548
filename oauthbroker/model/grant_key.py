"""What a grant belongs to: an app, a subject, and one of the subject's accounts there."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

_LENGTH = struct.Struct(">Q").pack


class GrantKey(NamedTuple):
    """A connection. Locks, records and ids have its parts in their names.

    The empty account is the one of a turn that names none. Its names are those of (app, subject) alone.
    """

    app: str
    subject: str
    account: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of names in the store."""
        return tuple(self) if self.account else self[:2]

    @property
    def id(self) -> str:
        """Return the id of the grant."""
        return grant_id(*self)

    @property
    def connection(self) -> str:
        """Return what a call of the subject's turn may name: `app`, or `app@account`."""
        return f"{self.app}@{self.account}" if self.account else self.app

    def to_json(self) -> dict[str, str]:
        """Return the members of a record that lies beside the grant."""
        named = {"account": self.account} if self.account else {}
        return {"app": self.app, "subject": self.subject, **named}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> GrantKey:
        """Parse the members. Others are passed over. Raises KeyError."""
        return cls(data["app"], data["subject"], data.get("account", ""))


@lru_cache(4096)
def grant_id(app: str, subject: str, account: str = "") -> str:
    """Return `sha256:<hex>` over the length-prefixed parts of the key, so that (a:b, c) and (a, b:c) differ. Also
    `metadata.name`."""
    digest = hashlib.sha256()
    for text in GrantKey(app, subject, account).parts:
        part = text.encode("utf-8", "surrogatepass")
        digest.update(_LENGTH(len(part)) + part)
    return f"sha256:{digest.hexdigest()}"
