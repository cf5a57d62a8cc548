"""OAuthGrantRecord (specification 12.5.4): what one subject agreed to for one app."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from oauthbroker.clock import from_iso, to_iso
from oauthbroker.records import codec
from oauthbroker.records.event import AgentEvent
from oauthbroker.records.renewal import Renewal
from oauthbroker.records.retired import Retired
from oauthbroker.secret import Secret
from oauthbroker.turn import ResumeTarget

CLOCK_SLACK_SECONDS = 60
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # whatever a clock is set to, it has passed
ENDLESS = float("inf")
UNLISTED_AFTER = 2  # consents in a row
RevocationState = Literal["none", "pending", "done", "refused", "shared", "untold"]


@lru_cache(maxsize=16_384)
def grant_id(app: str, subject: str) -> str:
    """`sha256:<hex>` over the length-prefixed pair, so that (a:b, c) and (a, b:c) differ. Also `metadata.name`."""
    digest = hashlib.sha256()
    for part in (app.encode(), subject.encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return "sha256:" + digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """What the provider issued. `lifetime_seconds` is the lifetime it was issued with; None means it never ends.
    `expires_at` LONG_AGO: nobody knows when it ends, so it counts as ended."""

    access_token: Secret
    token_type: str
    refresh_token: Secret | None = None
    expires_at: datetime | None = None
    lifetime_seconds: int | None = None

    @property
    def end_is_unknown(self) -> bool:
        return self.expires_at == LONG_AGO

    def seconds_left(self, now: datetime) -> float:
        """Until it ends; endless for one that never does."""
        return ENDLESS if self.expires_at is None else (self.expires_at - now).total_seconds()

    def lives(self, seconds: float, now: datetime) -> bool:
        """Whether it lives longer than `seconds` from now."""
        return self.seconds_left(now) > seconds

    def is_from_the_future(self, now: datetime) -> bool:
        """It seems to live longer than it was issued for: the clock was set back since, and its end is unknown."""
        if self.expires_at is None or self.lifetime_seconds is None:
            return False
        return self.seconds_left(now) > self.lifetime_seconds + CLOCK_SLACK_SECONDS


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant. `account` pins (issuer, account) of the first success; `registration` is the client it was made with;
    `outbox` are events not yet queued; `retired` are tokens of before that the provider has still to hear of, and a
    provider that refused to hear is not asked before `tell_after`; `token_binding` is reserved for sender-constrained
    tokens (RFC 9449). `imported` is the mark of the line that it came with from another system; such a grant may have
    an empty access token until it is renewed. `declined` are scopes that were asked for and not granted, and at how
    many consents in a row."""

    app: str
    provider: str
    subject: str
    flow: str
    scopes: tuple[str, ...]
    token: Token | None
    created_at: datetime
    updated_at: datetime
    revoked: bool = False
    revocation: RevocationState = "none"
    account: tuple[str, str] | None = None
    authorized_by: str | None = None
    auth_session_id: str | None = None
    registration: str = ""
    resume: ResumeTarget | None = None
    outbox: tuple[AgentEvent, ...] = ()
    renewal: Renewal = field(default_factory=Renewal)
    retired: Retired | None = None
    tell_after: datetime | None = None
    token_binding: str = ""
    imported: str = ""
    declined: Mapping[str, int] = field(default_factory=dict)
    provider_data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return grant_id(self.app, self.subject)

    @property
    def refresh_tokens(self) -> tuple[Secret, ...]:
        """What a renewal may send, in order: the newest first. Empty when none is left to try."""
        if self.token is None or self.revoked or self.renewal.ended:
            return ()
        return tuple(secret for secret in (self.renewal.spare, self.token.refresh_token) if secret is not None)

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Scopes that consent after consent left out: the provider does not list them in its answers."""
        return tuple(scope for scope, times in self.declined.items() if times >= UNLISTED_AFTER)

    @property
    def unfinished(self) -> bool:
        """Something is left to do even if nobody asks: an event to queue, a provider to tell, an intent to settle."""
        return bool(self.outbox) or self.to_be_told or self.renewal.intent is not None

    @property
    def to_be_told(self) -> bool:
        """The provider has still to hear that something of this has ended."""
        return self.revocation == "pending" or self.retired is not None

    @property
    def ended(self) -> Retired | None:
        """What the provider has still to hear of: a tombstone's own tokens, and what was retired before."""
        token = self.token
        if token is None or self.revocation != "pending":
            return self.retired
        refresh = tuple(secret for secret in (self.renewal.spare, token.refresh_token) if secret is not None)
        access = (token.access_token,) if token.access_token else ()
        return Retired(self.updated_at, refresh, access).and_also(self.retired)

    def __repr__(self) -> str:
        state = "revoked" if self.revoked else "live"
        return f"Grant({self.id[:15]}..., {state}, {len(self.scopes)} scopes, {len(self.outbox)} events to send)"

    def sent(self, event_id: str) -> Grant:
        """The grant once that event has reached its queue."""
        return replace(self, outbox=tuple(event for event in self.outbox if event.id != event_id))

    def renewed(
        self, token: Token, scopes: tuple[str, ...], at: datetime, provider_data: Mapping[str, Any] | None = None
    ) -> Grant:
        """With a new token, and nothing left to settle. `provider_data` None: as before."""
        data = self.provider_data if provider_data is None else provider_data
        renewal = Renewal(asked=self.renewal.asked, forced=self.renewal.forced, worked=True)
        declined = {scope: times for scope, times in self.declined.items() if scope not in scopes}
        changed = replace(self, token=token, scopes=scopes, declined=declined, provider_data=data)
        return replace(changed, renewal=renewal, updated_at=at)

    def adopting(self, begun: Grant, token: Token) -> Grant | None:
        """With the refresh token of a renewal that a new login overtook, where that login kept the very one which the
        renewal has spent. None where it has one of its own."""
        mine, fresh = self.token, token.refresh_token
        if self.revoked or mine is None or mine.refresh_token is None or fresh is None:
            return None
        if mine.refresh_token not in begun.refresh_tokens or fresh in begun.refresh_tokens:
            return None
        return replace(self, token=replace(mine, refresh_token=fresh))

    def refused(self, renewal: Renewal, at: datetime, *, rejected: bool) -> Grant:
        """With what a refused renewal left to remember. A token that its API has `rejected` is of no use to anybody
        once no other can come."""
        token = self.token
        if rejected and renewal.ended and token is not None:
            token = replace(token, expires_at=at)
        return replace(self, token=token, renewal=renewal, updated_at=at)

    def is_attempted_as(self, begun: Grant) -> bool:
        """Whether the renewal that wrote its intent as `begun` may still commit: no revoke, no new login, no other
        attempt came in between."""
        intent, mine = self.renewal.intent, begun.renewal.intent
        return not self.revoked and intent is not None and mine is not None and intent.attempt == mine.attempt

    def tombstoned(self, at: datetime) -> Grant:
        """Revoked here and now; the tokens stay sealed until the provider has been told. The pin ends with it."""
        renewal = replace(self.renewal, intent=None)
        return replace(self, revoked=True, revocation="pending", account=None, renewal=renewal, updated_at=at)

    def erased(self, at: datetime, known: RevocationState = "done") -> Grant:
        """The provider has been told, or never will be: the tokens go. `known`: what it knows."""
        return replace(self, token=None, renewal=Renewal(), revocation=known, updated_at=at)

    def retiring(self, refresh: Secret | None, access: Secret | None, at: datetime) -> Grant:
        """These came too late to be of use here: the provider will be told of them."""
        return replace(self, retired=Retired.of(refresh, access, at).and_also(self.retired))

    def not_told_before(self, at: datetime) -> Grant:
        """The provider refuses to be told: only an operator can mend that, so it is left alone until then."""
        return replace(self, tell_after=at)

    def told(self, ended: Retired | None, at: datetime, outcome: RevocationState = "done") -> Grant:
        """The provider knows of these, or never will: a tombstone's tokens go. What was not among them stays."""
        known = () if ended is None else (*ended.refresh, *ended.access)
        left = self.retired.without(known) if self.retired is not None else None
        rest, own = replace(self, retired=left, tell_after=None), replace(self, retired=None).ended
        over = self.revocation == "pending" and (own is None or own.without(known) is None)
        return rest.erased(at, outcome) if over else rest

    def to_plaintext(self) -> bytes:
        token = self.token
        spec: dict[str, Any] = {
            "provider": self.provider,
            "oauthAppRef": {"kind": "OAuthApp", "name": self.app},
            "subject": self.subject,
            "flow": self.flow,
            "scopesGranted": list(self.scopes),
            "token": {},
            "createdAt": to_iso(self.created_at),
            "updatedAt": to_iso(self.updated_at),
            "revoked": self.revoked,
            "providerData": dict(self.provider_data),
        }
        if token is not None:
            spec["token"] = {"tokenType": token.token_type, "accessToken": token.access_token.reveal()}
            if token.refresh_token is not None:
                spec["token"]["refreshToken"] = token.refresh_token.reveal()
            if token.expires_at is not None:
                spec["token"]["expiresAt"] = to_iso(token.expires_at)
        status = {
            "revocation": self.revocation,
            "account": list(self.account) if self.account else None,
            "authorizedBy": self.authorized_by,
            "authSessionId": self.auth_session_id,
            "registration": self.registration,
            "lifetimeSeconds": token.lifetime_seconds if token else None,
            "resume": self.resume.to_json() if self.resume else None,
            "outbox": [event.to_record() for event in self.outbox],
        }
        if renewal := self.renewal.to_json():
            status["renewal"] = renewal
        if self.retired is not None:
            status["retired"] = self.retired.to_json()
        if self.tell_after is not None:
            status["tellAfter"] = to_iso(self.tell_after)
        if self.token_binding:
            status["tokenBinding"] = self.token_binding
        if self.imported:
            status["imported"] = self.imported
        if self.declined:
            status["declined"] = dict(self.declined)
        return codec.encode("OAuthGrantRecord", {"metadata": {"name": self.id}, "spec": spec, "status": status})

    @classmethod
    def from_plaintext(cls, body: bytes) -> Grant:
        data = codec.decode("OAuthGrantRecord", body)
        spec, status = data["spec"], data["status"]
        held = spec["token"]
        token = None
        if held:
            token = Token(
                Secret(held["accessToken"]),
                held["tokenType"],
                codec.conceal(held.get("refreshToken")),
                codec.moment(held.get("expiresAt")),
                status["lifetimeSeconds"],
            )
        return cls(
            app=spec["oauthAppRef"]["name"],
            provider=spec["provider"],
            subject=spec["subject"],
            flow=spec["flow"],
            scopes=tuple(spec["scopesGranted"]),
            token=token,
            created_at=from_iso(spec["createdAt"]),
            updated_at=from_iso(spec["updatedAt"]),
            revoked=spec["revoked"],
            revocation=status["revocation"],
            account=tuple(status["account"]) if status["account"] else None,
            authorized_by=status["authorizedBy"],
            auth_session_id=status["authSessionId"],
            registration=status["registration"],
            resume=ResumeTarget.from_json(status["resume"]) if status["resume"] else None,
            outbox=tuple(AgentEvent.from_json(event) for event in status["outbox"]),
            renewal=Renewal.from_json(status.get("renewal")),
            retired=Retired.from_json(status.get("retired")),
            tell_after=codec.moment(status.get("tellAfter")),
            token_binding=status.get("tokenBinding", ""),
            imported=status.get("imported", ""),
            declined=status.get("declined", {}),
            provider_data=spec["providerData"],
        )
