"""The three answers of `getAccessToken` (specification 12.5.2): ready, authorization_required, error.

Each prints itself as JSON and is read from it again by the client, which is no stricter than it has to be: fields that
are not known are passed over, so that a newer broker is understood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from oauthbroker.core.clock import from_iso, printed
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code, Locale, known_code
from oauthbroker.core.secret import Secret
from oauthbroker.core.words import SENTENCES

Reason = Literal[
    "noGrant", "revoked", "expired", "scopes", "scopesDeclined", "refreshUncertain", "choiceNeeded", "keyRejected"
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A token to call the provider with. `degraded`: it could not be refreshed and lives shorter than usual, or the
    store is away and could not confirm it. `is_team`: a user without a credential of their own got the team's.
    `provider_data`: what the provider said beside it and its preset declares for tools, such as the API's host."""

    access_token: Secret
    token_type: str
    expires_at: datetime | None
    scopes: tuple[str, ...]
    degraded: bool = False
    status: Literal["ready"] = "ready"
    provider_data: Mapping[str, Any] = field(default_factory=dict)
    is_team: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the specification's JSON, the token in clear: this is where it leaves on purpose."""
        body: dict[str, Any] = {
            "status": self.status,
            "accessToken": self.access_token.reveal(),
            "tokenType": self.token_type,
            "scopes": list(self.scopes),
        }
        if self.expires_at is not None:
            body["expiresAt"] = printed(self.expires_at)
        if self.degraded:
            body["degraded"] = True
        if self.provider_data:
            body["providerData"] = dict(self.provider_data)
        return body

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ready:
        """Parse the output of `to_json`. Raises ValueError."""
        token, scopes, until = _text(data, "accessToken"), data.get("scopes"), data.get("expiresAt")
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
            raise ValueError("scopes")
        expires_at = None if until is None else from_iso(_text(data, "expiresAt"))
        more, degraded = data.get("providerData", {}), data.get("degraded") is True
        if not isinstance(more, dict):
            raise ValueError("providerData")  # noqa: TRY004
        return cls(
            access_token=Secret(token),
            token_type=_text(data, "tokenType"),
            expires_at=expires_at,
            scopes=tuple(scopes),
            degraded=degraded,
            provider_data=more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePrompt:
    """`deviceCode` (specification 12.5.7): where a person goes, and what to type there.

    `interval` is how often the broker asks the provider, in seconds: a tool never does.
    """

    verification_uri: str
    verification_uri_complete: str | None
    user_code: str
    interval: int

    def __repr__(self) -> str:
        return "DevicePrompt(...)"  # the code lets its holder consent in the user's place

    def to_json(self) -> dict[str, Any]:
        """Return `{verificationUri, verificationUriComplete?, userCode, interval}`, the interval in seconds."""
        complete = self.verification_uri_complete
        return {
            "verificationUri": self.verification_uri,
            **({"verificationUriComplete": complete} if complete is not None else {}),
            "userCode": self.user_code,
            "interval": self.interval,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DevicePrompt:
        """Parse the output of `to_json`. Raises ValueError."""
        complete = _text(data, "verificationUriComplete") if data.get("verificationUriComplete") is not None else None
        return cls(
            verification_uri=_text(data, "verificationUri"),
            verification_uri_complete=complete,
            user_code=_text(data, "userCode"),
            interval=_seconds(data, "interval"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequired:
    """A person has to agree first. A tool returns `message`, which has no link, and `authorization_url`. The runtime
    shows them, ends the turn, and begins the next one after the event `auth.granted`."""

    auth_session_id: str
    authorization_url: str
    expires_at: datetime
    message: str
    reason: Reason
    device_code: DevicePrompt | None = None
    status: Literal["authorization_required"] = "authorization_required"

    def __repr__(self) -> str:
        return f"AuthorizationRequired({self.auth_session_id}, reason={self.reason})"  # the link is a bearer URL

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `POST /v1/tokens`: camelCase members, times as text."""
        return {
            "status": self.status,
            "authSessionId": self.auth_session_id,
            "authorizationUrl": self.authorization_url,
            "expiresAt": printed(self.expires_at),
            "message": self.message,
            "reason": self.reason,
            **({"deviceCode": self.device_code.to_json()} if self.device_code is not None else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AuthorizationRequired:
        """Parse the output of `to_json`. Raises ValueError."""
        device = data.get("deviceCode")
        if device is not None and not isinstance(device, dict):
            raise ValueError("deviceCode")
        return cls(
            auth_session_id=_text(data, "authSessionId"),
            authorization_url=_text(data, "authorizationUrl"),
            expires_at=from_iso(_text(data, "expiresAt")),
            message=_text(data, "message"),
            reason=_text(data, "reason"),  # type: ignore[arg-type]  # a newer broker may know one more
            device_code=None if device is None else DevicePrompt.from_json(device),
        )


class AccountName(NamedTuple):
    """One account that a call may name, what its user calls it, the identity that the provider gave it, and its name
    there: a login, a mail address. All but the first are empty until it is connected."""

    account: str
    label: str = ""
    identity: str = ""
    name: str = ""

    def to_json(self) -> dict[str, str]:
        named = {"label": self.label, "identity": self.identity, "name": self.name}
        return {"account": self.account, **{name: text for name, text in named.items() if text}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Nothing a person at a browser can fix. `retryable` says whether asking again later can help. `accounts` are those
    that the call may name, for `accountRequired`; `errors` are the wrong members of a refused request."""

    code: Code
    message: str
    retryable: bool
    retry_after_seconds: int | None = None
    status: Literal["error"] = "error"
    accounts: tuple[AccountName, ...] = ()
    errors: tuple[Mapping[str, str], ...] = ()
    _hint: str = field(default="", repr=False, compare=False)
    _words: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_error(cls, error: BrokerError, locale: Locale) -> Failed:
        """Return the error as a result."""
        return cls(
            _hint=error.hint,
            _words=error.words,
            code=error.code,
            message=error.explained(locale),
            retryable=error.retryable,
            retry_after_seconds=error.retry_after_seconds,
            errors=error.errors,
        )

    def as_error(self) -> BrokerError:
        """Return the error again, which is worded in any language."""
        error = BrokerError(self.code, retry_after_seconds=self.retry_after_seconds)
        error.hint, error.words, error.errors = self._hint, dict(self._words), self.errors
        return error

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `POST /v1/tokens`: `{status, error: {code, message, retryable, retryAfterSeconds?,
        accounts?}}`."""
        error: dict[str, Any] = {"code": self.code.value, "message": self.message, "retryable": self.retryable}
        if self.retry_after_seconds is not None:
            error["retryAfterSeconds"] = self.retry_after_seconds
        if self.accounts:
            error["accounts"] = [each.to_json() for each in self.accounts]
        return {"status": self.status, "error": error}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Failed:
        """Parse the output of `to_json`. Raises ValueError. A code that is not known here keeps its sentence and its
        `retryable`."""
        error = data.get("error")
        if not isinstance(error, dict):
            raise ValueError("error")  # noqa: TRY004  (one kind of error for any answer that is not understood)
        code = known_code(_text(error, "code")) or Code.BROKER_ANSWER_INVALID
        after = None if error.get("retryAfterSeconds") is None else _seconds(error, "retryAfterSeconds")
        return cls(
            code=code,
            message=_text(error, "message"),
            retryable=error.get("retryable") is True,
            retry_after_seconds=after,
            accounts=tuple(_account(each) for each in error.get("accounts", ())),
        )


def _account(data: Any) -> AccountName:
    known = {name: data.get(name, "") for name in AccountName._fields} if isinstance(data, dict) else {}
    if not known or not all(isinstance(text, str) for text in known.values()):
        raise ValueError("accounts")
    return AccountName(**known)


TokenResult = Ready | AuthorizationRequired | Failed
_ACCOUNT_SHOWN = 40  # characters of an account in a sentence
_KINDS: dict[str, type[Ready | AuthorizationRequired | Failed]] = {
    "ready": Ready,
    "authorization_required": AuthorizationRequired,
    "error": Failed,
}


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """How an authorization stands. `code` says why a failed one failed. Two are the same that stand the same."""

    status: Literal["pending", "completed", "failed", "expired"]
    code: Code | None = None
    auth_session_id: str = field(default="", compare=False)


def result_from_json(data: object) -> TokenResult:
    """Parse a result of any of the three kinds. Raises ValueError for other data."""
    kind = _KINDS.get(_text(data, "status")) if isinstance(data, dict) else None
    if kind is None or not isinstance(data, dict):
        raise ValueError("status")
    return kind.from_json(data)


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ValueError(name)  # noqa: TRY004
    return value


def _seconds(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(name)  # noqa: TRY004
    return value


def invitation(
    reason: Reason,
    app: str,
    account: str,
    locale: Locale,
    declined: Sequence[str] = (),
    *,
    apart: bool = False,
    is_key: bool = False,
) -> str:
    """Return the sentence that goes with a link, or with `apart` alone, where the link is delivered privately. `app` is
    the app's display name from our own configuration, and so are the scopes that were `declined`; `account` is the
    runtime's name for one of several. `is_key`: the user enters a key, and there is nothing to agree to."""
    words = SENTENCES[locale]
    sentences = words["privateInvitations" if apart else "invitations"]
    if is_key:
        sentences = sentences | words["privateKeyInvitations" if apart else "keyInvitations"]
    named = f"{app} ({account[:_ACCOUNT_SHOWN]})" if account else app
    return sentences[reason].format(app=named, scopes=", ".join(declined))
