"""The API's operations for the client: one function each, which builds the request and parses the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from oauthbroker.client.call import ClientCall, Reply, members_of, refusal_of, understood
from oauthbroker.core.clock import from_iso
from oauthbroker.core.errors import BrokerError, Code, known_code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import ToolAuth
from oauthbroker.model.results import SessionOutcome, TokenResult, result_from_json
from oauthbroker.model.token_request import AppRef, app_name
from oauthbroker.model.turn import Turn
from oauthbroker.records import AgentEvent
from oauthbroker.records.grant_summary import GrantSummary

LONGEST_WAIT = 60
Links = Literal["inline", "apart"]
Tools = Mapping[str, Sequence[ToolAuth] | None]


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """The broker's answer to the beginning of a turn."""

    turn_id: str
    token: Secret
    tool_tokens: Mapping[str, Secret]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Leased:
    """An event and its lease."""

    event: AgentEvent
    attempt: int
    lease: Secret
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AppInfo:
    """An OAuthApp as its callers see it."""

    name: str
    title: str
    provider: str
    flow: str
    subject_mode: str
    scopes: tuple[str, ...]


def token(
    app: str, scopes: Sequence[str] | None, min_ttl_seconds: int | None, *, switch_account: bool
) -> ClientCall[TokenResult]:
    """Repeatable: the second call finds the token or the session of the first one."""
    body: dict[str, Any] = {"oauthAppRef": _ref(app)}
    if scopes is not None:
        body["scopes"] = _scopes(scopes)
    if min_ttl_seconds is not None:
        body["minTtlSeconds"] = min_ttl_seconds
    if switch_account is not False:
        body["switchAccount"] = switch_account
    return ClientCall("POST", "/v1/tokens", _result, body)


def rejected(app: str, access_token: Secret, scopes: Sequence[str] | None) -> ClientCall[TokenResult]:
    """Repeatable: a reported token is refreshed once."""
    body: dict[str, Any] = {"oauthAppRef": _ref(app), "accessToken": access_token}
    if scopes is not None:
        body["scopes"] = _scopes(scopes)
    return ClientCall("POST", "/v1/tokens/rejected", _result, body)


def begin_turn(
    turn: Turn, tools: Tools | Collection[str], ttl_seconds: int | None, *, private_links: bool
) -> ClientCall[BegunTurn]:
    """Not repeatable: each call that arrives begins a turn of its own."""
    said: dict[str, Any] = {
        "agentName": turn.agent_name,
        "instanceKey": turn.instance_key,
        "swarmRef": turn.swarm_ref,
        "origin": dict(turn.origin),
        **({"auth": turn.auth.to_json()} if turn.auth is not None else {}),
        **({"locale": turn.locale} if turn.locale is not None else {}),
    }
    named = tools if isinstance(tools, Mapping) else dict.fromkeys(tools)
    body: dict[str, Any] = {"turn": said, "tools": {tool: _auths(auths) for tool, auths in named.items()}}
    if ttl_seconds is not None:
        body["ttlSeconds"] = ttl_seconds
    if private_links:
        body["privateLinks"] = True
    return ClientCall("POST", "/v1/turns", _begun, body, repeatable=False)


def end_turn(turn_id: str) -> ClientCall[None]:
    return ClientCall("DELETE", f"/v1/turns/{_part(turn_id)}", _nothing)


def pending(links: Links) -> ClientCall[dict[str, Any] | None]:
    """Any other value than `inline` requests no links."""
    inline = isinstance(links, str) and links == "inline"
    return ClientCall("GET", "/v1/turn/pending", _block, query={} if inline else {"links": "apart"})


def links() -> ClientCall[list[dict[str, Any]]]:
    return ClientCall("GET", "/v1/turn/links", lambda reply: _list_of(reply, "links"))


def lease(agent: str, wait: int) -> ClientCall[Leased | None]:
    """Repeatable: an event whose answer was lost is delivered again when its lease ends."""
    query = {"wait": str(wait)} if wait else {}
    return ClientCall("GET", f"/v1/agents/{_part(agent)}/events", _leased, query=query, patience=wait)


def settle(agent: str, event_id: str, lease: Secret, how: Literal["ack", "nack"]) -> ClientCall[bool]:
    """Repeatable: a lease settles its event once."""
    return ClientCall("POST", f"/v1/agents/{_part(agent)}/events/{_part(event_id)}/{how}", _settled, {"lease": lease})


def session(auth_session_id: str) -> ClientCall[SessionOutcome]:
    return ClientCall("GET", f"/v1/auth-sessions/{_part(auth_session_id)}", _outcome)


def cancel(auth_session_id: str) -> ClientCall[bool]:
    return ClientCall(
        "DELETE", f"/v1/auth-sessions/{_part(auth_session_id)}", lambda reply: members_of(reply)["cancelled"] is True
    )


def confirm(handle: Secret, subject: str) -> ClientCall[SessionOutcome]:
    """Not repeatable: a handle allows one try."""
    body = {"handle": handle, "subject": subject}
    return ClientCall("POST", "/v1/auth-sessions/confirm", _outcome, body, repeatable=False)


def relay_code(code: Secret) -> ClientCall[SessionOutcome]:
    """Not repeatable: a code allows one try."""
    return ClientCall("POST", "/v1/auth-sessions/confirm", _outcome, {"channelCode": code}, repeatable=False)


def connections_link(subjects: Mapping[str, str]) -> ClientCall[tuple[str, datetime]]:
    """Repeatable: a lost link is never opened."""
    return ClientCall("POST", "/v1/connections", _link, {"subjects": dict(subjects)})


def apps() -> ClientCall[list[AppInfo]]:
    return ClientCall("GET", "/v1/apps", lambda reply: [_app(each) for each in _list_of(reply, "apps")])


def grants(
    app: AppRef | None, subject: str | None, state: str | None, after: str | None
) -> ClientCall[tuple[list[GrantSummary], str | None]]:
    """Return one page of grants, and the start of the next one."""
    asked = {"app": None if app is None else app_name(app), "subject": subject, "state": state, "after": after}
    query = {name: value for name, value in asked.items() if value is not None}
    return ClientCall("GET", "/v1/grants", _page, query=query)


def revoke(grant_id: str) -> ClientCall[str | None]:
    return ClientCall("DELETE", f"/v1/grants/{_part(grant_id)}", _told)


def grant_record(grant_id: str) -> ClientCall[dict[str, Any] | None]:
    return ClientCall("GET", f"/v1/grants/{_part(grant_id)}/record", lambda reply: _known(reply, Code.GRANT_NOT_FOUND))


def session_record(auth_session_id: str) -> ClientCall[dict[str, Any] | None]:
    return ClientCall("GET", f"/v1/auth-sessions/{_part(auth_session_id)}/record", _known)


def sessions(
    app: AppRef | None, subject: str | None, status: str | None, after: str | None
) -> ClientCall[tuple[list[dict[str, Any]], str | None]]:
    """Return one page of records, and the start of the next one."""
    asked = {"app": None if app is None else app_name(app), "subject": subject, "status": status, "after": after}
    query = {name: value for name, value in asked.items() if value is not None}
    return ClientCall(
        "GET",
        "/v1/auth-sessions",
        lambda reply: (_list_of(reply, "sessions"), members_of(reply).get("next")),
        query=query,
    )


def queues() -> ClientCall[list[dict[str, Any]]]:
    return ClientCall("GET", "/v1/queues", lambda reply: _list_of(reply, "queues"))


def dead_letters(agent: str) -> ClientCall[list[dict[str, Any]]]:
    return ClientCall("GET", f"/v1/agents/{_part(agent)}/dead-letters", lambda reply: _list_of(reply, "deadLetters"))


def retry_dead_letter(agent: str, event_id: str) -> ClientCall[bool]:
    """Not repeatable: the second call finds no dead letter."""
    path = f"/v1/agents/{_part(agent)}/dead-letters/{_part(event_id)}/retry"
    return ClientCall("POST", path, _changed, repeatable=False)


def drop_dead_letter(agent: str, event_id: str) -> ClientCall[bool]:
    """Not repeatable: the second call finds no dead letter."""
    path = f"/v1/agents/{_part(agent)}/dead-letters/{_part(event_id)}"
    return ClientCall("DELETE", path, _changed, repeatable=False)


def erase(subject: str, *, dry_run: bool) -> ClientCall[dict[str, Any]]:
    """Repeatable: the second call continues the first one."""
    body = {"subject": subject, **({"dryRun": True} if dry_run else {})}
    return ClientCall("POST", "/v1/subjects/erase", members_of, body)


def _result(reply: Reply) -> TokenResult:
    members = members_of(reply)
    return understood(lambda: result_from_json(members))


def _begun(reply: Reply) -> BegunTurn:
    members = members_of(reply, 201)

    def read() -> BegunTurn:
        tools = {tool: Secret(text) for tool, text in members["toolTokens"].items()}
        return BegunTurn(members["turnId"], Secret(members["turnToken"]), tools, from_iso(members["expiresAt"]))

    return understood(read)


def _nothing(reply: Reply) -> None:
    if reply.status != 204:
        raise refusal_of(reply)


def _block(reply: Reply) -> dict[str, Any] | None:
    """Return the block; None if nothing is pending, as `broker.pending` does."""
    members = members_of(reply)
    if members.get("type") != "auth.pending" or not isinstance(members.get("items"), list):
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="not a block")
    return members if members["items"] else None


def _leased(reply: Reply) -> Leased | None:
    if reply.status == 204:
        return None
    said = members_of(reply)
    return understood(
        lambda: Leased(
            AgentEvent.from_json(said["event"]),
            int(said["attempt"]),
            Secret(said["lease"]),
            from_iso(said["leaseExpiresAt"]),
        )
    )


def _settled(reply: Reply) -> bool:
    """Return False for a lease that has ended."""
    if reply.status == 204:
        return True
    error = refusal_of(reply)
    if error.code is Code.LEASE_LOST:
        return False
    raise error


def _outcome(reply: Reply) -> SessionOutcome:
    said = members_of(reply)
    status, word = said.get("status"), said.get("code")
    if status not in {"pending", "completed", "failed", "expired"}:
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="not a state of a session")
    code = (known_code(word) or Code.BROKER_ANSWER_INVALID) if isinstance(word, str) else None
    return SessionOutcome(status, code, str(said.get("authSessionId", "")))


def _link(reply: Reply) -> tuple[str, datetime]:
    said = members_of(reply, 201)
    return understood(lambda: (str(said["url"]), from_iso(said["expiresAt"])))


def _app(said: dict[str, Any]) -> AppInfo:
    return understood(
        lambda: AppInfo(
            said["name"], said["title"], said["provider"], said["flow"], said["subjectMode"], tuple(said["scopes"])
        )
    )


def _page(reply: Reply) -> tuple[list[GrantSummary], str | None]:
    found, after = _list_of(reply, "grants"), members_of(reply).get("next")
    return understood(lambda: [GrantSummary.from_json(each) for each in found]), after


def _told(reply: Reply) -> str | None:
    """Return the provider's state; None if there was no live grant with that id."""
    if reply.status == 404 and refusal_of(reply).code is Code.GRANT_NOT_FOUND:
        return None
    said = members_of(reply)
    return understood(lambda: str(said["provider"]))


def _known(reply: Reply, unknown: Code = Code.NOT_FOUND) -> dict[str, Any] | None:
    """Return the record; None if no record has that id."""
    if reply.status == 404 and refusal_of(reply).code is unknown:
        return None
    return members_of(reply)


def _changed(reply: Reply) -> bool:
    """Return False if no dead letter has that id."""
    if reply.status == 404 and refusal_of(reply).code is Code.NOT_FOUND:
        return False
    _nothing(reply)
    return True


def _list_of(reply: Reply, name: str) -> list[dict[str, Any]]:
    found = members_of(reply).get(name)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="not a list")
    return found


def _ref(app: str) -> dict[str, str]:
    return {"kind": "OAuthApp", "name": app}


def _scopes(scopes: object) -> list[Any]:
    """Check scopes. Raises `scopeNotAllowed` unless they are a collection of scopes, as the broker does."""
    if not isinstance(scopes, (list, tuple, set, frozenset)):
        raise BrokerError(Code.SCOPE_NOT_ALLOWED)
    return list(scopes)


def _auths(auths: Sequence[ToolAuth] | None) -> list[dict[str, Any]] | None:
    if auths is None:
        return None
    return [
        {"oauthAppRef": _ref(app_name(auth.app)), **({"scopes": list(auth.scopes)} if auth.scopes is not None else {})}
        for auth in auths
    ]


def _part(text: str) -> str:
    """Encode one segment of a path. Raises `requestInvalid` for a text that would change the path."""
    if not isinstance(text, str) or text in {"", ".", ".."}:
        raise BrokerError(Code.REQUEST_INVALID, note="an empty name")
    return quote(text, safe="", errors="replace")
