"""Turn: who is acting, for whom, and where a granted answer has to go. Made by the runtime, never by a tool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from oauthbroker.errors import BrokerError, Code, Locale, known_locale

SubjectMode = Literal["global", "user"]
MAX_TARGET_BYTES = 64 * 1024
Json = Any  # what json.loads gives; checked where it is read


@dataclass(frozen=True, slots=True)
class TurnAuth:
    """`turn.auth`: the actor who caused the turn and the subjects it acts for.

    `actor` is `{type, id, display?}`; `subjects` has `global` and/or `user`, e.g. `slack:team:T111`.
    """

    actor: Mapping[str, str] = field(default_factory=dict)
    subjects: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {"actor": dict(self.actor), "subjects": dict(self.subjects)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> TurnAuth:
        return cls(actor=dict(data.get("actor", {})), subjects=dict(data.get("subjects", {})))


@dataclass(frozen=True, slots=True)
class ResumeTarget:
    """Where `auth.granted` goes: one agent's queue, one instance in it, and the turn context it brings back."""

    agent_name: str
    instance_key: str
    swarm_ref: str = "Swarm/default"
    origin: Mapping[str, Json] = field(default_factory=dict)
    auth: TurnAuth = field(default_factory=TurnAuth)
    locale: Locale | None = None

    @property
    def turn(self) -> Turn:
        """The turn that resumes the one which asked."""
        return Turn(self.agent_name, self.instance_key, self.swarm_ref, self.origin, self.auth, self.locale)

    @property
    def address(self) -> tuple[str, str, str]:
        """What makes two targets the same conversation: FIFO holds within it."""
        return (self.swarm_ref, self.agent_name, self.instance_key)

    def to_json(self) -> dict[str, Json]:
        """The `resume` block of specification 12.5.5, and `locale` where the turn has one."""
        kind, _, name = self.swarm_ref.partition("/")
        return {
            "swarmRef": {"kind": kind, "name": name},
            "instanceKey": self.instance_key,
            "agentName": self.agent_name,
            "origin": dict(self.origin),
            "auth": self.auth.to_json(),
            **({"locale": self.locale} if self.locale is not None else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ResumeTarget:
        swarm = data["swarmRef"]
        return cls(
            agent_name=data["agentName"],
            instance_key=data["instanceKey"],
            swarm_ref=f"{swarm['kind']}/{swarm['name']}",
            origin=data.get("origin", {}),
            auth=TurnAuth.from_json(data.get("auth", {})),
            locale=known_locale(data.get("locale")),
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """One event being worked on by one agent instance. `auth` is handed on unchanged when agents hand over.

    `locale` is the language of the person in this conversation, `en` or `ko`. None: the broker's.
    """

    agent_name: str
    instance_key: str
    swarm_ref: str = "Swarm/default"
    origin: Mapping[str, Json] = field(default_factory=dict)
    auth: TurnAuth | None = None
    locale: Locale | None = None

    def __post_init__(self) -> None:
        if self.swarm_ref.count("/") != 1:
            raise ValueError("swarm_ref is written Kind/name")

    @property
    def resume_target(self) -> ResumeTarget:
        auth = self.auth or TurnAuth()
        return ResumeTarget(self.agent_name, self.instance_key, self.swarm_ref, self.origin, auth, self.locale)

    def locale_or(self, default: Locale) -> Locale:
        """Return the language to answer this turn in."""
        return known_locale(self.locale) or default


def checked_target(target: ResumeTarget) -> ResumeTarget:
    """Where the event goes, as a session keeps it. Raises `requestInvalid` for what is not words and JSON of a sane
    size: nobody could be resumed there."""
    words = (target.agent_name, target.instance_key, target.swarm_ref)
    try:
        kept = json.dumps(target.to_json(), ensure_ascii=False, allow_nan=False)
        size = len(kept.encode())
    except (TypeError, ValueError, RecursionError):  # half an emoji of a message that was cut is a ValueError too
        kept, size = "", MAX_TARGET_BYTES + 1
    spoken = target.locale is None or known_locale(target.locale) is not None
    if size > MAX_TARGET_BYTES or not spoken or not all(isinstance(word, str) and word for word in words):
        raise BrokerError(Code.REQUEST_INVALID, note="the turn cannot be kept")
    return ResumeTarget.from_json(json.loads(kept))
