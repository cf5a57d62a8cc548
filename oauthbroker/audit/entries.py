"""Audit: what was done with whose grant. Written before a secret leaves; no audit, no secret.

Entries are a closed set of types. They name grants by grantId and conversations by instanceKey, which the log knows by
keyed names only, and never a subject, an account or a secret. The log's own lines are in `audit/chain`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Protocol

from oauthbroker.clock import to_iso


@dataclass(frozen=True, slots=True)
class TokenIssued:
    """A token left the broker for a tool (or, tool None, for the runtime itself); `turn` where it was asked for with
    a turn token, and whose conversation `instance` is."""

    app: str
    grant: str
    agent: str
    tool: str | None
    degraded: bool = False
    turn: str | None = None
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class StaticTokenIssued:
    """A connector's configured token left the broker."""

    connector: str


@dataclass(frozen=True, slots=True)
class AuthorizationRequested:
    """A session was opened: somebody is being asked."""

    app: str
    grant: str
    session: str
    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectStarted:
    """A browser pressed the button and left for the provider, or for the broker's own login before it."""

    app: str
    session: str


@dataclass(frozen=True, slots=True)
class OwnerConfirmed:
    """Somebody vouched for the browser that brought a code, which is redeemed next; `how` is the binding."""

    app: str
    session: str
    how: str


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """Nobody came back from the broker's own login as the session's subject; `code` says why. The session stays."""

    app: str
    session: str
    code: str


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """A request is being taken back: its link dies. The entry comes first; what ends otherwise meanwhile says so."""

    app: str
    session: str


@dataclass(frozen=True, slots=True)
class Connected:
    """A grant is being written: the entry comes first, `ConnectFailed` follows if it could not be."""

    app: str
    grant: str
    session: str


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """A session ended without a grant; `code` says why."""

    app: str
    session: str
    code: str


@dataclass(frozen=True, slots=True)
class TokensDropped:
    """Tokens came back that we did not keep. `revoked` says whether the provider was told."""

    app: str
    session: str
    code: str
    revoked: bool


@dataclass(frozen=True, slots=True)
class GrantEnded:
    """A grant was revoked here: from now on nobody gets its token. `GrantRevoked` says what its provider knows."""

    app: str
    grant: str


@dataclass(frozen=True, slots=True)
class GrantRevoked:
    """What the provider knows of a grant's end: `provider` is done, failed (to be retried), refused (for too long),
    none (it cannot be told) or shared (telling would end another grant too). Tokens are erased, unless it failed."""

    app: str
    grant: str
    provider: str


@dataclass(frozen=True, slots=True)
class GrantErased:
    """A grant's record is being removed, tombstone included, because an operator erases its subject."""

    app: str
    grant: str


@dataclass(frozen=True, slots=True)
class DeadLetterChanged:
    """A dead letter gets its attempts anew or is removed for good; `action` is retried or dropped. The entry comes
    first."""

    agent: str
    event: str
    action: str


@dataclass(frozen=True, slots=True)
class TokenRenewed:
    """A grant has a new access token; `forced`: because a tool reported the old one as rejected."""

    app: str
    grant: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class TokenRejected:
    """A tool says that the provider's API refused the token it was given; `turn` and `instance` as above."""

    app: str
    grant: str
    agent: str
    tool: str | None
    turn: str | None = None
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class RenewalFailed:
    """A grant's token could not be renewed; `code` says why."""

    app: str
    grant: str
    code: str


@dataclass(frozen=True, slots=True)
class SecretChanged:
    """A client secret was set or removed in the sealed secret store."""

    name: str
    action: str


@dataclass(frozen=True, slots=True)
class AuditGap:
    """`missing` entries could not be written since `since`, and `audit.onFailure: continue` let the house go on."""

    missing: int
    since: str


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """A runtime began a turn and got tokens for it."""

    turn: str
    agent: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A runtime ended a turn: its tokens are dead."""

    turn: str


@dataclass(frozen=True, slots=True)
class ApiKeyChanged:
    """An API key was created, is expiring because another one replaces it, or was removed."""

    key: str
    name: str
    action: str


@dataclass(frozen=True, slots=True)
class GrantImported:
    """A grant of another system is being written; `replaced`: in the place of one that was here."""

    app: str
    grant: str
    replaced: bool


@dataclass(frozen=True, slots=True)
class ConnectionsOpened:
    """Somebody used a one-time link to the page of what is connected."""

    visit: str


@dataclass(frozen=True, slots=True)
class OperatorEntered:
    """An operator came in to the admin pages; `name` is the API key's, or `loopback`."""

    name: str
    visit: str


@dataclass(frozen=True, slots=True)
class PageAction:
    """Somebody pressed a button on a page of ours; `target` is a grant's, session's or event's id."""

    app: str
    visit: str
    action: str
    target: str


@dataclass(frozen=True, slots=True)
class CallMade:
    """Somebody changes something over the API; the entry comes first, and what came of it follows. `caller` is a turn,
    a key or a user of this machine; `target` is a grant's, session's, turn's, visit's or event's id, where the call has
    one."""

    route: str
    caller: str
    target: str | None


@dataclass(frozen=True, slots=True)
class CallRefused:
    """A known caller of the API reached for what is not theirs: a call for others, a subject, an app or scopes
    that their tool did not declare, a switch of accounts by a tool, a turn that is over. `caller` is a turn, a key or a
    user of this machine. Or a visitor was turned away at the entrance of the admin pages; then `caller` is null."""

    route: str
    code: str
    caller: str | None
    agent: str | None
    tool: str | None


Entry = (
    TokenIssued
    | StaticTokenIssued
    | AuthorizationRequested
    | ConnectStarted
    | OwnerConfirmed
    | LoginRefused
    | RequestWithdrawn
    | Connected
    | ConnectFailed
    | TokensDropped
    | GrantEnded
    | GrantRevoked
    | GrantErased
    | DeadLetterChanged
    | TokenRenewed
    | TokenRejected
    | RenewalFailed
    | SecretChanged
    | AuditGap
    | TurnBegun
    | TurnEnded
    | ApiKeyChanged
    | GrantImported
    | ConnectionsOpened
    | OperatorEntered
    | PageAction
    | CallMade
    | CallRefused
)


class AuditWriter(Protocol):
    """Where entries go. `write` returns when the entry is kept, or raises `storeUnavailable`."""

    def write(self, entry: Entry, at: datetime) -> None: ...

    def close(self) -> None: ...


Naming = Callable[[str, str], str]
"""(kind, value) -> a name that only brokers with this store's keys can make."""


def line_of(entry: Entry, at: datetime) -> str:
    """One JSON line in plain words: `at`, `type`, then the entry's own fields."""
    return f'{{"at":"{to_iso(at)}",{rest_of(entry)}}}\n'


def rest_of(entry: Entry, name: Naming | None = None) -> str:
    """All but the time, without a closing brace; with `name`, grants and conversations go by their keyed names."""
    body: dict[str, Any] = {"type": type(entry).__name__}
    for field in fields(entry):
        value = getattr(entry, field.name)
        kind = _keyed(field.name, value) if name is not None else None
        body[field.name] = value if name is None or kind is None else name(kind, str(value))
    return json.dumps(body, separators=(",", ":"))[1:-1]


def _keyed(member: str, value: object) -> str | None:
    """The kind of name that a member is written under; None for what may be read by everybody."""
    if value is None:
        return None
    if member == "target":
        return "grant" if str(value).startswith("sha256:") else None
    return member if member in {"grant", "instance"} else None


class AuditList:
    """Entries kept in memory, for embedding without a disk and for tests."""

    def __init__(self) -> None:
        self.lines: list[tuple[datetime, Entry]] = []

    @property
    def entries(self) -> list[Entry]:
        return [entry for _, entry in self.lines]

    def write(self, entry: Entry, at: datetime) -> None:
        self.lines.append((at, entry))

    def close(self) -> None:
        """Nothing to let go of."""
