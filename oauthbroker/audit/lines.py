"""The lines of an audit log as a reader gets them, and the filter that selects some."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Protocol, TypedDict, Unpack

from oauthbroker.audit.formatting import Naming
from oauthbroker.core.clock import from_iso
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import check_argument
from oauthbroker.model.token_request import AppRef, app_name

_OURS = frozenset({"seq", "at", "type", "mac"})


class Which(TypedDict, total=False):
    """The caller's filter; a missing member, or None, selects all."""

    app: AppRef | None
    type: str | None
    grant: str | None
    names: Collection[str] | None
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """The parsed filter; None selects all. `grant` is a pseudonym, `names` are several, of grants and persons, of which
    an entry holds one. `since` and `until` are included."""

    app: str | None = None
    type: str | None = None
    grant: str | None = None
    names: Collection[str] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def spans(self, at: str) -> bool:
        """Tell whether a line's time is in the range. False for an unreadable time."""
        if self.since is None and self.until is None:
            return True
        try:
            moment = from_iso(at)
        except ValueError:
            return False
        return (self.since is None or self.since <= moment) and (self.until is None or moment <= self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One entry of the log. `fields` are the entry's own members, with grants, conversations and persons as
    pseudonyms (`AuditTrail.name`). `genuine`: its MAC follows the line before; None for a line of an old log without
    MACs. `seq` counts within one `slot`."""

    seq: int | None
    at: str
    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    genuine: bool | None = True
    slot: int = 0

    @property
    def grant(self) -> str | None:
        """Return the pseudonym of the entry's grant, also if it is the entry's target."""
        named = (self.fields.get("grant"), self.fields.get("target"))
        return next((name for name in named if isinstance(name, str) and name.startswith("grant-")), None)

    @property
    def details(self) -> list[tuple[str, Any]]:
        """Return the names and values of the entry, without the empty ones."""
        empty = (None, False, "")  # no set: a line that was tampered with may have a list
        return [(name, value) for name, value in self.fields.items() if value not in empty]

    def fits(self, sought: Sought) -> bool:
        if sought.app not in {None, self.fields.get("app")} or sought.type not in {None, self.type}:
            return False
        if sought.names is not None and not any(
            isinstance(it, str) and it in sought.names for it in self.fields.values()
        ):
            return False
        return sought.grant in {None, self.grant} and sought.spans(self.at)

    def to_json(self) -> dict[str, Any]:
        words = {"seq": self.seq, "at": self.at, "type": self.type, **self.fields, "genuine": self.genuine}
        return words | {"slot": self.slot}


class AuditTrail(Protocol):
    """The readable log, as `broker.audit_trail`."""

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:
        """Return the newest `n` matching lines of all slots by time, the newest last.

        `grant` is a pseudonym (`name("grant", ...)`), `names` are several of which an entry holds one; `since` and
        `until` are included; `app` takes any form of a reference. Reads at most 64 MiB. Raises `storeUnavailable`, and
        `requestInvalid` for an invalid app reference or number.
        """
        ...

    def name(self, kind: str, value: str) -> str:
        """Return the log's pseudonym: `name("grant", grantId)`, `name("instance", instanceKey)`, and
        `name("person", text)` for an id or a subject of a person."""
        ...


@dataclass(frozen=True, slots=True)
class NoTrail:
    """No trail: the embedding runtime keeps the entries itself."""

    name: Naming

    async def tail(self, n: int, **which: Unpack[Which]) -> list[AuditLine]:  # noqa: ARG002
        return []


def parsed(n: int, which: Which) -> Sought:
    """Parse the filter of the newest `n` lines. Raises `requestInvalid`, also for an invalid app reference."""
    check_argument(isinstance(n, int) and n >= 0, "n", "a number of lines, such as 20")
    app, others = which.get("app"), {name: value for name, value in which.items() if name != "app"}
    return Sought(app=None if app is None else app_name(app), **others)  # type: ignore[arg-type]


def line_from(found: Mapping[str, Any], *, genuine: bool | None, slot: int = 0) -> AuditLine | None:
    """Build a line from its members; None unless it has a time and a type."""
    at, kind = found.get("at"), found.get("type")
    if not isinstance(at, str) or not isinstance(kind, str):
        return None
    fields = {name: value for name, value in found.items() if name not in _OURS}
    return AuditLine(seq=found.get("seq"), at=at, type=kind, fields=fields, genuine=genuine, slot=slot)
