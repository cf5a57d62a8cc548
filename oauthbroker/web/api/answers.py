"""What callers get, a model each. They describe and judge answers; what is sent is made by the rooms themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from oauthbroker.core.errors import Code, Locale
from oauthbroker.model.apps import Flow
from oauthbroker.model.results import Reason
from oauthbroker.model.turn import SubjectMode
from oauthbroker.records import EventType
from oauthbroker.web.api.fields import (
    Absent,
    Confidential,
    GrantId,
    Model,
    Moment,
    NamedApp,
    NamedSwarm,
    PerhapsConfidential,
    SessionId,
    Subject,
    TurnId,
)

SessionState = Literal["pending", "completed", "failed", "expired"]
Plain = str | bool | int | float
PROVIDER_DATA = (
    "What the provider said beside the token and its preset declares for tools, such as the host of its API."
)
Known = Annotated[Code, Field(description="A code of the broker.")]


class TurnTokens(Model):
    """The tokens of a turn: `turnToken` for the runtime's own use, one narrowed token for each tool."""

    turnId: TurnId
    turnToken: Confidential
    toolTokens: Annotated[dict[str, str], Field(repr=False)]
    expiresAt: Moment


class Narrowed(Model):
    """The narrower token."""

    turnToken: Confidential
    expiresAt: Moment


class DevicePromptBody(Model):
    """Where a person goes, and what to type there."""

    verificationUri: Confidential
    verificationUriComplete: PerhapsConfidential = None
    userCode: Confidential
    interval: int


class ReadyResult(Model):
    """A token to call the provider with."""

    status: Literal["ready"]
    accessToken: Confidential
    tokenType: str
    scopes: list[str]
    expiresAt: Moment | Absent = None
    degraded: Annotated[Literal[True] | Absent, Field(description="It could not be renewed: it lives shorter.")] = None
    providerData: Annotated[dict[str, Plain] | Absent, Field(description=PROVIDER_DATA)] = None


class AuthorizationRequiredResult(Model):
    """A person has to agree first."""

    status: Literal["authorization_required"]
    authSessionId: SessionId
    authorizationUrl: Confidential
    expiresAt: Moment
    message: str
    reason: Reason
    deviceCode: DevicePromptBody | Absent = None


class ErrorBody(Model):
    """Why there is no token."""

    code: Known
    message: str
    retryable: bool
    retryAfterSeconds: int | Absent = None


class ErrorResult(Model):
    """Nothing that a person at a browser can mend."""

    status: Literal["error"]
    error: ErrorBody


TokenResultBody = Annotated[
    ReadyResult | AuthorizationRequiredResult | ErrorResult, Field(discriminator="status", title="TokenResult")
]


class PendingItem(Model):
    """One link that waits for a person. Without its link where links are delivered apart."""

    authSessionId: SessionId
    oauthAppRef: NamedApp
    provider: str
    subjectMode: SubjectMode
    authorizationUrl: PerhapsConfidential = None
    expiresAt: Moment
    message: str
    deviceCode: DevicePromptBody | Absent = None


class PendingBlock(Model):
    """The `auth.pending` block (specification 12.5.8). `items` is empty when nothing waits."""

    type: Literal["auth.pending"]
    items: list[PendingItem]


class PrivateLink(Model):
    """A link for one person's eyes."""

    authSessionId: SessionId
    authorizationUrl: Confidential
    subjectMode: SubjectMode
    subject: Subject
    expiresAt: Moment
    deviceCode: DevicePromptBody | Absent = None


class PrivateLinks(Model):
    """Links to deliver outside the transcript."""

    links: list[PrivateLink]


class EventBody(Model):
    """What wakes an agent up. The same `eventId` twice is the same event delivered twice."""

    eventId: str
    type: EventType
    swarmRef: NamedSwarm
    instanceKey: str
    agentName: str
    origin: dict[str, Any]
    auth: dict[str, Any]
    locale: Locale | Absent = None
    payload: dict[str, Any]
    createdAt: Moment


class LeasedEvent(Model):
    """An event to be settled with `ack` or `nack` before its lease ends; else it comes again."""

    event: EventBody
    lease: Confidential
    attempt: Annotated[int, Field(ge=1)]
    leaseExpiresAt: Moment


class SessionOutcomeBody(Model):
    """How an authorization stands; `code` says why a failed one failed."""

    authSessionId: SessionId
    status: SessionState
    code: Known | Absent = None


class Cancelled(Model):
    """False when there was nothing to cancel (any more)."""

    cancelled: bool


class ConnectionsLink(Model):
    """A link that opens the connections page once."""

    url: Confidential
    expiresAt: Moment


class GrantBody(Model):
    """One grant without its tokens."""

    grantId: GrantId
    app: str
    provider: str
    subject: str
    scopes: list[str]
    state: Literal["live", "revoked"]
    needs: Annotated[
        Literal["consent", "renewal"] | None,
        Field(description="Before a tool gets a token: a person agrees again, the next call renews it, or nothing."),
    ]
    expiresAt: Annotated[Moment | None, Field(description="Null where it never ends, or nobody knows when.")]
    refreshable: bool
    createdAt: Moment
    updatedAt: Moment
    authorizedBy: str | None
    eventsToSend: int
    providerToTell: bool
    providerData: Annotated[dict[str, Plain], Field(description=PROVIDER_DATA)]


class GrantPage(Model):
    """Grants in the order of their ids; `next` is where the following page begins."""

    grants: list[GrantBody]
    next: GrantId | Absent = None


class GrantEndedBody(Model):
    """What the provider knows of the end: it took note, refused to, cannot be told, was not told because another
    grant would have ended too, or will be told later."""

    grantId: GrantId
    provider: Literal["done", "refused", "none", "shared", "later"]


class ErasedBody(Model):
    """What there was of a subject, in records of each kind. `erased` is false where it was only counted, and where it
    has to wait: for `toTell` providers or `connecting` browsers."""

    erased: bool
    grants: int
    sessions: int
    events: int
    turns: int
    visits: int
    uses: int
    toTell: int
    connecting: int
    namedIn: Annotated[list[GrantId], Field(description="Grants of others that this subject agreed to or asked for.")]


class AppBody(Model):
    """An OAuthApp as its callers may know it: nothing of its client."""

    name: str
    title: str
    provider: str
    flow: Flow
    subjectMode: SubjectMode
    scopes: list[str]


class AppList(Model):
    """The apps that the caller may ask for."""

    apps: list[AppBody]


class HealthBody(Model):
    """`red`: an operator is needed; tokens are served all the same."""

    status: Literal["ok", "red"]
    problems: list[str] | Absent = None


class ReadyBody(Model):
    """Whether work may be sent here; `problems` are codes of the broker, or `stopping`."""

    status: Literal["ready", "unready"]
    problems: list[str] | Absent = None


class FieldProblem(Model):
    """Where a request is not as it should be. Never what was sent there."""

    pointer: Annotated[str, Field(description="RFC 6901; of an unknown field, the object that holds it.")]
    problem: Literal["missing", "unknown", "type", "value"]


class Problem(Model):
    """RFC 9457, with a code of the broker where there is one."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str | Absent = None
    code: Known | Absent = None
    retryable: bool | Absent = None
    retryAfterSeconds: int | Absent = None
    errors: list[FieldProblem] | Absent = None
