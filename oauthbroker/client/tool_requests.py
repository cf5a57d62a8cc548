"""The operations of a tool: one function each, which builds the request and parses the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from oauthbroker.client.client_call import ClientCall, Reply, list_in, members_of, understood
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, known_code
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_request import scopes_listed
from oauthbroker.model.token_results import SessionOutcome, TokenResult, result_from_json

Links = Literal["inline", "apart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppInfo:
    """An OAuthApp as its callers see it. `environment`: the variables in which programs look for its token."""

    name: str
    title: str
    provider: str
    flow: str
    subject_mode: str
    scopes: tuple[str, ...]
    environment: tuple[str, ...] = ()


def token(
    app: str,
    scopes: Sequence[str] | None,
    min_ttl_seconds: int | None,
    *,
    switch_account: bool,
    kind: str = "OAuthApp",
) -> ClientCall[TokenResult]:
    """Repeatable: the second call finds the token or the session of the first one."""
    body = _asked(ref(app, kind), scopes)
    if min_ttl_seconds is not None:
        body["minTtlSeconds"] = min_ttl_seconds
    if switch_account is not False:
        body["switchAccount"] = switch_account
    return ClientCall("POST", "/v1/tokens", _result, body=body)


def rejected(
    app: str,
    access_token: Secret,
    scopes: Sequence[str] | None,
    claims: str | None = None,
    *,
    kind: str = "OAuthApp",
) -> ClientCall[TokenResult]:
    """Repeatable: a reported token is refreshed once."""
    body = {
        **_asked(ref(app, kind), scopes),
        "accessToken": access_token,
        **({} if claims is None else {"claims": claims}),
    }
    return ClientCall("POST", "/v1/tokens/rejected", _result, body=body)


def pending(links: Links) -> ClientCall[dict[str, Any] | None]:
    """Read a turn's pending requests. Any other value than `inline` requests no links."""
    inline = isinstance(links, str) and links == "inline"
    return ClientCall("GET", "/v1/turn/pending", _block, query={} if inline else {"links": "apart"})


def relay_code(code: Secret) -> ClientCall[SessionOutcome]:
    """Relay a code. Not repeatable: a code allows one try."""
    return ClientCall("POST", "/v1/auth-sessions/confirm", outcome, body={"channelCode": code}, repeatable=False)


def apps() -> ClientCall[list[AppInfo]]:
    return ClientCall("GET", "/v1/apps", lambda reply: [_app(each) for each in list_in(members_of(reply), "apps")])


def _result(reply: Reply) -> TokenResult:
    members = members_of(reply)
    return understood(lambda: result_from_json(members))


def _block(reply: Reply) -> dict[str, Any] | None:
    """Return the block; None if nothing is pending, as `broker.pending` does."""
    members = members_of(reply)
    if members.get("type") != "auth.pending" or not isinstance(members.get("items"), list):
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="not a block")
    return members if members["items"] else None


def outcome(reply: Reply) -> SessionOutcome:
    said = members_of(reply)
    status, word = said.get("status"), said.get("code")
    if status not in {"pending", "completed", "failed", "expired"}:
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="not a state of a session")
    code = (known_code(word) or Code.BROKER_ANSWER_INVALID) if isinstance(word, str) else None
    return SessionOutcome(status, code, str(said.get("authSessionId", "")))


def _app(said: dict[str, Any]) -> AppInfo:
    return understood(
        lambda: AppInfo(
            name=said["name"],
            title=said["title"],
            provider=said["provider"],
            flow=said["flow"],
            subject_mode=said["subjectMode"],
            scopes=tuple(said["scopes"]),
            environment=tuple(said.get("environment", ())),
        )
    )


def ref(app: str, kind: str = "OAuthApp") -> dict[str, str]:
    return {"kind": kind, "name": app}


def _asked(named: dict[str, str], scopes: object) -> dict[str, Any]:
    """Return the body. Raises `requestInvalid` unless scopes are a collection, as the broker does."""
    return {"oauthAppRef": named, **({} if scopes is None else {"scopes": scopes_listed(scopes)})}
