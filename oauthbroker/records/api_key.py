"""ApiKeyRecord: a caller of the API and its roles. The key itself is stored as its hash."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from oauthbroker.core.clock import LONG_AGO, has_passed, printed
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import has_digest
from oauthbroker.model.settings import Role
from oauthbroker.records import codec
from oauthbroker.records.codec import APART, OPTIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key. `name` is the caller's; several keys of one name belong to one caller whose key is being rotated.
    `ending_since` is when its early end was set."""

    locator: str = field(metadata=APART)
    name: str
    roles: frozenset[Role] = field(metadata=APART)
    created_at: datetime
    expires_at: datetime | None = None
    secret_hash: str = field(default="", repr=False)
    ending_since: datetime | None = field(default=None, metadata=OPTIONAL)

    @property
    def id(self) -> str:
        return f"key-{self.locator}"

    def matches(self, secret: str) -> bool:
        return has_digest(secret, self.secret_hash)

    def alive_at(self, now: datetime) -> bool:
        end, set_at = self.expires_at, self.ending_since or self.created_at
        at_once = end is not None and end <= set_at
        return end is None or not (at_once or has_passed(end, set_at, now))

    def is_rotated_out(self, now: datetime) -> bool:
        """Tell whether the overlap after a rotation has ended, but the key has not yet expired for good."""
        since, end = self.ending_since, self.expires_at
        return since is not None and end is not None and since < end and not self.alive_at(now)

    def ended(self, at: datetime, since: datetime | None) -> ApiKey:
        """Return the key with an earlier end. An end at or before `since` is final."""
        if at == LONG_AGO and self.ending_since is not None:
            return replace(self, ending_since=self.expires_at)
        if self.expires_at is not None and self.expires_at < at:
            return self
        return replace(self, expires_at=at, ending_since=since)

    def to_json(self) -> dict[str, Any]:
        """Return the key for lists, without the hash."""
        return {
            "id": self.id,
            "name": self.name,
            "roles": sorted(self.roles),
            "createdAt": printed(self.created_at),
            "expiresAt": printed(self.expires_at) if self.expires_at is not None else None,
        }

    def to_plaintext(self) -> bytes:
        spec = {"roles": sorted(self.roles), **codec.members(self)}
        return codec.encode("ApiKeyRecord", {"metadata": {"name": self.id}, "spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> ApiKey:
        data = codec.decode("ApiKeyRecord", body)
        locator, roles = data["metadata"]["name"].removeprefix("key-"), roles_of(data["spec"]["roles"])
        return codec.made(cls, data["spec"], locator=locator, roles=roles)


def roles_of(words: Collection[str]) -> frozenset[Role]:
    """Parse roles. Raises ValueError for an unknown role and for none."""
    known: dict[str, Role] = {"runtime": "runtime", "operator": "operator"}
    if not words or not known.keys() >= set(words):
        raise ValueError("roles are runtime and operator")
    return frozenset(known[word] for word in words)
