"""GrantHead: what a list of all grants sorts, counts and looks for."""

from __future__ import annotations

from datetime import datetime
from sys import intern
from typing import NamedTuple

from oauthbroker.core.clock import from_iso
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records import codec
from oauthbroker.records.grant import Grant


class GrantHead(NamedTuple):
    """The beginning of a grant. Parsing it takes a third of the time that the grant takes, and a million take 250 MiB.
    `revocation_pending`: its provider has still to be told."""

    created_at: datetime
    key: GrantKey
    updated_at: datetime
    revoked: bool
    revocation_pending: bool

    @property
    def id(self) -> str:
        return self.key.id

    @property
    def unended(self) -> bool:
        """Tell whether the grant or its tokens can still be revoked, here or at the provider."""
        return not self.revoked or self.revocation_pending

    @classmethod
    def of(cls, grant: Grant) -> GrantHead:
        return cls(grant.created_at, grant.key, grant.updated_at, grant.revoked, grant.revocation_pending)

    @classmethod
    def from_plaintext(cls, body: bytes) -> GrantHead:
        data = codec.decode("OAuthGrantRecord", body)
        spec, status = data["spec"], data["status"]
        key = GrantKey(intern(spec["oauthAppRef"]["name"]), spec["subject"], intern(status.get("connection", "")))
        owed = status.get("retired") is not None or bool(status.get("elsewhere"))
        created_at, updated_at = from_iso(spec["createdAt"]), from_iso(spec["updatedAt"])
        return cls(created_at, key, updated_at, spec["revoked"], owed or status["revocation"] == "pending")
