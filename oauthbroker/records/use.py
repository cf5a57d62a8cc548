"""UseRecord: the first and the last use of a grant's tokens. Stored apart from the grant, which changes less often."""

from __future__ import annotations

from datetime import datetime, timedelta

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.records import codec
from oauthbroker.records.codec import APART, named

LATE = timedelta(hours=1)  # no process keeps a use in memory this long before writing it


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantUse:
    """The uses of one grant, by its id. `tool` is None if the runtime itself asked."""

    grant: str = field(metadata=APART)
    first_agent: str
    first_at: datetime
    agent: str = field(metadata=named("lastAgent"))
    tool: str | None = field(metadata=named("lastTool"))
    at: datetime = field(metadata=named("lastAt"))

    @classmethod
    def first(cls, grant: str, agent: str, tool: str | None, at: datetime) -> GrantUse:
        return cls(grant=grant, first_agent=agent, first_at=at, agent=agent, tool=tool, at=at)

    @property
    def locator(self) -> str:
        """Return the locator of the record: the grant's id."""
        return self.grant

    def and_then(self, later: GrantUse) -> GrantUse:
        """Return the record with a later use. An earlier one changes nothing, unless the clock was set back in
        between."""
        if later.at <= self.at <= later.at + LATE:
            return self
        return replace(self, agent=later.agent, tool=later.tool, at=later.at)

    def to_plaintext(self) -> bytes:
        spec = codec.members(self)
        return codec.encode("UseRecord", {"metadata": {"name": self.grant}, "spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> GrantUse:
        data = codec.decode("UseRecord", body)
        return codec.made(cls, data["spec"], grant=data["metadata"]["name"])
