"""Tokens of third parties for the tools of an MCP server, in the name of the verified caller.

It works with the servers of the `mcp` SDK and of FastMCP, which seal and bind the state of a waiting call.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import CallToolResult, ElicitRequest, ElicitRequestURLParams, InputRequiredResult, TextContent

from oauthbroker import (
    AuthorizationRequired,
    AuthorizationRequiredError,
    Broker,
    BrokerError,
    Code,
    Failed,
    InjectionError,
    Ready,
    RequestRefusedError,
    Turn,
    TurnAuth,
)
from oauthbroker.mcp.consent import CANCEL, INPUT, PATIENCE_SECONDS, PENDING, STATELESS, ended
from oauthbroker.mcp.turn_tokens import TurnAccessToken
from oauthbroker.plugins import Bounded

if TYPE_CHECKING:
    import httpx2

STATE: Final = f"{INPUT}:"  # before the id of the auth session, in the state of a waiting call
CLAIM: Final = re.compile(r"\{(\w+)\}")
MOST_SHOWN: Final = 10_000
NO_CALLER: Final = Failed(
    code=Code.SUBJECT_UNAVAILABLE,
    message="The caller's access token names no user. Sign in to the MCP server, then call the tool again.",
    retryable=False,
)

Tool = Callable[..., Awaitable[Any]]


class McpOAuth:
    """The broker's tokens for the tools of one MCP server.

    `subject` is a template that spells the subject of a verified access token, such as `okta:user:{sub}`. A caller
    whose token lacks one of its claims gets nothing, and so does one whose token has another `iss` than `issuer`, or
    none. `issuer=None` takes every verified token. Without `subject`, both are those of the Broker's `login`. `tool` is
    as in `Broker.oauth`. Turn tokens (`TurnTokenVerifier`) bring subject and tool of their own.

    `agent` names the queue of the events that follow a consent. This object settles them, since a waiting call needs
    none: give the name to no other agent.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        subject: str | None = None,
        issuer: str | None = None,
        tool: str | None = None,
        agent: str = "mcp",
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._broker, self._tool, self._agent, self._patience = broker, tool, agent, patience_seconds
        if subject is None and issuer is not None:
            raise ValueError("name the subject's template beside the issuer")
        self._subject, self._issuer = (subject, issuer) if subject is not None else _of_login(broker)
        if not CLAIM.search(self._subject) or set("{}") & set(CLAIM.sub("", self._subject)):
            raise ValueError("subject is a template with claims, such as okta:user:{sub}")
        self._asking = ContextVar[Any]("the context of a tool under `asks`", default=None)
        self._shown = Bounded[tuple[str, str], str](MOST_SHOWN)  # by caller and tool: links without a state

    async def token(self, ctx: Any, app: str, scopes: Sequence[str] | None = None) -> Ready:
        """Return a token of the caller, in a tool under `asks`. Raises an `InjectionError`, which `asks` answers."""
        self._check_asking(ctx)
        result: Ready | AuthorizationRequired | Failed = await self.caller().oauth.get_access_token(app, scopes)
        if isinstance(result, AuthorizationRequired):
            raise AuthorizationRequiredError(result)
        if isinstance(result, Failed):
            raise RequestRefusedError(result)
        return result

    def client(self, ctx: Any, app: str, scopes: Sequence[str] | None = None) -> httpx2.AsyncClient:
        """Return an HTTP client whose requests to the app's `api.hosts` carry the caller's token, in a tool under
        `asks`. Raises as `token`, and so do its requests."""
        self._check_asking(ctx)
        client: httpx2.AsyncClient = self.caller().oauth.client(app, scopes)
        return client

    def _check_asking(self, ctx: Any) -> None:
        if ctx is None or self._asking.get() is not ctx:
            raise RuntimeError("decorate the tool with McpOAuth.asks, and pass on its Context")

    def asks(self, app: str | None = None, scopes: Sequence[str] | None = None) -> Callable[[Tool], Tool]:
        """Decorate a tool that needs tokens, below the server's own decorator. The user is asked for consent to `app`
        before the tool runs. Where the tool itself asks for a token, it begins anew after the consent."""

        def decorate(tool: Tool) -> Tool:
            context = _context_parameter(tool)

            @functools.wraps(tool)
            async def asking(*args: Any, **kwargs: Any) -> Any:
                ctx = context(*args, **kwargs)
                self._asking.set(ctx)
                try:
                    caller = self.caller()
                    waiting = await self._resumed(ctx, caller, tool.__qualname__)
                    if waiting is not None:
                        return waiting
                    if app is not None:
                        await self._consented(ctx, app, scopes)
                    return await tool(*args, **kwargs)
                except AuthorizationRequiredError as error:
                    needed = error.result
                except InjectionError as error:
                    return failed(error.for_model)
                except BrokerError as error:
                    return failed(str(error))
                return self._ask(ctx, (caller.key, tool.__qualname__), needed)

            return asking

        return decorate

    def caller(self) -> ToolCaller:
        """Return the verified caller. Raises `RequestRefusedError` for a caller without a subject."""
        token = get_access_token()
        if isinstance(token, TurnAccessToken):
            token_holder = token.token_holder
            oauth = self._broker.oauth_for(token_holder)
            return ToolCaller(turn=token_holder.turn, oauth=oauth, speaks_for_person=token_holder.speaks_for_person)
        subject = self._subject_of(token)
        if subject is None:
            raise RequestRefusedError(NO_CALLER)
        auth = TurnAuth(actor={"type": "user", "id": subject}, subjects={"user": subject}, accounts=self._accounts())
        client = token.client_id if token is not None else ""
        turn = Turn(self._agent, client or self._agent, auth=auth)
        return ToolCaller(turn=turn, oauth=self._broker.oauth(turn, self._tool))

    def _accounts(self) -> dict[str, Any]:
        """Return what the turn of a caller without one lists as accounts."""
        return {}

    def _subject_of(self, token: AccessToken | None) -> str | None:
        if token is None:
            return None
        claims = {**(token.claims or {}), **({"sub": token.subject} if token.subject is not None else {})}
        if self._issuer is not None and claims.get("iss") != self._issuer:
            return None  # a `sub` is unique within its issuer only
        values = {name: claims.get(name) for name in CLAIM.findall(self._subject)}
        if not all(isinstance(value, str) and value and ":" not in value for value in values.values()):
            return None
        return CLAIM.sub(lambda found: str(values[found[1]]), self._subject)

    async def _consented(self, ctx: Any, app: str, scopes: Sequence[str] | None) -> None:
        """Raise as `token`, but not for an app whose tokens are never handed out: its client asks."""
        try:
            await self.token(ctx, app, scopes)
        except RequestRefusedError as error:
            if error.result.code is not Code.TOKEN_INJECTED_ONLY:
                raise

    async def _resumed(self, ctx: Any, caller: ToolCaller, tool: str) -> InputRequiredResult | CallToolResult | None:
        """Wait for the authorization that an earlier call began. Return what the call answers meanwhile and after a
        failure; None to go on."""
        state, action = str(ctx.request_state or ""), None
        if state.startswith(STATE):
            session = await self._broker.sessions.find(state.removeprefix(STATE))
            if session is None or session.subject not in caller.subjects:
                return None
            session_id, action = session.id, _action(ctx)
            if action == CANCEL:
                return None
        elif (shown := self._shown.pop((caller.key, tool))) is not None:
            state, session_id = "", shown
        else:
            return None
        end = await ended(self._broker, session_id, action, seconds=self._patience, may_cancel=caller.speaks_for_person)
        if end == PENDING:
            return InputRequiredResult(request_state=state) if state else None
        await self._settle()
        return None if end is None else failed(end)

    async def _settle(self) -> None:
        with suppress(BrokerError):  # settled after the next consent
            while (event := await self._broker.events.lease(self._agent, wait=0)) is not None:
                await event.ack()

    def _ask(
        self, ctx: Any, key: tuple[str, str], needed: AuthorizationRequired
    ) -> InputRequiredResult | CallToolResult:
        """Answer with the link, in the way that the client knows: in a sentence, too, if it has just cancelled the
        question. Raises -32042 for clients of 2025-11-25."""
        session_id, url = needed.auth_session_id, needed.authorization_url
        elicits, sentence = _elicits(ctx) and _action(ctx) != CANCEL, AuthorizationRequiredError(needed).for_model
        if elicits and (ctx.request_context.protocol_version or "") >= STATELESS:
            asked = ElicitRequest(params=ElicitRequestURLParams(message=needed.message, url=url))
            return InputRequiredResult(input_requests={INPUT: asked}, request_state=STATE + session_id)
        self._shown.keep(key, session_id)
        if elicits and isinstance(ctx, Context):  # FastMCP makes a tool's failure of this error
            params = ElicitRequestURLParams(message=needed.message, url=url, elicitation_id=session_id)
            raise UrlElicitationRequiredError([params], sentence)
        return failed(sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCaller:
    """A verified caller, in its own turn or in one of ours."""

    turn: Turn
    oauth: Any
    speaks_for_person: bool = True

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(self.turn.auth.subjects.values()) if self.turn.auth is not None else ()

    @property
    def key(self) -> str:
        """Return what two callers share only if they act for the same subjects and accounts."""
        auth = self.turn.auth
        return json.dumps([dict(auth.subjects), dict(auth.accounts)], sort_keys=True) if auth is not None else ""


def _of_login(broker: Broker) -> tuple[str, str]:
    """Return the template of the broker's own login, and its issuer. Raises ValueError without them."""
    login = broker.bundle.login
    identity = login.app.owner.user_identity if login is not None else None
    issuer = login.app.endpoints.issuer if login is not None else None
    if identity is None or issuer is None:
        raise ValueError("name the subject's template: the Broker has no login")
    return identity.template, issuer


def _context_parameter(tool: Tool) -> Callable[..., Any]:
    """Return what finds the server's context among a tool's arguments. Raises TypeError for another function."""
    signature = inspect.signature(tool)
    names = [name for name, hint in get_type_hints(tool).items() if name in signature.parameters and _is_context(hint)]
    if not inspect.iscoroutinefunction(tool) or len(names) != 1:
        raise TypeError("a tool that asks for tokens is an async function with one parameter of the type Context")
    return lambda *args, **kwargs: signature.bind(*args, **kwargs).arguments[names[0]]


def _is_context(hint: Any) -> bool:
    return any(getattr(each, "__name__", "").partition("[")[0] == "Context" for each in (hint, *get_args(hint)))


def _elicits(ctx: Any) -> bool:
    elicitation = getattr(ctx.request_context.session.client_capabilities, "elicitation", None)
    return getattr(elicitation, "url", None) is not None


def _action(ctx: Any) -> str | None:
    """Return what the user did with our question: `accept`, `decline` or `cancel`."""
    return getattr((ctx.input_responses or {}).get(INPUT), "action", None)


def failed(sentence: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=sentence)], is_error=True)
