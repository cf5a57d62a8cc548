"""What callers send and get, a model each. Names are the specification's; docs/api.md shows them in use."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from oauthbroker.apps import Flow
from oauthbroker.errors import Code
from oauthbroker.records import EventType
from oauthbroker.results import Reason
from oauthbroker.turn import SubjectMode
from oauthbroker.web.api.fields import (
    Absent,
    AgentName,
    AppRef,
    Concealed,
    Confidential,
    GrantId,
    Line,
    Model,
    Moment,
    Name,
    NamedApp,
    NamedSwarm,
    PerhapsConfidential,
    Ref,
    Scopes,
    SessionId,
    Subject,
    TurnId,
)

SessionState = Literal["pending", "completed", "failed", "expired"]
Known = Annotated[Code, Field(description="A code of docs/errors.md.")]
MAX_TTL = 10 * 365 * 24 * 3600


class Subjects(Model):
    """Whom a turn acts for. Only the runtime can say it."""

    global_: Annotated[Subject | None, Field(alias="global", examples=["slack:team:T111"])] = None
    user: Annotated[Subject | None, Field(examples=["slack:user:T111:U234567"])] = None

    def given(self) -> dict[str, str]:
        pairs = {"global": self.global_, "user": self.user}
        return {mode: subject for mode, subject in pairs.items() if subject is not None}


class TurnAuthBody(Model):
    """Who caused the turn, and whom it acts for."""

    actor: dict[str, str] = Field(default_factory=dict, examples=[{"type": "user", "id": "slack:U234567"}])
    subjects: Subjects = Field(default_factory=Subjects)


class TurnBody(Model):
    """The turn, as the runtime knows it."""

    agentName: AgentName
    instanceKey: Line
    swarmRef: Annotated[Ref | NamedSwarm, Field(description="Default: `Swarm/default`.")] = "Swarm/default"
    origin: dict[str, Any] = Field(default_factory=dict, description="Handed back with the event.")
    auth: TurnAuthBody = Field(default_factory=TurnAuthBody)


class ToolAuthBody(Model):
    """One app a tool may ask for, and which of its scopes."""

    oauthAppRef: AppRef
    scopes: Scopes = None


class BeginTurn(Model):
    """A turn that needs tokens."""

    turn: TurnBody
    tools: dict[Ref, list[ToolAuthBody] | None] = Field(
        default_factory=dict,
        max_length=200,
        description="Tools to make tokens for, and what each may ask for; null: what the bundle declares.",
    )
    ttlSeconds: Annotated[int | None, Field(ge=1, le=MAX_TTL, description="At most `limits.turnSeconds`.")] = None
    privateLinks: Annotated[bool, Field(description="Links only by `GET /v1/turn/links`.")] = False


class TurnBegun(Model):
    """The tokens of a turn: `turnToken` for the runtime's own use, one narrowed token for each tool."""

    turnId: TurnId
    turnToken: Confidential
    toolTokens: Annotated[dict[str, str], Field(repr=False)]
    expiresAt: Moment


class Narrow(Model):
    """What the new token may at most."""

    tool: Ref | None = None
    apps: Annotated[list[ToolAuthBody] | None, Field(max_length=200)] = None
    ttlSeconds: Annotated[int | None, Field(ge=1, le=MAX_TTL)] = None


class Narrowed(Model):
    """The narrower token."""

    turnToken: Confidential
    expiresAt: Moment


class TokenRequest(Model):
    """The specification's request (12.5.1). There is no field for a subject: it is the turn's."""

    oauthAppRef: AppRef
    scopes: Scopes = None
    minTtlSeconds: Annotated[int | None, Field(ge=0, le=MAX_TTL)] = None
    switchAccount: Annotated[bool, Field(description="Ask for another account than the one that is connected.")] = False


class RejectedToken(Model):
    """The provider's API answered 401 to this token."""

    oauthAppRef: AppRef
    accessToken: Concealed
    scopes: Scopes = None


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


class PendingQuery(Model):
    """How links are delivered."""

    links: Annotated[Literal["inline", "apart"], Field(description="`apart`: items without links.")] = "inline"


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
    payload: dict[str, Any]
    createdAt: Moment


class LeasedEvent(Model):
    """An event to be settled with `ack` or `nack` before its lease ends; else it comes again."""

    event: EventBody
    lease: Confidential
    attempt: Annotated[int, Field(ge=1)]
    leaseExpiresAt: Moment


class EventsQuery(Model):
    """How long to wait for an event."""

    wait: Annotated[int, Field(ge=0, le=60, description="Seconds.")] = 0


class Settle(Model):
    """The lease that the event came with."""

    lease: Concealed


class SessionOutcomeBody(Model):
    """How an authorization stands; `code` says why a failed one failed."""

    authSessionId: SessionId
    status: SessionState
    code: Known | Absent = None


class Cancelled(Model):
    """False when there was nothing to cancel (any more)."""

    cancelled: bool


class ConfirmByRuntime(Model):
    """The handle that the browser brought, and whom the runtime knows it to be."""

    handle: Concealed
    subject: Subject


class ConfirmByCode(Model):
    """The code that the person sent back in the conversation."""

    channelCode: Concealed


class ConnectionsFor(Model):
    """Whose connections the page shows."""

    subjects: Subjects


class ConnectionsLink(Model):
    """A link that opens the connections page once."""

    url: Confidential
    expiresAt: Moment


class GrantsQuery(Model):
    """Which grants."""

    app: Name | None = None
    subject: Subject | None = None
    state: Literal["live", "revoked"] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: Annotated[GrantId | None, Field(description="The `next` of the page before.")] = None


class GrantBody(Model):
    """One grant without its tokens."""

    grantId: GrantId
    app: str
    provider: str
    subject: str
    scopes: list[str]
    state: Literal["live", "revoked"]
    expiresAt: Moment | None
    refreshable: bool
    createdAt: Moment
    updatedAt: Moment
    authorizedBy: str | None
    eventsToSend: int
    providerToTell: bool


class GrantPage(Model):
    """Grants in the order of their ids; `next` is where the following page begins."""

    grants: list[GrantBody]
    next: GrantId | Absent = None


class GrantEndedBody(Model):
    """What the provider knows of the end: it took note, refused to, cannot be told, was not told because another
    grant would have ended too, or will be told later."""

    grantId: GrantId
    provider: Literal["done", "refused", "none", "shared", "later"]


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
    """Whether work may be sent here; `problems` are codes of docs/errors.md, or `stopping`."""

    status: Literal["ready", "unready"]
    problems: list[str] | Absent = None


class NoParameters(Model):
    """None."""


class TurnPath(Model):
    """One turn."""

    turnId: TurnId


class AgentPath(Model):
    """One agent's queue. An agent's name has no slash in it."""

    agent: AgentName


class EventPath(AgentPath):
    """One event of an agent."""

    eventId: Annotated[str, Field(max_length=128, examples=["evt-as-AAAAAAAAAAAAAAAAAAAAAA-auth.granted"])]


class SessionPath(Model):
    """One authorization."""

    id: SessionId


class GrantPath(Model):
    """One grant."""

    grantId: GrantId


class FieldProblem(Model):
    """Where a request is not as it should be. Never what was sent there."""

    pointer: Annotated[str, Field(description="RFC 6901; of an unknown field, the object that holds it.")]
    problem: Literal["missing", "unknown", "type", "value"]


class Problem(Model):
    """RFC 9457, with a code of docs/errors.md where there is one."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str | Absent = None
    code: Known | Absent = None
    retryable: bool | Absent = None
    retryAfterSeconds: int | Absent = None
    errors: list[FieldProblem] | Absent = None
