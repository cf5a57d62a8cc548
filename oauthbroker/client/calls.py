"""The API's operations as the client makes them: one function each, what is sent beside what is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from oauthbroker.apps import ToolAuth
from oauthbroker.client.call import Call, Reply, members_of, refusal_of, understood
from oauthbroker.clock import from_iso
from oauthbroker.errors import BrokerError, Code, known_code
from oauthbroker.grant_summary import GrantSummary
from oauthbroker.records import AgentEvent
from oauthbroker.results import SessionOutcome, TokenResult, result_from_json
from oauthbroker.secret import Secret
from oauthbroker.token_request import AppRef, app_name
from oauthbroker.turn import Turn

LONGEST_WAIT = 60
Links = Literal["inline", "apart"]
Tools = Mapping[str, Sequence[ToolAuth] | None]


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """What the broker answered to a turn's beginning."""

    turn_id: str
    token: Secret
    tool_tokens: Mapping[str, Secret]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Leased:
    """An event and the lease it came with."""

    event: AgentEvent
    attempt: int
    lease: Secret
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class AppInfo:
    """An OAuthApp as its callers may know it."""

    name: str
    title: str
    provider: str
    flow: str
    subject_mode: str
    scopes: tuple[str, ...]


def token(
    app: str, scopes: Sequence[str] | None, min_ttl_seconds: int | None, *, switch_account: bool
) -> Call[TokenResult]:
    """Repeatable: the second time finds the token or the session that the first one made."""
    body: dict[str, Any] = {"oauthAppRef": _ref(app)}
    if scopes is not None:
        body["scopes"] = _scopes(scopes)
    if min_ttl_seconds is not None:
        body["minTtlSeconds"] = min_ttl_seconds
    if switch_account is not False:
        body["switchAccount"] = switch_account
    return Call("POST", "/v1/tokens", _result, body)


def rejected(app: str, access_token: Secret, scopes: Sequence[str] | None) -> Call[TokenResult]:
    """Repeatable: a token that was reported is renewed once."""
    body: dict[str, Any] = {"oauthAppRef": _ref(app), "accessToken": access_token}
    if scopes is not None:
        body["scopes"] = _scopes(scopes)
    return Call("POST", "/v1/tokens/rejected", _result, body)


def begin_turn(
    turn: Turn, tools: Tools | Collection[str], ttl_seconds: int | None, *, private_links: bool
) -> Call[BegunTurn]:
    """Not repeatable: each try that arrives begins a turn of its own."""
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
    return Call("POST", "/v1/turns", _begun, body, repeatable=False)


def end_turn(turn_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/turns/{_part(turn_id)}", _nothing)


def pending(links: Links) -> Call[dict[str, Any] | None]:
    """Any other word than `inline` asks for no links."""
    inline = isinstance(links, str) and links == "inline"
    return Call("GET", "/v1/turn/pending", _block, query={} if inline else {"links": "apart"})


def links() -> Call[list[dict[str, Any]]]:
    return Call("GET", "/v1/turn/links", lambda reply: _list_of(reply, "links"))


def lease(agent: str, wait: int) -> Call[Leased | None]:
    """Repeatable: what a lost answer had leased comes again when that lease ends."""
    query = {"wait": str(wait)} if wait else {}
    return Call("GET", f"/v1/agents/{_part(agent)}/events", _leased, query=query, patience=wait)


def settle(agent: str, event_id: str, lease: Secret, how: Literal["ack", "nack"]) -> Call[bool]:
    """Repeatable: a lease settles its event once."""
    return Call("POST", f"/v1/agents/{_part(agent)}/events/{_part(event_id)}/{how}", _settled, {"lease": lease})


def session(auth_session_id: str) -> Call[SessionOutcome]:
    return Call("GET", f"/v1/auth-sessions/{_part(auth_session_id)}", _outcome)


def cancel(auth_session_id: str) -> Call[bool]:
    return Call(
        "DELETE", f"/v1/auth-sessions/{_part(auth_session_id)}", lambda reply: members_of(reply)["cancelled"] is True
    )


def confirm(handle: Secret, subject: str) -> Call[SessionOutcome]:
    """Not repeatable: a handle is good for one try."""
    body = {"handle": handle, "subject": subject}
    return Call("POST", "/v1/auth-sessions/confirm", _outcome, body, repeatable=False)


def relay_code(code: Secret) -> Call[SessionOutcome]:
    """Not repeatable: a code is good for one try."""
    return Call("POST", "/v1/auth-sessions/confirm", _outcome, {"channelCode": code}, repeatable=False)


def connections_link(subjects: Mapping[str, str]) -> Call[tuple[str, datetime]]:
    """Repeatable: a link that nobody got is opened by nobody."""
    return Call("POST", "/v1/connections", _link, {"subjects": dict(subjects)})


def apps() -> Call[list[AppInfo]]:
    return Call("GET", "/v1/apps", lambda reply: [_app(each) for each in _list_of(reply, "apps")])


def grants(
    app: AppRef | None, subject: str | None, state: str | None, after: str | None
) -> Call[tuple[list[GrantSummary], str | None]]:
    """One page of grants, and where the next one begins."""
    asked = {"app": None if app is None else app_name(app), "subject": subject, "state": state, "after": after}
    query = {name: value for name, value in asked.items() if value is not None}
    return Call("GET", "/v1/grants", _page, query=query)


def revoke(grant_id: str) -> Call[str | None]:
    return Call("DELETE", f"/v1/grants/{_part(grant_id)}", _told)


def grant_record(grant_id: str) -> Call[dict[str, Any] | None]:
    return Call("GET", f"/v1/grants/{_part(grant_id)}/record", lambda reply: _known(reply, Code.GRANT_NOT_FOUND))


def session_record(auth_session_id: str) -> Call[dict[str, Any] | None]:
    return Call("GET", f"/v1/auth-sessions/{_part(auth_session_id)}/record", _known)


def sessions(
    app: AppRef | None, subject: str | None, status: str | None, after: str | None
) -> Call[tuple[list[dict[str, Any]], str | None]]:
    """One page of records, and where the next one begins."""
    asked = {"app": None if app is None else app_name(app), "subject": subject, "status": status, "after": after}
    query = {name: value for name, value in asked.items() if value is not None}
    return Call(
        "GET",
        "/v1/auth-sessions",
        lambda reply: (_list_of(reply, "sessions"), members_of(reply).get("next")),
        query=query,
    )


def queues() -> Call[list[dict[str, Any]]]:
    return Call("GET", "/v1/queues", lambda reply: _list_of(reply, "queues"))


def dead_letters(agent: str) -> Call[list[dict[str, Any]]]:
    return Call("GET", f"/v1/agents/{_part(agent)}/dead-letters", lambda reply: _list_of(reply, "deadLetters"))


def retry_dead_letter(agent: str, event_id: str) -> Call[bool]:
    """Not repeatable: the second time finds no dead letter."""
    path = f"/v1/agents/{_part(agent)}/dead-letters/{_part(event_id)}/retry"
    return Call("POST", path, _changed, repeatable=False)


def drop_dead_letter(agent: str, event_id: str) -> Call[bool]:
    """Not repeatable: the second time finds no dead letter."""
    path = f"/v1/agents/{_part(agent)}/dead-letters/{_part(event_id)}"
    return Call("DELETE", path, _changed, repeatable=False)


def erase(subject: str, *, dry_run: bool) -> Call[dict[str, Any]]:
    """Repeatable: the second time goes on where the first one stopped."""
    body = {"subject": subject, **({"dryRun": True} if dry_run else {})}
    return Call("POST", "/v1/subjects/erase", members_of, body)


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
    """None when nothing waits, as `broker.pending` says it."""
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
    """False for a lease that had ended."""
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
    """None when no grant of that id was alive."""
    if reply.status == 404 and refusal_of(reply).code is Code.GRANT_NOT_FOUND:
        return None
    said = members_of(reply)
    return understood(lambda: str(said["provider"]))


def _known(reply: Reply, unknown: Code = Code.NOT_FOUND) -> dict[str, Any] | None:
    """None where no record has that id."""
    if reply.status == 404 and refusal_of(reply).code is unknown:
        return None
    return members_of(reply)


def _changed(reply: Reply) -> bool:
    """False where no dead letter has that id."""
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
    """Raises `scopeNotAllowed` for what is no collection of scopes, as the broker itself does."""
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
    """One segment of a path. Raises `requestInvalid` for what would be another path."""
    if not isinstance(text, str) or text in {"", ".", ".."}:
        raise BrokerError(Code.REQUEST_INVALID, note="an empty name")
    return quote(text, safe="", errors="replace")
