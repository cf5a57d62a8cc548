r"""AuthSessionRecord (specification 12.5.5): one authorization under way, and its legal transitions.

    pending --claimed()--> pending with a claim --completed()--> completed
       |  |                        ^    \--failed()--> failed
       |  \--park()--> pending and parked --failed()--> failed, --lapsed()--> expired
       |--failed()--> failed     |--lapsed()--> expired
Every transition returns the next record; the one-time secrets end with the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from oauthbroker.apps import Link
from oauthbroker.clock import from_iso, has_passed, to_iso
from oauthbroker.errors import Code
from oauthbroker.records import codec
from oauthbroker.records.attempt import Attempt
from oauthbroker.records.device import FLOW as DEVICE_FLOW
from oauthbroker.records.device import Device
from oauthbroker.records.event import AgentEvent
from oauthbroker.records.login import Login
from oauthbroker.records.parked import Parked
from oauthbroker.results import Reason
from oauthbroker.secret import Secret
from oauthbroker.turn import ResumeTarget, SubjectMode

SessionStatus = Literal["pending", "completed", "failed", "expired"]
NO_CLAIM_LASTS = timedelta(hours=1)  # so long: one that seems to was written by a clock that went ahead
MAX_PRESSES = 20  # of a link's button: a person in trouble presses a few times; each may cost the provider a request


@dataclass(frozen=True, slots=True)
class Claim:
    """The one callback that may redeem the code, and until when nobody else looks at the session.

    `confirmed`: the code was parked, and whose browser brought it was vouched for.
    """

    by: str
    until: datetime
    confirmed: bool = False

    def holds(self, now: datetime) -> bool:
        return now < self.until < now + NO_CLAIM_LASTS


@dataclass(frozen=True, slots=True)
class AuthSession:
    """One authorization under way. `locator` is public (`as-<locator>`), the ticket and the state are not.

    `device` is set in the device code flow, which has no attempt of a browser. `presses` counts how often its link's
    button was pressed. `parked` is a code that came back and waits for a word on whose browser that was. `login` is set
    from the button on where a login of the broker's own comes first: until it is passed no attempt is any good. `tries`
    counts the sessions before it that ended with the wrong account, or without their code. `was_parked`: it ended while
    its code waited.
    """

    locator: str
    app: str
    provider: str
    subject_mode: SubjectMode
    subject: str
    scopes: tuple[str, ...]
    resume: ResumeTarget
    ticket: Secret | None
    attempt: Attempt
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
    device: Device | None = None
    presses: int = 0
    parked: Parked | None = None
    login: Login | None = None
    tries: int = 0
    was_parked: bool = False

    @property
    def id(self) -> str:
        return f"as-{self.locator}"

    @property
    def open(self) -> bool:
        return self.status == "pending"

    @property
    def taken(self) -> bool:
        """A browser has come back with it: its link and its state are used up."""
        return self.claim is not None or self.parked is not None

    @property
    def under_way(self) -> bool:
        """A browser is on its way with it, at a provider or at the login before it."""
        at_login = self.login is not None and self.login.at_it
        return self.taken or at_login or self.attempt.cookie is not None

    @property
    def ends_at(self) -> datetime:
        """When it ends by itself: a parked code has its own time, however little is left of the link's."""
        return self.expires_at if self.parked is None else self.parked.until

    def is_past(self, now: datetime) -> bool:
        """Whether its time is over. A device code is ended by its provider, too, by the provider's clock."""
        if self.device is not None:
            return self.ends_at <= now
        return has_passed(self.ends_at, self.created_at, now)

    @property
    def worn_out(self) -> bool:
        """Nobody is taken to the provider by this link any more; a browser that is on its way still arrives."""
        return self.presses >= MAX_PRESSES

    def __repr__(self) -> str:
        mark = ", claimed" if self.claim else ", parked" if self.parked else ""
        return f"{type(self).__name__}({self.id[:9]}..., {self.status}{mark})"

    def pressed(self) -> AuthSession:
        """Somebody pressed the button."""
        return replace(self, presses=self.presses + 1)

    def attempted(self, attempt: Attempt, scopes: tuple[str, ...] | None = None) -> AuthSession:
        """A browser takes this attempt to the provider, to ask for `scopes` by now."""
        return replace(self, attempt=attempt, scopes=self.scopes if scopes is None else scopes)

    def logging_in(self, login: Login, scopes: tuple[str, ...]) -> AuthSession:
        """A browser takes this to the broker's own login first. Whatever one took to the provider is dead."""
        return replace(self, login=login, attempt=Attempt.none(), scopes=scopes)

    def with_login(self, login: Login, attempt: Attempt | None = None) -> AuthSession:
        """Something is known of that login; with the right person it comes with an attempt for the provider."""
        if not self.open or self.taken or self.login is None:
            raise ValueError("only a session that waits for a login hears of one")
        return replace(self, login=login, attempt=self.attempt if attempt is None else attempt)

    def polled(self, device: Device) -> AuthSession:
        """The provider is being asked, or has answered, whether somebody has agreed."""
        return replace(self, device=device)

    def park(self, parked: Parked) -> AuthSession:
        """A code came back, in the right browser. The printed status stays `pending`."""
        if not self.open or self.taken:
            raise ValueError("only a session that waits for its browser takes a code")
        return replace(self, parked=parked)

    def tried(self) -> AuthSession:
        """Somebody says a code in the conversation."""
        return replace(self, parked=self.parked.tried() if self.parked is not None else None)

    def claimed(self, by: str, until: datetime, *, confirmed: bool = False) -> ClaimedSession:
        """One callback, or the word that confirms a parked one, takes the right to redeem; a parked code leaves the
        record with it, and is used up. The printed status stays `pending`."""
        fields = {slot: getattr(self, slot) for slot in AuthSession.__dataclass_fields__}
        return ClaimedSession(**{**fields, "claim": Claim(by, until, confirmed), "parked": None, "login": None})

    def completed(self, at: datetime, event: AgentEvent | None = None) -> AuthSession:
        return self._ended("completed", at, None, event)

    def failed(self, at: datetime, code: Code, event: AgentEvent | None = None) -> AuthSession:
        return self._ended("failed", at, code, event)

    def lapsed(self, at: datetime, event: AgentEvent | None = None) -> AuthSession:
        """Expired, superseded or cancelled before anybody claimed it."""
        return self._ended("expired", at, None, event)

    def sent(self) -> AuthSession:
        """Once its own event has reached the queue."""
        return replace(self, outbox=None)

    def _ended(self, status: SessionStatus, at: datetime, code: Code | None, event: AgentEvent | None) -> AuthSession:
        if not self.open:
            raise ValueError(f"a {self.status} session has ended")
        attempt = self.attempt.spent()
        if attempt.cookie is None and self.login is not None:  # its browser was at the login, and knows it by that
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
            parked=None,
            was_parked=self.parked is not None,
            login=None,
        )

    def to_plaintext(self) -> bytes:
        attempt, claim = self.attempt, self.claim
        spec: dict[str, Any] = {
            "provider": self.provider,
            "oauthAppRef": {"kind": "OAuthApp", "name": self.app},
            "subjectMode": self.subject_mode,
            "subject": self.subject,
            "requestedScopes": list(self.scopes),
            "flow": self.device.to_json() if self.device is not None else _code_flow(attempt),
            "status": self.status,
            "createdAt": to_iso(self.created_at),
            "expiresAt": to_iso(self.expires_at),
            "resume": self.resume.to_json(),
        }
        status: dict[str, Any] = {
            "ticket": codec.reveal(self.ticket),
            "nonce": codec.reveal(attempt.nonce),
            "cookie": attempt.cookie,
            "configDigest": self.config_digest,
            "link": self.link,
            "switchAccount": self.switch_account,
            "reason": self.reason,
            "claim": _claim_json(claim) if claim else None,
            "failure": self.failure.value if self.failure else None,
            "finishedAt": codec.iso(self.finished_at),
            "outbox": self.outbox.to_record() if self.outbox else None,
        }
        if self.presses:
            status["presses"] = self.presses
        if self.tries:
            status["tries"] = self.tries
        if self.was_parked:
            status["wasParked"] = True
        if self.parked is not None:
            status["parked"] = self.parked.to_json()
        if self.login is not None:
            status["login"] = self.login.to_json()
        return codec.encode("AuthSessionRecord", {"metadata": {"name": self.id}, "spec": spec, "status": status})

    @classmethod
    def from_plaintext(cls, body: bytes) -> AuthSession:
        data = codec.decode("AuthSessionRecord", body)
        spec, status = data["spec"], data["status"]
        return AuthSession(
            locator=data["metadata"]["name"].removeprefix("as-"),
            app=spec["oauthAppRef"]["name"],
            provider=spec["provider"],
            subject_mode=spec["subjectMode"],
            subject=spec["subject"],
            scopes=tuple(spec["requestedScopes"]),
            resume=ResumeTarget.from_json(spec["resume"]),
            ticket=codec.conceal(status["ticket"]),
            attempt=Attempt.none() if spec["flow"]["type"] == DEVICE_FLOW else _attempt(spec["flow"], status),
            device=Device.from_json(spec["flow"]) if spec["flow"]["type"] == DEVICE_FLOW else None,
            created_at=from_iso(spec["createdAt"]),
            expires_at=from_iso(spec["expiresAt"]),
            config_digest=status["configDigest"],
            link=status["link"],
            switch_account=status["switchAccount"],
            reason=status["reason"],
            status=spec["status"],
            claim=_claim(status["claim"]) if status["claim"] else None,
            failure=Code(status["failure"]) if status["failure"] else None,
            finished_at=codec.moment(status["finishedAt"]),
            outbox=AgentEvent.from_json(status["outbox"]) if status["outbox"] else None,
            presses=status.get("presses", 0),
            tries=status.get("tries", 0),
            was_parked=status.get("wasParked", False),
            parked=Parked.from_json(status["parked"]) if status.get("parked") else None,
            login=Login.from_json(status["login"]) if status.get("login") else None,
        )


@dataclass(frozen=True, slots=True, repr=False)
class ClaimedSession(AuthSession):
    """A session whose code this process alone may redeem. Only a `claim` in flows hands one out."""


def _claim_json(claim: Claim) -> dict[str, Any]:
    confirmed = {"confirmed": True} if claim.confirmed else {}
    return {"by": claim.by, "until": to_iso(claim.until), **confirmed}


def _claim(data: Mapping[str, Any]) -> Claim:
    return Claim(data["by"], from_iso(data["until"]), data.get("confirmed", False))


def _code_flow(attempt: Attempt) -> dict[str, Any]:
    return {
        "type": "authorization_code",
        "pkce": {
            "method": "S256",
            "codeVerifier": codec.reveal(attempt.verifier),
            "codeChallenge": attempt.challenge,
        },
        "state": attempt.state.reveal(),
    }


def _attempt(flow: Mapping[str, Any], status: Mapping[str, Any]) -> Attempt:
    return Attempt(
        state=Secret(flow["state"]),
        challenge=flow["pkce"]["codeChallenge"],
        verifier=codec.conceal(flow["pkce"]["codeVerifier"]),
        nonce=codec.conceal(status["nonce"]),
        cookie=status["cookie"],
    )
