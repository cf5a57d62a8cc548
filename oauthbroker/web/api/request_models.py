"""What callers send, a model each: bodies, queries, and what stands in a path. Names are the specification's."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from oauthbroker.core.claims_challenge import LONGEST_CLAIMS
from oauthbroker.core.errors import BrokerError, Locale
from oauthbroker.model.accounts import LONGEST
from oauthbroker.model.settings import LONGEST_SECONDS
from oauthbroker.model.token_request import MAX_TTL, call_ref
from oauthbroker.tokens.issuance import Words
from oauthbroker.web.api.fields import (
    AgentName,
    AppRef,
    AppText,
    Concealed,
    GrantId,
    GrantPlace,
    Line,
    NamedSwarm,
    Ref,
    RequestModel,
    Scopes,
    SessionId,
    Subject,
    ToolRef,
    TurnId,
    ref_of,
)

Account = Annotated[str, Field(max_length=LONGEST)]


class Subjects(RequestModel):
    """Whom a turn acts for. Only the runtime can say it."""

    global_: Annotated[Subject | None, Field(alias="global", examples=["slack:team:T111"])] = None
    user: Annotated[Subject | None, Field(examples=["slack:user:T111:U234567"])] = None

    def given(self) -> dict[str, str]:
        pairs = {"global": self.global_, "user": self.user}
        return {mode: subject for mode, subject in pairs.items() if subject is not None}


class AccountsBody(RequestModel):
    """The accounts of one app that a turn may use, and the one for a call that names none."""

    allowed: list[Account]
    default: str | None = None


class TurnAuthBody(RequestModel):
    """Who caused the turn, and whom it acts for."""

    actor: dict[str, str] = Field(default_factory=dict, examples=[{"type": "user", "id": "slack:U234567"}])
    subjects: Subjects = Field(default_factory=Subjects)
    accounts: Annotated[
        dict[str, list[Account] | AccountsBody],
        Field(description="The accounts that may be used, app by app.", examples=[{"OAuthApp/google": ["work"]}]),
    ] = Field(default_factory=dict)

    def given_accounts(self) -> dict[str, Any]:
        return {app: each if isinstance(each, list) else each.model_dump() for app, each in self.accounts.items()}


class TurnBody(RequestModel):
    """The turn, as the runtime knows it."""

    agentName: AgentName
    instanceKey: Line
    swarmRef: Annotated[Ref | NamedSwarm, Field(description="Default: `Swarm/default`.")] = "Swarm/default"
    origin: dict[str, Any] = Field(default_factory=dict, description="Handed back with the event.")
    auth: TurnAuthBody = Field(default_factory=TurnAuthBody)
    locale: Annotated[Locale | None, Field(description="The language of its messages. Default: the broker's.")] = None


class ToolAuthBody(RequestModel):
    """One app a tool may ask for, and which of its scopes."""

    oauthAppRef: AppRef
    scopes: Scopes = None
    delivery: Annotated[
        Literal["injected"] | None, Field(description="The tool gets no token, only requests that carry one.")
    ] = None


class BeginTurn(RequestModel):
    """A turn that needs tokens."""

    turn: TurnBody
    tools: dict[ToolRef, list[ToolAuthBody] | None] = Field(
        default_factory=dict,
        max_length=200,
        description="Tools to make tokens for, and what each may ask for; null: what the bundle declares.",
    )
    ttlSeconds: Annotated[
        int | None, Field(ge=1, le=LONGEST_SECONDS, description="At most, and by default, `limits.turnSeconds`.")
    ] = None
    privateLinks: Annotated[bool, Field(description="Links only by `GET /v1/turn/links`. Default: false.")] = False


class Narrow(RequestModel):
    """What the new token may at most."""

    tool: ToolRef | None = None
    apps: Annotated[list[ToolAuthBody] | None, Field(max_length=200)] = None
    ttlSeconds: Annotated[int | None, Field(ge=1, le=MAX_TTL)] = None


class TokenRequest(RequestModel):
    """The specification's request (12.5.1). There is no field for a subject: it is the turn's."""

    is_remembered: ClassVar[bool] = True
    oauthAppRef: AppRef
    scopes: Scopes = None
    account: Annotated[Account | None, Field(description="One that the turn lists.")] = None
    minTtlSeconds: Annotated[int | None, Field(ge=0, le=MAX_TTL)] = None
    switchAccount: Annotated[
        bool,
        Field(
            description="Ask for another account than the one that is connected. Not with a narrowed token. Default: "
            "false."
        ),
    ] = False

    @cached_property
    def words(self) -> Words | None:
        """The key of the answer that was given before. None if the call is invalid or asks for more."""
        ref = ref_of(self.oauthAppRef)
        if self.switchAccount or ref.startswith("CredentialApp/"):  # of which no token is issued
            return None
        scopes = None if self.scopes is None else tuple(self.scopes)
        try:
            return call_ref(ref, self.account), scopes, self.minTtlSeconds, None
        except BrokerError:
            return None


class RejectedToken(RequestModel):
    """The provider's API answered 401 to this token."""

    oauthAppRef: AppRef
    accessToken: Concealed
    scopes: Scopes = None
    account: Account | None = None
    claims: Annotated[
        str | None,
        Field(max_length=LONGEST_CLAIMS, description="`claims` of the API's challenge `insufficient_claims`."),
    ] = None


class PendingQuery(RequestModel):
    """How links are delivered."""

    links: Annotated[
        Literal["inline", "apart"], Field(description="`apart`: items without links. Default: `inline`.")
    ] = "inline"


class EventsQuery(RequestModel):
    """How long to wait for an event."""

    wait: Annotated[int, Field(ge=0, le=60, description="Seconds. Default: 0.")] = 0


class Settle(RequestModel):
    """The lease that the event came with."""

    lease: Concealed


class ConfirmByRuntime(RequestModel):
    """The handle that the browser brought, and whom the runtime knows it to be."""

    handle: Concealed
    subject: Subject


class ConfirmByCode(RequestModel):
    """The code that the person sent back in the conversation. Only a turn's own token relays it."""

    channelCode: Concealed


class ConnectionsFor(RequestModel):
    """Whose connections the page shows."""

    subjects: Subjects


class GrantsQuery(RequestModel):
    """Which grants."""

    app: Annotated[
        AppText | None, Field(description="`OAuthApp/name` or the bare name; `name@account` for one account.")
    ] = None
    subject: Subject | None = None
    state: Literal["live", "revoked"] | None = None
    limit: Annotated[int, Field(ge=1, le=1000, description="Default: 100.")] = 100
    after: Annotated[GrantPlace | None, Field(description="The `next` of the page before.")] = None


class SessionsQuery(RequestModel):
    """Which authorizations."""

    app: Annotated[
        AppText | None, Field(description="`OAuthApp/name` or the bare name; `name@account` for one account.")
    ] = None
    subject: Subject | None = None
    status: Literal["pending", "completed", "failed", "expired"] | None = None
    limit: Annotated[int, Field(ge=1, le=1000, description="Default: 100.")] = 100
    after: Annotated[SessionId | None, Field(description="The `next` of the page before.")] = None


class EraseSubject(RequestModel):
    """Whose records are removed."""

    subject: Subject
    dryRun: Annotated[bool, Field(description="Only count them. Default: false.")] = False


class NoParameters(RequestModel):
    """None."""


class TurnPath(RequestModel):
    """One turn."""

    turnId: TurnId


class AgentPath(RequestModel):
    """One agent's queue. An agent's name has no slash in it."""

    agent: AgentName


class EventPath(AgentPath):
    """One event of an agent."""

    eventId: Annotated[str, Field(max_length=128, examples=["evt-as-AAAAAAAAAAAAAAAAAAAAAA-auth.granted"])]


class SessionPath(RequestModel):
    """One authorization."""

    id: SessionId


class GrantPath(RequestModel):
    """One grant."""

    grantId: GrantId
