"""What operators get beside the answers of everybody: records as the specification prints them, and queues."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from oauthbroker.model.turn import SubjectMode
from oauthbroker.records import EventType
from oauthbroker.web.api.answers import Plain, SessionState
from oauthbroker.web.api.fields import Absent, Confidential, GrantId, Model, Moment, NamedApp, NamedSwarm, SessionId

MASKED = "Masked: the secret itself never leaves the broker here."
PerhapsMasked = Annotated[Literal["<secret>"] | Absent, Field(repr=False, description=MASKED)]


class GrantName(Model):
    """The grant that a record is of."""

    name: GrantId


class SessionName(Model):
    """The authorization that a record is of."""

    name: SessionId


class TokenRecord(Model):
    """The token of a grant. Empty where it was revoked."""

    tokenType: str | Absent = None
    accessToken: PerhapsMasked = None
    refreshToken: PerhapsMasked = None
    expiresAt: Moment | Absent = None


class GrantRecordSpec(Model):
    """Specification 12.5.4."""

    provider: str
    oauthAppRef: NamedApp
    subject: str
    flow: str
    scopesGranted: list[str]
    token: TokenRecord
    createdAt: Moment
    updatedAt: Moment
    revoked: bool
    providerData: Annotated[dict[str, Plain], Field(description="Masked, but for what tools are told.")]


class GrantRecordBody(Model):
    """An OAuthGrantRecord."""

    apiVersion: str
    kind: Literal["OAuthGrantRecord"]
    metadata: GrantName
    spec: GrantRecordSpec


class PkceRecord(Model):
    """The challenge of a browser's way to the provider (RFC 7636)."""

    method: Literal["S256"]
    codeVerifier: PerhapsMasked = None
    codeChallenge: str | Absent = None


class CodeFlowRecord(Model):
    """An authorization by a browser. A state that is spent is left out."""

    type: Literal["authorization_code"]
    pkce: PkceRecord
    state: PerhapsMasked = None


class DeviceFlowRecord(Model):
    """An authorization by a device code. Codes that are spent are left out."""

    type: Literal["device_code"]
    deviceCode: PerhapsMasked = None
    userCode: PerhapsMasked = None
    verificationUri: Confidential
    interval: int


class ResumeRecord(Model):
    """The conversation that goes on afterwards."""

    swarmRef: NamedSwarm
    instanceKey: str
    agentName: str
    origin: dict[str, Any]
    auth: dict[str, Any]
    locale: str | Absent = None


class SessionRecordSpec(Model):
    """Specification 12.5.5."""

    provider: str
    oauthAppRef: NamedApp
    subjectMode: SubjectMode
    subject: str
    requestedScopes: list[str]
    flow: Annotated[CodeFlowRecord | DeviceFlowRecord, Field(discriminator="type")]
    status: SessionState
    createdAt: Moment
    expiresAt: Moment
    resume: ResumeRecord


class SessionRecordBody(Model):
    """An AuthSessionRecord. Never its link."""

    apiVersion: str
    kind: Literal["AuthSessionRecord"]
    metadata: SessionName
    spec: SessionRecordSpec


class SessionPage(Model):
    """Authorizations in the order of their ids; `next` is where the following page begins."""

    sessions: list[SessionRecordBody]
    next: SessionId | Absent = None


class QueueBody(Model):
    """The queue of one agent. `oldestAt` is when the event at its head was made."""

    agentName: str
    waiting: int
    leased: int
    dead: int
    oldestAt: Moment | Absent = None


class QueueList(Model):
    """The queues that have something in them, by agent."""

    queues: list[QueueBody]


class DeadLetterBody(Model):
    """An event that no consumer could settle, without its payload. What a damaged one does not tell is left out."""

    eventId: str
    type: EventType | Absent = None
    agentName: str
    swarmRef: NamedSwarm
    instanceKey: str
    oauthAppRef: NamedApp | Absent = None
    attempts: int
    createdAt: Moment | Absent = None


class DeadLetterList(Model):
    """The dead letters of one agent, the newest dead first."""

    deadLetters: list[DeadLetterBody]
