"""What a call knows of its surroundings: the context of its handler (specification 002, sections 2.5 and 7), and the
scope that all calls of one step share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from oauthbroker.capability import OAuthCapability, SyncOAuthCapability
from oauthbroker.tools.calling.journal import CallJournal
from oauthbroker.tools.types.catalog import Catalog
from oauthbroker.tools.types.results import Message

Face = TypeVar("Face", bound=OAuthCapability | SyncOAuthCapability)
REQUEST_SECONDS: Final = 60.0  # how long a request waits for its answer, unless it says else
Json = Any
ToolHandler = Callable[[Any, dict[str, Json]], Json | Awaitable[Json]]  # of a ToolContext, or of the authorized one


FoldersOf = Callable[["ToolContext"], Sequence[Path]]
changeset_folders: ContextVar[FoldersOf] = ContextVar("changeset_folders", default=lambda _ctx: ())
"""Returns the folders of the open changesets of a call's agent. A runtime with changesets sets it once."""


class AgentRuntime:
    """`ctx.runtime` of a call: how the tools of `agents` reach other agents (002 section 11). Arguments and answers
    are the members that it prints. `ask` asks the orchestrator, and raises `ToolFailure` with a code. The call's id and
    a count make repeats recognisable."""

    def __init__(self, ask: Callable[[str, Mapping[str, Json]], Awaitable[Json]], tool_call_id: str) -> None:
        self._ask_orchestrator, self._tool_call_id, self._asked = ask, tool_call_id, 0

    async def request(
        self, target: str, text: str, *, instance_key: str | None = None, timeout: float = REQUEST_SECONDS
    ) -> Json:
        """Ask an agent and return its answer: `{target, instanceKey, response}`."""
        return await self._ask("request", target=target, input=text, instanceKey=instance_key, timeout=timeout)

    async def send(self, target: str, text: str, *, instance_key: str | None = None) -> None:
        await self._ask("send", target=target, input=text, instanceKey=instance_key)

    async def spawn(self, target: str, *, instance_key: str | None = None, cwd: str | None = None) -> Json:
        """Prepare an instance: `{target, instanceKey, cwd, created}`."""
        return await self._ask("spawn", target=target, instanceKey=instance_key, cwd=cwd)

    async def list(self, *, include_all: bool = False) -> Json:
        """List the instances that this agent has spawned; with `include_all`, all of the conversation."""
        return await self._ask("list", includeAll=include_all)

    async def catalog(self) -> Json:
        return await self._ask("catalog")

    async def _ask(self, call: str, **arguments: Json) -> Json:
        self._asked += 1
        asked = {"requestId": f"{self._tool_call_id}.{self._asked}", **arguments}
        return await self._ask_orchestrator(f"agents.{call}", asked)


class OAuthOf(Protocol):
    """Return `ctx.oauth` of a call for `Tool/name:export` or `Extension/name`, once the call is in the audit log; None
    if that resource declares no app. `blocking`: for code without `await`."""

    async def __call__(
        self, asks_as: str, call_id: str, *, blocking: bool
    ) -> OAuthCapability | SyncOAuthCapability | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """The members that a call's context has from its step. `message` is the assistant's message with the calls."""

    agent_name: str
    instance_key: str
    turn_id: str
    trace_id: str
    message: Message
    workdir: Path
    logger: logging.Logger
    runtime: AgentRuntime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(StepFacts):
    """One call's context. It has no `oauth` (002 section 2.5.3) unless the Tool declares `spec.auth`: then it is an
    `AuthorizedToolContext`."""

    tool_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedToolContext(ToolContext, Generic[Face]):
    """The context of a Tool with `spec.auth`: `oauth` asks for tokens of this turn, narrowed to the export's scopes. A
    handler without `await` gets `SyncOAuthCapability`."""

    oauth: Face


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScope(StepFacts):
    """The scope of a step's calls. Without a `journal`, results are not kept, and no work goes on after its call."""

    catalog: Catalog
    oauth_of: OAuthOf | None = None
    journal: CallJournal | None = None
    locale: str = "en"
