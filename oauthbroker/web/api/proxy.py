"""`/v1/proxy/{app}/{host}/{path}`: a tool's request goes to a provider's API with the token, which the tool never gets.

The header `OAuthBroker-Status` tells the broker's own answers from the provider's. Only `forwarded` is the provider's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code, Locale
from oauthbroker.injection.headers import STATUS, Headers
from oauthbroker.injection.http_clients import network_failure
from oauthbroker.injection.injector import LONGEST_STALL_SECONDS, ForwardedAnswer
from oauthbroker.model.provider_api import METHODS
from oauthbroker.model.token_request import WrongArgument, call_ref
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.services import Services
from oauthbroker.web.api.authentication import Callers, known
from oauthbroker.web.api.handler_call import note_refused, reply
from oauthbroker.web.api.proxied_body import ProxiedBody
from oauthbroker.web.gate import error_responses
from oauthbroker.web.gate.request_limits import PROXIED, may_take_long
from oauthbroker.web.middleware.rate_limits import RequestLimits

PATH = f"{PROXIED}{{app}}/{{host}}/{{path}}"
ROUTE = PATH.replace("{path}", "{path:path}")
REST = f"{PROXIED}{{rest:path}}"  # an address without a path, or without a host, which has a header of ours, too
MOST_AT_ONCE = 32  # requests under way of one turn
STILL_SECONDS = 15.0  # between two looks at the turn, while an answer goes on
FIRST_HOST = "-"  # in the path: the first of the app's hosts
CODE = "OAuthBroker-Code"  # of a refusal: its code, also where HEAD has no body
SESSION, REASON = "OAuthBroker-Session", "OAuthBroker-Reason"  # of a request for consent; its link is in the body alone
NETWORK = "OAuthBroker-Network"  # of a refusal: how the provider was not reached, by httpx's name for it
_PATH = "/:@!$&'()*+,;=~"  # what needs no percent sign in a path (RFC 3986 section 3.3)
_TIMEOUT = b"oauthbroker-timeout"
_SCOPES = b"oauthbroker-scopes"
_ACCOUNT = b"oauthbroker-account"
_SECONDS = re.compile(rb"[0-9]{1,3}(?:\.[0-9]{1,3})?")
_REACHED = frozenset(
    {Code.NOT_ALLOWED, Code.TURN_ENDED, Code.APP_FORBIDDEN, Code.SCOPE_NOT_ALLOWED, Code.API_HOST_FORBIDDEN,
     Code.API_METHOD_FORBIDDEN, Code.API_PATH_FORBIDDEN}
)  # fmt: skip


class ProxyTarget(NamedTuple):
    """The request line's target: names decoded, the path with its query as it came."""

    app: str
    host: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyEndpoint:
    """Answers the requests of tools, as an ASGI application."""

    services: Services
    callers: Callers
    limits: RequestLimits
    locale: Locale
    _under_way: Counter[str] = field(default_factory=Counter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with (1) a refusal (2) a request for consent (3) the provider's answer.

        The caller, its rate and the target are checked before anything of a body is read, and the token is issued last.
        Raises HTTPException for a method that no app allows.
        """
        request = Request(scope, receive)
        if request.method not in METHODS:
            raise HTTPException(405, headers={"allow": ", ".join(METHODS)})
        caller: TurnTokenHolder | None = None
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            caller = await self._token_holder(request)
            with self._place(caller.turn_id):
                response = await self._forward(request, caller, noted)
        except BrokerError as error:
            refused = error
        else:
            if response is not None:
                await response(scope, receive, send)
            return
        if refused.code in _REACHED:
            await note_refused(self.services, caller, request, refused.code)
        response = self._refusal(request, caller, refused)
        if started:
            raise ClientDisconnect  # the server closes the connection, so that the answer has no regular end
        await response(scope, receive, send)

    async def _token_holder(self, request: Request) -> TurnTokenHolder:
        caller = await known(request, self.callers, self.limits)
        if not isinstance(caller, TurnTokenHolder):
            raise BrokerError(Code.NOT_ALLOWED)
        return caller

    @contextmanager
    def _place(self, turn: str) -> Iterator[None]:
        """Take one of the turn's places for the time of the block. Raises `rateLimited`."""
        if self._under_way[turn] >= MOST_AT_ONCE:
            raise BrokerError(Code.RATE_LIMITED, retry_after_seconds=1, note="too many requests at once")
        self._under_way[turn] += 1
        try:
            yield
        finally:
            self._under_way[turn] -= 1
            if not self._under_way[turn]:
                del self._under_way[turn]

    async def _forward(self, request: Request, caller: TurnTokenHolder, send: Send) -> Response | None:
        """Send the request on, and pass on the answer. Return the answer if it is the broker's own."""
        asked = _target_of(request)
        calls = self.services.contexts.of_turn_token(caller).injected_calls(
            call_ref(asked.app, _account_of(request), self.services.config.bundle.apps), _scopes_of(request)
        )
        host = urlsplit(calls.base_url).netloc if asked.host == FIRST_HOST else asked.host
        target = calls.target_at(request.method, host, asked.path)
        body = ProxiedBody(request)
        sent = await body.tool_request()
        may_take_long(request)
        async with body.watched():
            answer = await self.services.injector.within(_patience_of(request)).send(calls, target, sent)
            if isinstance(answer, ForwardedAnswer):
                try:
                    await self._pass_on(request, answer, send)
                finally:
                    await answer.aclose()
                return None
        if isinstance(answer, AuthorizationRequired):
            response = _marked(reply(answer.to_json(), 403), "authorization_required")
            response.headers.update({SESSION: answer.auth_session_id, REASON: answer.reason})
            return response
        raise answer.as_error()

    async def _pass_on(self, request: Request, answer: ForwardedAnswer, send: Send) -> None:
        """Pass on the answer while the turn lasts. Its sizes are in the audit log before its end is sent."""
        passed = (
            each for each in answer.headers() if each[0] != b"www-authenticate"
        )  # the callers' credentials are ours
        headers: Headers = [*passed, (STATUS.lower(), b"forwarded")]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        clock = self.services.clock
        checked = clock.monotonic()
        async for piece in answer.chunks():
            if clock.monotonic() - checked > STILL_SECONDS:
                await self.callers.who(request)
                checked = clock.monotonic()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await answer.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _refusal(self, request: Request, caller: TurnTokenHolder | None, refused: BrokerError) -> Response:
        default = (caller.turn.locale if caller is not None else None) or self.locale
        response = _marked(error_responses.refusal(refused, request, default), "error")
        response.headers[CODE] = refused.code.value
        if name := network_failure(refused):
            response.headers[NETWORK] = name
        return response


def _target_of(request: Request) -> ProxyTarget:
    """Read the target byte for byte: servers decode and resolve paths in their own ways. Raises `requestInvalid`."""
    scope = request.scope
    raw: bytes = scope.get("raw_path") or quote(scope["path"], errors="replace").encode()
    prefix = f"{quote(scope.get('root_path', ''), safe=_PATH)}{PROXIED}".encode()
    app, _, rest = raw.removeprefix(prefix).partition(b"/")
    host, _, path = rest.partition(b"/")
    if not raw.startswith(prefix) or not host:
        raise BrokerError(Code.REQUEST_INVALID, note="the path of a request to forward")
    query: bytes = scope["query_string"]
    target = b"/" + path + (b"?" + query if query else b"")
    return ProxyTarget(_text(unquote_to_bytes(app)), _text(unquote_to_bytes(host)), target.decode("latin-1"))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _scopes_of(request: Request) -> list[str] | None:
    """Return the scopes that the tool's header names, None for all that it declared. Raises `requestInvalid`."""
    said = _header(request, _SCOPES)
    return None if said is None else said.decode("latin-1").split()


def _account_of(request: Request) -> str | None:
    """Return the account that the tool's header names, in UTF-8. Raises `requestInvalid`."""
    said = _header(request, _ACCOUNT)
    return None if said is None else _text(said)


def _patience_of(request: Request) -> float | None:
    """Return the seconds that the tool allows for each step at the provider. Raises `requestInvalid`."""
    said = _header(request, _TIMEOUT)
    if said is None:
        return None
    seconds = float(said) if _SECONDS.fullmatch(said) else 0.0
    if not 0 < seconds <= LONGEST_STALL_SECONDS:
        raise WrongArgument("timeoutHeader", "OAuthBroker-Timeout", most=f"{LONGEST_STALL_SECONDS:.0f}")
    return seconds


def _header(request: Request, wanted: bytes) -> bytes | None:
    said = [value for name, value in request.scope["headers"] if name == wanted]
    if len(said) > 1:
        raise WrongArgument("", wanted.decode())
    return said[0] if said else None


def _marked(response: Response, status: str) -> Response:
    response.headers[STATUS.decode()] = status
    return response
