r"""AuthSessionRecord (specification 12.5.5): one authorization under way, and its transitions.

    pending --claimed()--> pending with a claim --completed()--> completed, --released()--> pending
       |  |                        ^    \--failed()--> failed
       |  \--with_pending_code()--> pending, code pending --failed()--> failed, --lapsed()--> expired
       |--failed()--> failed     |--lapsed()--> expired
Every transition returns the next record; the one-time secrets end with the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

from oauthbroker.core.clock import has_passed
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, AppKind, Link
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.token_results import Reason
from oauthbroker.model.turn import ResumeTarget, SubjectMode
from oauthbroker.records import codec
from oauthbroker.records.browser_attempt import Attempt, Login
from oauthbroker.records.codec import APART, OPTIONAL, named
from oauthbroker.records.device_authorization import FLOW as DEVICE_FLOW
from oauthbroker.records.device_authorization import Device
from oauthbroker.records.event import AgentEvent
from oauthbroker.records.pending_code import PendingCode

SessionStatus = Literal["pending", "completed", "failed", "expired"]
NO_CLAIM_LASTS = timedelta(hours=1)  # no claim lasts longer; one that seems to was written under a fast clock
SPEC = ("provider", "subjectMode", "subject", "requestedScopes", "status", "createdAt", "expiresAt", "resume")
MAX_PRESSES = 20  # of a link's button; each press may cost the provider a request
OTHER_ACCOUNT = frozenset({Code.SUBJECT_MISMATCH, Code.SUBJECT_FORBIDDEN})
ANOTHER_TRY = OTHER_ACCOUNT | {Code.OWNER_BINDING_FAILED}  # failures after which its browser may try again


@dataclass(frozen=True, slots=True)
class Claim:
    """The one callback that may redeem the code, and until when no other process looks at the session.

    `confirmed`: the code was pending, and its browser was confirmed.
    """

    by: str
    until: datetime
    confirmed: bool = field(default=False, metadata=OPTIONAL)

    def holds(self, now: datetime) -> bool:
        return now < self.until < now + NO_CLAIM_LASTS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSession:
    """One authorization under way. `locator` is public (`as-<locator>`), the ticket and the state are secret.

    `device` is set in the device code flow, which has no browser attempt. `presses` counts how often its link's button
    was pressed. `pendingCode` is a code that waits for the confirmation of its browser. `login` is set from the button
    on where a broker login comes first: until it is passed no attempt is valid. `account`, `label` and `params` are
    those of the grant it brings; with `typed` its user says the last. `tries` counts the sessions before it
    that ended with the wrong account, or without their code. `had_pending_code`: it ended while its code waited.
    `claims`: a claims request for its authorization, forgotten with its end unless there may be another try. `kind` is
    the app's.
    """

    locator: str = field(metadata=APART)
    app: str = field(metadata=APART)
    provider: str
    subject_mode: SubjectMode
    subject: str
    scopes: tuple[str, ...] = field(metadata=named("requestedScopes"))
    resume: ResumeTarget
    ticket: Secret | None
    attempt: Attempt = field(metadata=APART)
    created_at: datetime
    expires_at: datetime
    config_digest: str
    link: Link = "connect"
    switch_account: bool = False
    reason: Reason = "noGrant"
    status: SessionStatus = "pending"
    claim: Claim | None = None
    failure: Code | None = None
    finished_at: datetime | None = None
    outbox: AgentEvent | None = None
    device: Device | None = field(default=None, metadata=APART)
    presses: int = field(default=0, metadata=OPTIONAL)
    pending_code: PendingCode | None = field(default=None, metadata=OPTIONAL)
    login: Login | None = field(default=None, metadata=OPTIONAL)
    account: str = field(default="", metadata=named("connection") | OPTIONAL)
    label: str = field(default="", metadata=OPTIONAL)
    params: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)
    typed: bool = field(default=False, metadata=OPTIONAL)
    tries: int = field(default=0, metadata=OPTIONAL)
    had_pending_code: bool = field(default=False, metadata=OPTIONAL)
    claims: str = field(default="", metadata=OPTIONAL)
    kind: AppKind = field(default="OAuthApp", metadata=named("appKind") | OPTIONAL)

    @property
    def id(self) -> str:
        return f"as-{self.locator}"

    @property
    def key(self) -> GrantKey:
        """Return the key of the grant that it is to bring."""
        return GrantKey(self.app, self.subject, self.account)

    @property
    def open(self) -> bool:
        return self.status == "pending"

    @property
    def taken(self) -> bool:
        """Tell whether a browser has come back with it: its link and its state are used up."""
        return self.claim is not None or self.pending_code is not None

    def is_abandoned(self, now: datetime) -> bool:
        """Tell whether the worker that claimed it to store a typed credential has stopped. No code was used up."""
        return self.kind == "CredentialApp" and self.claim is not None and not self.claim.holds(now)

    @property
    def under_way(self) -> bool:
        """Tell whether a browser is on its way, at the provider or at the login before it."""
        at_login = self.login is not None and self.login.at_it
        return self.taken or at_login or self.attempt.cookie is not None

    @property
    def is_followed_unseen(self) -> bool:
        """Tell whether its user gets to the provider past the broker, so that its scopes are fixed from the start."""
        return self.device is not None or self.link == "direct"

    def is_past(self, now: datetime) -> bool:
        """Tell whether it has expired. A pending code has its own expiry, independent of the link's. A device code
        also ends when the provider says so, by the provider's clock."""
        if self.pending_code is not None:
            return self.pending_code.is_past(now)
        if self.device is not None:
            return self.expires_at <= now
        return has_passed(self.expires_at, self.created_at, now)

    @property
    def worn_out(self) -> bool:
        """Tell whether the link has reached its limit of presses. A browser that is on its way may still come back."""
        return self.presses >= MAX_PRESSES

    def __repr__(self) -> str:
        mark = ", claimed" if self.claim else ", code pending" if self.pending_code else ""
        return f"{type(self).__name__}({self.id[:9]}..., {self.status}{mark})"

    def asking(self, app: App) -> App:
        """Return the app for the session's authorization request: with its claims, and with the question which account
        where that is not plain."""
        return (app.asking_which_account() if self.tries or self.account else app).asking_for(self.claims)

    def pressed(self) -> AuthSession:
        """Count a press of the button."""
        return replace(self, presses=self.presses + 1)

    def named(self, label: str, params: Mapping[str, str]) -> AuthSession:
        """Return the session with what its user typed: a name for the account, and its parameters if they are open."""
        return replace(self, label=label or self.label, params=params if self.typed else self.params)

    def attempted(self, attempt: Attempt, scopes: tuple[str, ...] | None = None) -> AuthSession:
        """Return the session with a new browser's attempt, for `scopes`."""
        return replace(self, attempt=attempt, scopes=self.scopes if scopes is None else scopes)

    def logging_in(self, login: Login, scopes: tuple[str, ...]) -> AuthSession:
        """Return the session with a browser sent to the broker's own login. An earlier attempt at the provider is
        void."""
        return replace(self, login=login, attempt=Attempt.none(), scopes=scopes)

    def with_login(self, login: Login, attempt: Attempt | None = None) -> AuthSession:
        """Return the session with an updated login; after the right person's login with an attempt for the provider."""
        if not self.open or self.taken or self.login is None:
            raise ValueError("the session does not wait for a login")
        return replace(self, login=login, attempt=self.attempt if attempt is None else attempt)

    def polled(self, device: Device) -> AuthSession:
        """Return the session around a poll, sent or answered."""
        return replace(self, device=device)

    def dated_back(self, at: datetime) -> AuthSession:
        """Return the open session of a device code as if it had begun at `at`: the clock was set back since, and the
        session would be polled for until the clock has caught up."""
        device = self.device.dated_back(at) if self.device is not None else None
        return replace(self, device=device, created_at=at, expires_at=at + (self.expires_at - self.created_at))

    def with_pending_code(self, pending_code: PendingCode) -> AuthSession:
        """Keep the code pending that the right browser brought. The printed status stays `pending`."""
        if not self.open or self.taken:
            raise ValueError("the session does not wait for a browser")
        return replace(self, pending_code=pending_code)

    def tried(self) -> AuthSession:
        """Count a try of a channel code."""
        return replace(self, pending_code=self.pending_code.tried() if self.pending_code is not None else None)

    def claimed(self, by: str, until: datetime, *, confirmed: bool = False) -> ClaimedSession:
        """Claim the right to redeem the code, for one callback or for the confirmation of a pending code. The claimed
        session no longer holds the pending code. The printed status stays `pending`."""
        fields = {slot: getattr(self, slot) for slot in AuthSession.__dataclass_fields__}
        return ClaimedSession(**{**fields, "claim": Claim(by, until, confirmed), "pending_code": None, "login": None})

    def released(self) -> AuthSession:
        """Return the session of a typed credential without the claim that came to nothing: it can be typed again."""
        return replace(self, claim=None)

    def completed(self, at: datetime, event: AgentEvent | None = None) -> AuthSession:
        return self._ended("completed", at, None, event)

    def failed(self, at: datetime, code: Code, event: AgentEvent | None = None) -> AuthSession:
        return self._ended("failed", at, code, event)

    def lapsed(self, at: datetime, event: AgentEvent | None = None) -> AuthSession:
        """Return the session expired, superseded or cancelled before a claim."""
        return self._ended("expired", at, None, event)

    def sent(self) -> AuthSession:
        """Return the session after its own event has reached the queue."""
        return replace(self, outbox=None)

    def _ended(self, status: SessionStatus, at: datetime, code: Code | None, event: AgentEvent | None) -> AuthSession:
        if not self.open:
            raise ValueError(f"a {self.status} session has ended")
        attempt = self.attempt.spent()
        if attempt.cookie is None and self.login is not None:  # its browser is known by the cookie of the login
            attempt = replace(attempt, cookie=self.login.attempt.cookie)
        return replace(
            self,
            status=status,
            finished_at=at,
            failure=code,
            outbox=event,
            ticket=None,
            attempt=attempt,
            device=self.device.spent(self.ticket) if self.device is not None else None,
            pending_code=None,
            had_pending_code=self.pending_code is not None,
            login=None,
            claims=self.claims if code in ANOTHER_TRY else "",
        )

    def to_plaintext(self) -> bytes:
        metadata, attempt = {"name": self.id}, codec.members(self.attempt)
        status = codec.members(self) | {"nonce": attempt["nonce"], "cookie": attempt["cookie"]}
        spec = dict(zip(SPEC, map(status.pop, SPEC), strict=True))
        spec["oauthAppRef"] = {"kind": self.kind, "name": self.app}
        if self.device is not None:
            spec["flow"] = self.device.to_json()
        else:
            verifier, challenge = attempt["codeVerifier"], attempt["codeChallenge"]
            pkce = {"method": "S256", "codeVerifier": verifier, "codeChallenge": challenge}
            spec["flow"] = {"type": "authorization_code", "state": attempt["state"], "pkce": pkce}
        return codec.encode("AuthSessionRecord", {"metadata": metadata, "spec": spec, "status": status})

    @classmethod
    def from_plaintext(cls, body: bytes) -> AuthSession:
        data = codec.decode("AuthSessionRecord", body)
        spec, status = data["spec"], data["status"]
        flow = spec["flow"]
        is_device = flow["type"] == DEVICE_FLOW
        return codec.made(
            AuthSession,
            {**status, **spec},
            locator=data["metadata"]["name"].removeprefix("as-"),
            app=spec["oauthAppRef"]["name"],
            attempt=Attempt.none() if is_device else codec.made(Attempt, {**status, **flow, **flow["pkce"]}),
            device=codec.made(Device, flow) if is_device else None,
        )


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ClaimedSession(AuthSession):
    """A session whose code only this process may redeem. Only `claim` returns one."""
