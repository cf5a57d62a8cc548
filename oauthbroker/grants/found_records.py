"""The records that an erasure finds of one subject, and its outcome."""

from __future__ import annotations

from typing import Any

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.plugins.declaration import SubjectRecords
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.repository.repository import Versioned


@dataclass(slots=True, kw_only=True)
class FoundRecords:
    """Records of one subject. `named_in` are grants of other subjects that this one agreed to, or asked for: they stay.
    `of_plugins` are records that plug-ins keep elsewhere.

    `unreadable` counts damaged records of its grants, which stay until an operator restores or removes them.
    `to_tell` counts grants whose provider has still to be told, `connecting` authorizations that are being finished.
    """

    subject: str
    grants: list[Grant] = field(default_factory=list)
    named_in: list[str] = field(default_factory=list)
    sessions: list[Versioned[AuthSession]] = field(default_factory=list)
    events: list[AgentEvent] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    browser_sessions: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)
    plugin_values: list[tuple[str, str]] = field(default_factory=list)
    of_plugins: SubjectRecords = field(default_factory=SubjectRecords)
    unreadable: int = 0

    @property
    def to_tell(self) -> int:
        return sum(grant.revocation_pending for grant in self.grants)

    @property
    def living(self) -> list[GrantKey]:
        """Grants to revoke first."""
        return [grant.key for grant in self.grants if not grant.revoked]

    @property
    def connecting(self) -> int:
        return sum(versioned.record.open and versioned.record.claim is not None for versioned in self.sessions)

    @property
    def ready(self) -> bool:
        """Whether everything may be removed."""
        return not (self.to_tell or self.living or self.connecting or self.of_plugins.ending)

    @property
    def empty(self) -> bool:
        return not any(self.counts().values()) and not self.unreadable

    def counts(self) -> dict[str, int]:
        counted = {kind: len(getattr(self, kind)) for kind in ("grants", "sessions", "events", "turns")}
        counted |= {"browserSessions": len(self.browser_sessions), "uses": len(self.uses)}
        return {**counted, "pluginValues": len(self.plugin_values), "pluginRecords": self.of_plugins.records}

    def to_json(self) -> dict[str, Any]:
        waits = {
            "toTell": self.to_tell,
            "connecting": self.connecting,
            "ending": self.of_plugins.ending,
            "unreadable": self.unreadable,
        }
        return {**self.counts(), **waits, "namedIn": sorted(self.named_in)}


@dataclass(frozen=True, slots=True)
class Erased:
    """The outcome. `done`: `found` has been removed. Otherwise some of it waits, and the same call goes on later."""

    done: bool
    found: FoundRecords

    def to_json(self) -> dict[str, Any]:
        return {"erased": self.done, **self.found.to_json()}
