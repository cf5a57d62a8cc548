"""The request to a provider's API that the broker forwards, and its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from oauthbroker.client.client_call import (
    ORIGIN,
    ClientCall,
    Reply,
    list_in,
    members_of,
    refusal_of,
    segment,
    understood,
)
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.header_names import check_text_field, spelled_text
from oauthbroker.core.path_steps import climbs
from oauthbroker.model.token_request import WrongArgument, scopes_listed
from oauthbroker.model.token_results import AuthorizationRequired, result_from_json

_URL = re.compile(r"https?://([A-Za-z0-9.-]+(?::[0-9]{1,5})?)(/[!-\[\]-~]*)?")
_METHOD = re.compile(r"[A-Z]{1,16}")
OURS = frozenset({"authorization", "host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The whole answer of a provider's API, with any status. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """Return the body as JSON. Raises ValueError."""
        return json.loads(self.body)


def forwarded(
    app: str,
    method: str,
    url: str,
    headers: Mapping[str, str] | None,
    content: bytes | None,
    scopes: Sequence[str] | None,
) -> ClientCall[ApiAnswer | AuthorizationRequired | AskedByHead]:
    """Return the call. Not repeatable: the provider may have acted. Raises `requestInvalid` for a URL, method or header
    that cannot be sent as it stands."""
    if not isinstance(method, str) or not _METHOD.fullmatch(method):
        raise WrongArgument("forwardedMethod", "method")
    parts = _URL.fullmatch(url.partition("#")[0]) if isinstance(url, str) else None
    if parts is None or climbs(parts[2] or "/"):
        raise WrongArgument("forwardedUrl", "url")
    fewer = {} if scopes is None else {"OAuthBroker-Scopes": " ".join(map(str, scopes_listed(scopes)))}
    said = _checked({**(headers or {}), **fewer})
    path = f"/v1/proxy/{segment(app)}/{segment(parts[1].lower())}{parts[2] or '/'}"
    return ClientCall(method, path, _answer, repeatable=False, content=content, headers=said)


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a caller may choose. Raises `requestInvalid`."""
    for name, value in headers.items():
        check_text_field(name, value)
    return {name: value for name, value in headers.items() if spelled_text(name) not in OURS}


@dataclass(frozen=True, slots=True)
class AskedByHead:
    """A request for consent in an answer to HEAD, which has no body: `found` finds its link among the turn's."""

    session: str
    reason: str

    @property
    def found(self) -> ClientCall[AuthorizationRequired]:
        return ClientCall("GET", "/v1/turn/pending", self._of)

    def _of(self, reply: Reply) -> AuthorizationRequired:
        """Raises `brokerAnswerInvalid` if the link is gone by now."""
        items = list_in(members_of(reply), "items")
        mine = next((each for each in items if each.get("authSessionId") == self.session), {})
        apart = {"status": "authorization_required", "authorizationUrl": "", "reason": self.reason}
        return understood(lambda: AuthorizationRequired.from_json({**apart, **mine}))


def _answer(reply: Reply) -> ApiAnswer | AuthorizationRequired | AskedByHead:
    return ApiAnswer(reply.status, reply.headers or {}, reply.body) if reply.forwarded else consent(reply)


def consent(reply: Reply) -> AuthorizationRequired | AskedByHead:
    """Return the request for consent in an answer that is not the provider's. Raises the error that any other names."""
    said = reply.headers or {}
    if said.get(ORIGIN) == "authorization_required" and not reply.body and "oauthbroker-session" in said:
        return AskedByHead(said["oauthbroker-session"], said.get("oauthbroker-reason", ""))
    if reply.status != 403 or reply.media_type != "application/json":
        raise refusal_of(reply)
    members = members_of(reply, 403)
    result = understood(lambda: result_from_json(members))
    if not isinstance(result, AuthorizationRequired):
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="none of the proxy's answers")
    return result
