"""UseRecord: who used a grant's tokens first and last. Kept apart from the grant, whose record is about more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from oauthbroker.clock import from_iso, to_iso
from oauthbroker.records import codec


@dataclass(frozen=True, slots=True)
class Use:
    """Of one grant, by its id. `tool` is None where the runtime itself asked."""

    grant: str
    first_agent: str
    first_at: datetime
    agent: str
    tool: str | None
    at: datetime

    @classmethod
    def first(cls, grant: str, agent: str, tool: str | None, at: datetime) -> Use:
        return cls(grant, agent, at, agent, tool, at)

    @property
    def locator(self) -> str:
        """What it is filed under."""
        return self.grant

    def and_then(self, later: Use) -> Use:
        """With a later use; an earlier one changes nothing."""
        if later.at <= self.at:
            return self
        return replace(self, agent=later.agent, tool=later.tool, at=later.at)

    def to_plaintext(self) -> bytes:
        spec = {
            "firstAgent": self.first_agent,
            "firstAt": to_iso(self.first_at),
            "lastAgent": self.agent,
            "lastTool": self.tool,
            "lastAt": to_iso(self.at),
        }
        return codec.encode("UseRecord", {"metadata": {"name": self.grant}, "spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> Use:
        data = codec.decode("UseRecord", body)
        spec = data["spec"]
        return cls(
            grant=data["metadata"]["name"],
            first_agent=spec["firstAgent"],
            first_at=from_iso(spec["firstAt"]),
            agent=spec["lastAgent"],
            tool=spec["lastTool"],
            at=from_iso(spec["lastAt"]),
        )
