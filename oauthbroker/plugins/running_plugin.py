"""What an open plug-in adds to a running broker: routes, background work, findings. These names are public on
`oauthbroker.plugins`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from oauthbroker.capability import OAuthCapability
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import Code
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.model.settings import Who
from oauthbroker.model.turn import Turn
from oauthbroker.plugins.plugin_pages import PluginPage, PluginPages

if TYPE_CHECKING:
    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.responses import Response

MOST_TEXT = 300  # characters of a sentence of a finding
_CODE = re.compile(r"[a-z][A-Za-z0-9]{0,63}")


class PluginCall(Protocol):
    """One call of a plug-in's route. Its caller has the rights that the route asks for, and the request is valid."""

    @property
    def request(self) -> Request:
        """Return the request, for its headers, and for a body that is no JSON."""
        ...

    @property
    def body(self) -> Any:
        """Return the body, parsed by the route's model. `query` and `path` likewise."""
        ...

    @property
    def query(self) -> Any:
        """Return the query, parsed by the route's model."""
        ...

    @property
    def path(self) -> Any:
        """Return the parameters of the path, parsed by the route's model."""
        ...

    @property
    def caller(self) -> str | None:
        """Return the id of the API key, turn or user of this machine; None on a route without authentication."""
        ...

    @property
    def turn(self) -> Turn | None:
        """Return the turn of a turn token; None for another caller."""
        ...

    @property
    def tool(self) -> str | None:
        """Return the tool of a turn token; None for the runtime's own token, and for another caller."""
        ...

    @property
    def oauth(self) -> OAuthCapability:
        """Return `ctx.oauth` of a turn token. Raises `notAllowed` for another caller."""
        ...

    async def made(self, target: str | None = None) -> None:
        """Write to the audit log who changes what. Raises `storeUnavailable`: then change nothing."""

    async def refused(self, code: Code) -> None:
        """Write to the audit log who was refused what."""

    async def still(self) -> None:
        """Check in a long call that the caller's key or turn has not ended. Raises `unauthenticated`, `turnEnded` or
        `notAllowed`."""


class AnswersCall(Protocol):
    """Answer a call: with a response, a mapping (JSON, status 200), or None (status 204)."""

    def __call__(self, call: Any, /) -> Awaitable[Response | Mapping[str, Any] | None]: ...


class Authenticates(Protocol):
    """Return the id of a request's caller, for its rate limit; None for a stranger. Raises `BrokerError`: each refusal
    counts against the limit of strangers, as None does."""

    def __call__(self, request: Any, /) -> Awaitable[str | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRoute:
    """One method of a path below `/v1/<plugin>` or `/.well-known`, served as the broker's own calls are.

    `handler` is an async function of a `PluginCall`. It returns a Starlette response, a mapping (JSON, status 200) or
    None (204). `who` names the callers: `turn` (each turn token, a tool's too), `wholeTurn` (the runtime's own alone),
    `runtime` and `operator` (API keys of that role). An empty `who`: no authentication, or that of `authenticate`, an
    async function of the request that returns the caller's id, or None for a stranger.

    The models are subclasses of `RequestModel`. `takes_long` lifts the limit on the time until the answer begins.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: AnswersCall
    who: Collection[Who]
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    parameters: type[BaseModel] | None = None
    takes_long: bool = False
    authenticate: Authenticates | None = None


class Works(Protocol):
    """Run one pass of background work."""

    def __call__(self) -> Awaitable[object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Work that the broker does when it starts, and again `seconds` after the end of each pass. A pass that fails is
    logged."""

    name: str
    seconds: float
    work: Works

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"background work {self.name}: `seconds` is above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFinding:
    """A failure that an operator must fix: `text` states it, `hint` the remedy. `/healthz` shows them to any
    caller, so they name no person and no secret."""

    code: str
    text: str
    hint: str

    def __post_init__(self) -> None:
        if not _CODE.fullmatch(self.code):
            raise ValueError("the code of a finding is a word such as `serverSilent`")
        if not all(isinstance(each, str) and _is_unicode(each) for each in (self.text, self.hint)):
            raise ValueError("a sentence of a finding is text that UTF-8 can hold")
        if max(len(self.text), len(self.hint)) > MOST_TEXT:
            raise ValueError(f"a sentence of a finding has at most {MOST_TEXT} characters")


def _is_unicode(text: str) -> bool:
    """Tell whether a text has no half of a surrogate pair, which no JSON document may hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Finds(Protocol):
    """Return the findings of a plug-in, at once and without waiting."""

    def __call__(self) -> Collection[PluginFinding]: ...


class Follows(Protocol):
    """Take the resources of a new configuration."""

    def __call__(self, resources: PluginResources, /) -> Awaitable[object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPlugin:
    """What a plug-in adds to a running broker."""

    routes: Sequence[PluginRoute] = ()
    background: Sequence[Background] = ()
    findings: Finds | None = None
    on_reload: Follows | None = None
    pages: PluginPages | None = None


def problem_of(opened: object) -> str | None:
    """Tell which part of what a plug-in yielded has a wrong type. The code that uses it later would name no plug-in."""
    if not isinstance(opened, RunningPlugin):
        return f"it yields no RunningPlugin, but an object of the type {type(opened).__name__}"
    if not _are(opened.routes, PluginRoute):
        return "`routes` is a list of PluginRoute"
    if not _are(opened.background, Background):
        return "`background` is a list of Background"
    for route in opened.routes:
        if not (isinstance(route.path, str) and isinstance(route.method, str) and _are(route.who, str, Collection)):
            return "the path and method of a route are texts, and `who` is a list of texts"
        if not callable(route.handler):
            return f"the handler of {route.method} {route.path} is no function"
        if route.authenticate is not None and not callable(route.authenticate):
            return f"`authenticate` of {route.method} {route.path} is no function"
    for each in opened.background:
        if not (isinstance(each.name, str) and isinstance(each.seconds, int | float) and callable(each.work)):
            return "background work has a text for its name, a number of seconds and a function"
    if not all(each is None or callable(each) for each in (opened.findings, opened.on_reload)):
        return "`findings` and `on_reload` are functions"
    if opened.pages is not None and not _are_pages(opened.pages):
        return "`pages` is a PluginPages, with a folder and a list of PluginPage"
    return None


def _are_pages(given: object) -> bool:
    if not isinstance(given, PluginPages) or not isinstance(given.folder, Path) or not _are(given.pages, PluginPage):
        return False
    return all(isinstance(each.path, str) and callable(each.handler) for each in given.pages)


def _are(given: Any, kind: type, many: type = Sequence) -> bool:
    is_such = isinstance(given, many) and not isinstance(given, str)
    return is_such and all(isinstance(each, kind) for each in given)


class OpensPlugin(Protocol):
    """Open a plug-in for a `Broker` that is about to serve. The block ends before the broker closes."""

    def __call__(self, broker: Any, resources: PluginResources, /) -> AbstractAsyncContextManager[RunningPlugin]: ...
