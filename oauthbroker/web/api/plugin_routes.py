"""Routes of plug-ins: checked when the broker starts, then served as the broker's own calls are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final, cast, get_args

from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.capability import OAuthCapability
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code, ConfigCauseError
from oauthbroker.core.foreign_code import ForeignFault, foreign_code
from oauthbroker.model.settings import Who
from oauthbroker.model.turn import Turn
from oauthbroker.plugins.running_plugin import Authenticates, PluginRoute
from oauthbroker.web.api.authentication import id_of
from oauthbroker.web.api.call_table import OPERATIONS, Handler, Method, Operation
from oauthbroker.web.api.fields import RequestModel
from oauthbroker.web.api.handler_call import AnyCall, nothing, reply
from oauthbroker.web.api.request_models import NoParameters
from oauthbroker.web.gate.request_limits import may_take_long

METADATA = "/.well-known/"
_PASSED: Final = (HTTPException, ClientDisconnect)
_END: Final = object()
_STEP = r"/(?:[A-Za-z0-9._-]+|\{[A-Za-z_]\w*\})"
_REST = r"/\{[A-Za-z_]\w*:path\}"
_PATH = re.compile(f"(?:{_STEP})+(?:{_REST})?")
_VARIABLE = re.compile(r"\{(\w+)(:path)?\}")
_TAKEN = frozenset(operation.path.split("/")[2] for operation in OPERATIONS)


@dataclass(frozen=True, slots=True)
class CallOfPlugin:
    """A call as the handler of a plug-in gets it (`PluginCall`): nothing of the broker's inside."""

    _call: AnyCall

    @property
    def request(self) -> Request:
        return self._call.request

    @property
    def body(self) -> Any:
        return self._call.body

    @property
    def query(self) -> Any:
        return self._call.query

    @property
    def path(self) -> Any:
        return self._call.path

    @property
    def caller(self) -> str | None:
        return None if self._call.caller is None else id_of(self._call.caller)

    @property
    def turn(self) -> Turn | None:
        return self._call.caller.turn if isinstance(self._call.caller, TurnTokenHolder) else None

    @property
    def tool(self) -> str | None:
        return self._call.caller.tool if isinstance(self._call.caller, TurnTokenHolder) else None

    @property
    def oauth(self) -> OAuthCapability:
        return self._call.services.contexts.of_turn_token(self._call.token_holder)

    async def made(self, target: str | None = None) -> None:
        await self._call.made(target)

    async def refused(self, code: Code) -> None:
        await self._call.refused(code)

    async def still(self) -> None:
        await self._call.still()


def operations_of(plugins: Mapping[str, Sequence[PluginRoute]]) -> list[Operation]:
    """Return the operations of all open plug-ins. Raises `configInvalid`, with a note that names the plug-in and the
    path."""
    for plugin, routes in plugins.items():
        for route in routes:
            for problem in _problems(plugin, route):
                raise _refused(plugin, route, problem)
    every = [(plugin, route) for plugin, routes in plugins.items() for route in routes]
    count = Counter((route.method, _shape(route)) for _, route in every)
    spelt = {_shape(route): route.path for _, route in every}
    for plugin, route in every:
        if count[route.method, _shape(route)] > 1 or spelt[_shape(route)] != route.path:
            raise _refused(plugin, route, "another route has this path")
    return [_operation(plugin, route) for plugin, route in every]


def _problems(plugin: str, route: PluginRoute) -> Iterator[str]:
    if not _PATH.fullmatch(route.path):
        yield "the path has steps of letters, digits and `._-`, or a `{name}`; the last may be a `{name:path}`"
    elif plugin in _TAKEN:
        yield f"/v1/{plugin} is the broker's own"
    elif route.path.startswith(METADATA):
        if route.method != "GET" or route.who or route.authenticate or _VARIABLE.search(route.path):
            yield f"below {METADATA} there are fixed paths, GET, without authentication"
    elif not f"{route.path}/".startswith(f"/v1/{plugin}/"):
        yield f"the path is not below /v1/{plugin} or {METADATA}"
    if route.method not in get_args(Method) or not {*route.who} <= {*get_args(Who)}:
        yield "the method or `who` is unknown"
    if route.authenticate is not None and route.who:
        yield "`who` and `authenticate` exclude each other"
    if route.body is not None and route.method == "GET":
        yield "GET has no body"
    models = [each for each in (route.body, route.query, route.parameters) if each is not None]
    if not all(isinstance(each, type) and issubclass(each, RequestModel) for each in models):
        yield "its models are subclasses of RequestModel"
    elif {each[0] for each in _VARIABLE.findall(route.path)} != (route.parameters or NoParameters).model_fields.keys():
        yield "`parameters` has other members than the path"


def _shape(route: PluginRoute) -> str:
    return _VARIABLE.sub(r"{\2}", route.path)


def _operation(plugin: str, route: PluginRoute) -> Operation:
    whose = f"the plug-in {plugin}, {route.method} {route.path}"
    return Operation(
        id=f"{plugin} {route.method} {route.path}",
        method=route.method,
        path=route.path,
        handler=_handler(whose, route),
        who=tuple(route.who),
        bodies=(_model(route.body),) if route.body is not None else (),
        query=_model(route.query),
        parameters=_model(route.parameters),
        authenticate=_authenticate(whose, route.authenticate) if route.authenticate is not None else None,
    )


def _model(validated: type[BaseModel] | None) -> type[RequestModel]:
    return cast("type[RequestModel]", validated or NoParameters)


def _handler(whose: str, route: PluginRoute) -> Handler:
    async def answer(call: AnyCall) -> Response:
        if route.takes_long:
            if route.body is None:
                await call.request.body()  # it is kept there: a body has to come in time, the answer may take long
            may_take_long(call.request)
        with foreign_code(whose, *_PASSED):
            answered = await route.handler(CallOfPlugin(call))
            if isinstance(answered, Mapping):
                return reply(answered)
        if answered is None:
            return nothing()
        if not isinstance(answered, Response):
            raise ForeignFault(whose, f"it returned an object of the type {type(answered).__name__}")
        if isinstance(answered, StreamingResponse):
            answered.body_iterator = _pieces(whose, answered.body_iterator)
        if answered.background is not None:
            answered.background = BackgroundTask(_afterwards, whose, answered.background)
        return answered

    return answer


def _authenticate(whose: str, authenticate: Authenticates) -> Authenticates:
    async def caller_of(request: Request) -> str | None:
        with foreign_code(f"{whose}, authenticate", *_PASSED):
            found = await authenticate(request)
        if found is None or isinstance(found, str):
            return found
        raise ForeignFault(f"{whose}, authenticate", f"it returned an object of the type {type(found).__name__}")

    return caller_of


async def _pieces(whose: str, pieces: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """Yield the pieces of a streamed answer. In the server's own task a `SystemExit` would end the whole process."""
    waiting = aiter(pieces)
    while True:
        with foreign_code(whose, *_PASSED):
            piece = await anext(waiting, _END)
        if piece is _END:
            return
        yield piece


async def _afterwards(whose: str, task: BackgroundTask) -> None:
    with foreign_code(whose):
        await task()


def _refused(plugin: str, route: PluginRoute, problem: str) -> BrokerError:
    return ConfigCauseError(f"the plug-in {plugin}, {route.method} {route.path}: {problem}")
