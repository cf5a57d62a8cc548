"""The audit log: which token went to which tool and turn, and each change to a grant.

An entry is written before a secret leaves or a change is made; of a refresh or end, after it: no full disk stops it.
Entries are a closed set of types. They name grants by grantId and conversations by instanceKey, which the log stores as
pseudonyms, never a subject, account or secret. Each process appends to a `slot`, a `chain`; `trail` reads all as one.
"""

from __future__ import annotations

from oauthbroker.audit.line_type import LineType
from oauthbroker.core.dataclasses import dataclass


class AuditEntry(LineType):
    """The base of the entries: each action on a grant."""


@dataclass(frozen=True, kw_only=True)
class _OfSession:  # the first members of each entry about a session
    app: str
    session: str


@dataclass(frozen=True, kw_only=True)
class _OfGrant:
    app: str
    grant: str


@dataclass(frozen=True, kw_only=True)
class _OfTool(_OfGrant):  # a tool's use of it
    agent: str
    tool: str | None


class TokenIssued(_OfTool, AuditEntry):
    """A token was issued to a tool, or to the runtime; `turn` if a turn token was used, with its `instance`."""

    degraded: bool = False
    turn: str | None = None
    instance: str | None = None


class TokenInjected(_OfTool, AuditEntry):
    """A token was issued for a request that the broker sends with `method` to `host`; the tool does not get it.
    `team`: a user without a credential of their own got the team's."""

    degraded: bool = False
    turn: str | None = None
    instance: str | None = None
    method: str = ""
    host: str = ""
    team: bool = False


class InjectedAnswer(_OfTool, AuditEntry):
    """A provider's API answered the request of a `TokenInjected`, and the answer was passed on as far as it came."""

    method: str
    host: str
    status: int
    sent: int
    received: int
    turn: str | None = None
    instance: str | None = None


class StaticTokenIssued(AuditEntry):
    """A connector's configured token was issued."""

    connector: str


class AuthorizationRequested(_OfGrant, AuditEntry):
    """A session was opened, and the user is being asked."""

    session: str
    agent: str
    reason: str


class ConnectStarted(_OfSession, AuditEntry):
    """A browser pressed the button and left for the provider, or for the broker's own login before it."""


class OwnerConfirmed(_OfSession, AuditEntry):
    """The browser that brought a code was confirmed, and the code is redeemed next; `how` is the binding."""

    how: str


class LoginRefused(_OfSession, AuditEntry):
    """The broker's own login did not return the session's subject; `code` says why. The session stays."""

    code: str


class RequestWithdrawn(_OfSession, AuditEntry):
    """A request is being withdrawn. A session that ends otherwise meanwhile gets its own entry."""


class Connected(_OfGrant, AuditEntry):
    """A grant is being stored. `ConnectFailed` follows if storing fails."""

    session: str


class UnusualAnswer(_OfGrant, AuditEntry):
    """A grant has tokens of an unusual answer: `status`, `mediaType`, `encoding`, `lifetime`, separated by spaces."""

    unusual: str


class ElementChosen(_OfGrant, AuditEntry):
    """The user chooses one of several elements that a connection could stand for, such as a site."""

    session: str


class ConnectFailed(_OfSession, AuditEntry):
    """A session ended without a grant; `code` says why."""

    code: str


class TokensDropped(_OfSession, AuditEntry):
    """Received tokens were discarded. `revoked` says whether they were revoked at the provider by then. If not, the
    background work revokes them later where the subject has a grant's record; no other record may keep them."""

    code: str
    revoked: bool


class GrantEnded(_OfGrant, AuditEntry):
    """A grant was revoked here and issues no token from now on. `GrantRevoked` has the provider's part."""


class GrantRevoked(_OfGrant, AuditEntry):
    """The provider's part of a grant's end: `provider` is done, failed (to be retried), refused (for too long), none
    (it has no revocation) or shared (told when another grant ends, which would end too). The tokens are erased, unless
    it failed."""

    provider: str


class GrantErased(_OfGrant, AuditEntry):
    """A grant's record is being removed, tombstone included, because an operator erases its subject."""


class DeadLetterChanged(AuditEntry):
    """A dead letter gets new attempts or is removed for good; `action` is retried or dropped."""

    agent: str
    event: str
    action: str


class TokenRefreshed(_OfGrant, AuditEntry):
    """A grant has a new access token; `forced`: because a tool reported the old one as rejected."""

    forced: bool = False


class TokenRejected(_OfTool, AuditEntry):
    """A tool reported that the provider's API refused its token; `turn` and `instance` as in `TokenIssued`."""

    turn: str | None = None
    instance: str | None = None


class RefreshFailed(_OfGrant, AuditEntry):
    """A grant's token could not be refreshed; `code` says why."""

    code: str


class KeysChanged(AuditEntry):
    """An operator changes the keys of the store in this epoch; `action` is rotate, rewrap, reseal or retire."""

    action: str
    epoch: int


class RestoreAccepted(AuditEntry):
    """An operator lets brokers use a store that was restored. `since` is the time of its records."""

    since: str


class SecretChanged(AuditEntry):
    """A client secret was set or removed in the sealed secret store."""

    name: str
    action: str


class AuditGap(AuditEntry):
    """`missing` entries could not be written since `since`, and `audit.onFailure: continue` let the broker go on."""

    missing: int
    since: str


class TurnBegun(AuditEntry):
    """A runtime began a turn and got tokens for it."""

    turn: str
    agent: str


class TurnEnded(AuditEntry):
    """A runtime ended a turn, and its tokens with it."""

    turn: str


class ApiKeyChanged(AuditEntry):
    """An API key was created, set to expire because another one replaces it, or removed."""

    key: str
    name: str
    action: str


class GrantImported(_OfGrant, AuditEntry):
    """A grant of another system is being stored; `replaced`: it replaces an existing one. `slots` of a CredentialApp:
    `credential`, `next`, or `credential next`."""

    replaced: bool
    slots: str = ""


class ConnectionsOpened(AuditEntry):
    """A user opened the connections page with a one-time link."""

    browser: str


class OperatorEntered(AuditEntry):
    """An operator opened the admin pages; `name` is the login's subject, the API key's name, or `loopback`."""

    name: str
    browser: str


class PageAction(AuditEntry):
    """A person pressed a button on a page; `operator` is as in `OperatorEntered`, None for a user."""

    app: str
    browser: str
    operator: str | None
    action: str
    target: str


class CallMade(AuditEntry):
    """A change over the API. `caller` is a turn, a key or a user of this machine; `target` is a grant's, session's,
    turn's, browser session's or event's id, where the call has one."""

    route: str
    caller: str
    target: str | None


class CallRefused(AuditEntry):
    """A caller of the API was refused: a call for others, a subject, an app or scopes that its tool did not declare, a
    switch of accounts, a turn that is over; or, with `caller` None, a user at the login of the admin pages."""

    route: str
    code: str
    caller: str | None
    agent: str | None
    tool: str | None
