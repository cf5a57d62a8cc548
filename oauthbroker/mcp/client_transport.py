"""Bring a user's token to an MCP server, below the HTTP client of the `mcp` SDK.

An exception in a transport ends the SDK's whole session. So when the user has to consent, the transport answers this
one request itself, in the server's place, and waits inside the repeated one. It holds no lock meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final

import httpx2

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, Broker, BrokerError, InjectionError, Turn
from oauthbroker.mcp.consent import CANCEL, INPUT, PATIENCE_SECONDS, PENDING, STATELESS, ended
from oauthbroker.mcp.rpc_messages import (
    OURS,
    call_of,
    elicits_urls,
    error_answer,
    failed_answer,
    for_user,
    member,
    with_body,
    without_ours,
)
from oauthbroker.plugins import Allowance, AnswerTooLarge, Bounded, bounded_answer, demanded_scopes

READ_SECONDS: Final = 300.0  # as the SDK's own HTTP client: a tool's call may be silent for minutes
URL_ELICITATION_REQUIRED: Final = -32042  # in revision 2025-11-25
ROUNDS: Final = 10  # in which the SDK's clients repeat a request
MOST_ASKED: Final = 64
MOST_CONSENTS: Final = 2  # of one request: to connect, and to larger scopes
REFUSES: Final = "The MCP server refuses what the user has just consented to. Do not ask again; tell the operator."
BROKEN: Final = "The MCP request failed in the host. Its operator finds the kind of error in the log."
_LOG: Final = logging.getLogger("oauthbroker.mcp")
_ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})  # the methods that may be answered so
_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
STATE: Final = f"{INPUT}-"  # before each state of ours

Call = dict[str, Any]
Show = Callable[[AuthorizationRequired], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that waits for the user: the auth session, what the request brought for the server, and how often it
    has asked."""

    session_id: str
    theirs: dict[str, Any]
    consents: int


class McpTransport(httpx2.AsyncBaseTransport):
    """The transport for one user's session with one MCP server. Never raises to the SDK.

    `app` is the app of the server, whose `api.hosts` name it. `scopes` are the first ones. None for those that the
    server asks for, as far as they are the app's, and for all of the app's where it says none. A server that wants more
    gets them within the app's ceiling. `tool` and `private_links` are as in `Broker.oauth`.

    Only tool calls, prompts and resources can ask the user through MCP. For all other requests, such as the first ones
    of a session, and for a host that did not declare URL elicitation, `show` shows the user a link, and the request
    waits. Without it they fail with the link.
    """

    def __init__(
        self,
        broker: Broker,
        turn: Turn,
        app: str,
        *,
        scopes: Sequence[str] | None = None,
        tool: str | None = None,
        private_links: bool = False,
        show: Show | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._broker, self._oauth = broker, broker.oauth(turn, tool, private_links=private_links)
        self._app, self._scopes = app, None if scopes is None else tuple(scopes)
        self._client = self._oauth.client(app, self._scopes)
        self._has_begun, self.failure = False, ""  # `failure`: our sentence for the last request that we failed
        self._show, self._patience = show, patience_seconds
        self._allowed: Allowance | None = None  # what all answers may take together; None for one's own for each
        self._asked = Bounded[str, _Asked](MOST_ASKED)
        self._elicits = False  # as the `initialize` of an older client said
        self._shown = Bounded[str, None](MOST_ASKED)  # auth sessions whose link a host was given in an error
        self._refused = Bounded[str, None](MOST_ASKED)  # operations that larger scopes did not help
        self._declined = ""  # our sentence, if the user did not agree when the SDK asked which revision there is

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request with the token of its turn. A failure is an answer, not an exception."""
        call = call_of(request)
        try:
            if self._scopes is None and not self._has_begun:
                await self._begin()
            if call is None:
                return await self._sent(request)
            if call["method"] == "initialize":
                self._elicits = elicits_urls(call.get("params", {}).get("capabilities"))
                if self._declined:  # the SDK takes the refusal for an older server, and the user would be asked again
                    self.failure, self._declined = self._declined, ""
                    return failed_answer(call, self.failure)
            return await self._answered(request, call)
        except InjectionError as error:
            self.failure = error.for_model
        except BrokerError as error:
            self.failure = str(error)
        except AnswerTooLarge as error:
            self.failure = f"The MCP request failed: {error}."
        except httpx2.TransportError as error:
            self.failure = f"The MCP server cannot be reached: {type(error).__name__}"
        except Exception as error:  # noqa: BLE001  (of `show`, or of the HTTP client)
            _LOG.error("an MCP request failed: %s", type(error).__name__)
            self.failure = BROKEN
        return failed_answer(call, self.failure)

    async def _begin(self) -> None:
        first = await self._oauth.first_scopes(self._app)
        if first is not None and self._scopes is None:
            self._use(first)
        self._has_begun = True

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._client.aclose()

    async def _answered(self, request: httpx2.Request, call: Call) -> httpx2.Response:
        params = call.get("params", {})
        state = str(params.get("requestState"))
        asked, action = self._asked.pop(state), None
        if asked is None and state.startswith(STATE):  # evicted, or made up by the server: a new request
            call = {**call, "params": without_ours(params)}
            request = with_body(request, call)
        elif asked is not None:
            action = member(member(params.get("inputResponses"), INPUT), "action")
            end = None if action == CANCEL else await self._ended(asked.session_id, str(action))
            if end is not None:
                return self._asking(call, asked) if end == PENDING else failed_answer(call, end)
            kept = {name: value for name, value in params.items() if name not in OURS}
            call = {**call, "params": {**kept, **asked.theirs}}
            request = with_body(request, call)
        try:
            return await self._with_scopes(request, call)
        except AuthorizationRequiredError as error:
            consents, cancelled = 0 if asked is None else asked.consents, action == CANCEL
            if consents >= MOST_CONSENTS and not cancelled:
                return failed_answer(call, REFUSES)
            return await self._ask(request, call, error.result, consents, cancelled=cancelled)

    async def _with_scopes(self, request: httpx2.Request, call: Call) -> httpx2.Response:
        """Send a request, and once more with the scopes that the server demands (RFC 6750 section 3.1)."""
        response = await self._sent(request)
        operation = f"{call.get('method')} {(call.get('params') or {}).get('name', '')}"
        wanted = demanded_scopes(response.status_code, response.headers.raw)
        if self._scopes is None or operation in self._refused or wanted <= set(self._scopes):
            return response
        await response.aclose()
        larger = tuple(dict.fromkeys((*self._scopes, *sorted(wanted))))
        try:
            response = await self._sent(request, self._oauth.client(self._app, larger))
        except InjectionError as error:
            if not isinstance(error, AuthorizationRequiredError):  # beyond the ceiling: the next request asks as before
                self._refused.keep(operation, None)
                raise
            self._use(larger)
            raise
        if demanded_scopes(response.status_code, response.headers.raw):
            self._refused.keep(operation, None)
        self._use(larger)
        return response

    def _use(self, scopes: tuple[str, ...]) -> None:
        self._scopes, self._client = scopes, self._oauth.client(self._app, scopes)

    async def _sent(self, request: httpx2.Request, client: httpx2.AsyncClient | None = None) -> httpx2.Response:
        request.extensions = {**request.extensions, "timeout": {"read": READ_SECONDS}}  # not the 5 s of a host's client
        answer = await (client or self._client).send(request, stream=True)
        return await bounded_answer(answer, self._allowed or Allowance())

    async def _ask(
        self, request: httpx2.Request, call: Call, result: AuthorizationRequired, consents: int, *, cancelled: bool
    ) -> httpx2.Response:
        """Answer with the link, in the way that the host declared; as to one that declared nothing, if it has just
        cancelled the question.

        A host that got it in an error or a sentence repeats its request without our state: wait in there.
        """
        params = call.get("params", {})
        stateless = request.headers.get("mcp-protocol-version", "") >= STATELESS
        elicits = elicits_urls(member(params.get("_meta"), _CAPABILITIES)) if stateless else self._elicits
        elicits = elicits and not cancelled
        if stateless and elicits and call.get("method") in _ASKING:
            theirs = {name: params[name] for name in OURS if name in params}
            return self._asking(call, _Asked(result.auth_session_id, theirs, consents + 1), result)
        shown = result.auth_session_id in self._shown
        self._shown.keep(result.auth_session_id, None)
        if self._show is not None and not shown:
            await self._shows(self._show, result)
        if self._show is not None or (shown and call.get("method") in _ASKING):
            end = await self._ended(result.auth_session_id, rounds=ROUNDS if self._show else 1)
            if end is None:
                return await self._sent(request)
            if end != PENDING:
                self._shown.pop(result.auth_session_id)
                self._declined = end if call.get("method") == "server/discover" else ""
                return failed_answer(call, end)
        sentence = AuthorizationRequiredError(result).for_model
        if not elicits:
            return failed_answer(call, sentence)
        elicitation = {"elicitationId": result.auth_session_id, **for_user(result)}
        return error_answer(call, URL_ELICITATION_REQUIRED, sentence, {"elicitations": [elicitation]})

    async def _shows(self, show: Show, result: AuthorizationRequired) -> None:
        """Show the link. If that fails, the next request shows it again."""
        try:
            await show(result)
        except BaseException:
            self._shown.pop(result.auth_session_id)
            raise

    async def _ended(self, session_id: str, action: str | None = None, rounds: int = 1) -> str | None:
        return await ended(self._broker, session_id, action, seconds=self._patience * rounds)

    def _asking(self, call: Call, asked: _Asked, result: AuthorizationRequired | None = None) -> httpx2.Response:
        """Answer `input_required`: with the link, or only with the state while the user is at it."""
        security = import_module("mcp.server.request_state").RequestStateSecurity  # not in `mcp` 1
        state = STATE + security.ephemeral().codec.seal(b"")  # the host keeps it, and the server cannot guess it
        self._asked.keep(state, asked)
        answer: dict[str, Any] = {"resultType": "input_required", "requestState": state}
        if result is not None:
            answer["inputRequests"] = {INPUT: {"method": "elicitation/create", "params": for_user(result)}}
        return httpx2.Response(HTTPStatus.OK, json={"jsonrpc": "2.0", "id": call["id"], "result": answer})
