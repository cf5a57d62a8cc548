"""TurnRecord: a turn with tokens. The turn is over when the record is gone or has expired."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.turn import ResumeTarget, Turn
from oauthbroker.records import codec
from oauthbroker.records.codec import APART

Tools = Mapping[str, tuple[ToolAuth, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One turn. `tools` maps each tool to the auths it may request, None for those that the bundle declares."""

    locator: str = field(metadata=APART)
    turn: Turn = field(metadata=APART)
    created_at: datetime
    expires_at: datetime
    tools: Tools = field(default_factory=dict, metadata=APART)
    private_links: bool = False

    @property
    def id(self) -> str:
        return f"turn-{self.locator}"

    def __repr__(self) -> str:
        return f"TurnRecord({self.id[:12]}...)"

    def ended(self, at: datetime, since: datetime | None) -> TurnRecord:  # noqa: ARG002  (its own beginning bounds it)
        return replace(self, expires_at=min(at, self.expires_at))

    def to_plaintext(self) -> bytes:
        spec: dict[str, Any] = {
            "turn": self.turn.resume_target.to_json(),
            "tools": {tool: _auths_json(auths) for tool, auths in self.tools.items()},
            **codec.members(self),
        }
        return codec.encode("TurnRecord", {"metadata": {"name": self.id}, "spec": spec})

    @classmethod
    def from_plaintext(cls, body: bytes) -> TurnRecord:
        data = codec.decode("TurnRecord", body)
        spec = data["spec"]
        return codec.made(
            cls,
            spec,
            locator=data["metadata"]["name"].removeprefix("turn-"),
            turn=ResumeTarget.from_json(spec["turn"]).turn,
            tools={tool: _auths(auths) for tool, auths in spec["tools"].items()},
        )


def _auths_json(auths: tuple[ToolAuth, ...] | None) -> list[dict[str, Any]] | None:
    if auths is None:
        return None
    return [
        {"app": auth.app, "scopes": None if auth.scopes is None else list(auth.scopes)}
        | ({"delivery": "injected"} if auth.injected else {})
        for auth in auths
    ]


def _auths(data: list[dict[str, Any]] | None) -> tuple[ToolAuth, ...] | None:
    if data is None:
        return None
    return tuple(
        ToolAuth(each["app"], None if each["scopes"] is None else tuple(each["scopes"]), "delivery" in each)
        for each in data
    )
