"""ApiKeyRecord: who may call the API, and as what. The key itself is kept as its hash."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from oauthbroker.clock import from_iso, printed, to_iso
from oauthbroker.records import codec
from oauthbroker.settings import Role


def hash_of(secret: str) -> str:
    """256 random bits need no slow hash: there is nothing to guess."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. `name` is the caller's; several keys of one name are one caller whose key is being changed."""

    locator: str
    name: str
    roles: frozenset[Role]
    created_at: datetime
    expires_at: datetime | None = None
    secret_hash: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        return f"key-{self.locator}"

    def matches(self, secret: str) -> bool:
        return hmac.compare_digest(self.secret_hash, hash_of(secret))

    def alive_at(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at

    def ended(self, at: datetime) -> ApiKey:
        return replace(self, expires_at=at if self.expires_at is None else min(at, self.expires_at))

    def to_json(self) -> dict[str, Any]:
        """For lists; without the hash."""
        return {
            "id": self.id,
            "name": self.name,
            "roles": sorted(self.roles),
            "createdAt": printed(self.created_at),
            "expiresAt": printed(self.expires_at) if self.expires_at is not None else None,
        }

    def to_plaintext(self) -> bytes:
        exact = {"createdAt": to_iso(self.created_at), "expiresAt": codec.iso(self.expires_at)}
        listed = {key: value for key, value in self.to_json().items() if key != "id"}
        spec = listed | exact | {"secretHash": self.secret_hash}
        return codec.encode("ApiKeyRecord", {"metadata": {"name": self.id}, "spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> ApiKey:
        data = codec.decode("ApiKeyRecord", body)
        spec = data["spec"]
        return cls(
            locator=data["metadata"]["name"].removeprefix("key-"),
            name=spec["name"],
            roles=roles_of(spec["roles"]),
            created_at=from_iso(spec["createdAt"]),
            expires_at=codec.moment(spec["expiresAt"]),
            secret_hash=spec["secretHash"],
        )


def roles_of(words: Collection[str]) -> frozenset[Role]:
    """Raises ValueError for a role that there is not, and for none."""
    known: dict[str, Role] = {"runtime": "runtime", "operator": "operator"}
    if not words or not known.keys() >= set(words):
        raise ValueError("roles are runtime and operator")
    return frozenset(known[word] for word in words)
