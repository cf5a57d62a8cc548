"""The agent process: it runs the turns of one agent instance, one at a time, and holds no key of the store. Its
argument is the descriptor of the IPC's socket. When the orchestrator is gone, the whole process group ends. A turn asks
the orchestrator by a `WorkerHost`."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from math import ceil
from pathlib import Path
from typing import Any, Final

from oauthbroker.capability import OAuthCapability, SyncOAuthCapability
from oauthbroker.client import OAuth, SyncOAuth
from oauthbroker.plugins import type_name
from oauthbroker.tools.bundle.entries import EntryRefused
from oauthbroker.tools.bundle.loading import Isolate, load_agent, load_model
from oauthbroker.tools.bundle.spec import ToolResourceSpec
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.context import AgentRuntime, Json, ToolContext, ToolHandler, changeset_folders
from oauthbroker.tools.calling.registry import RegistrationRefused, Registry
from oauthbroker.tools.changesets.tool import register_exports
from oauthbroker.tools.extensions.pipeline import PipelineError, TurnResult
from oauthbroker.tools.isolation.containment import NO_SANDBOX, CallLimits, Containment, detect_containment
from oauthbroker.tools.isolation.process_tool import LendsAccess, ProcessTool, TurnAccess, no_access
from oauthbroker.tools.models import ModelFailed
from oauthbroker.tools.orchestration.agent_output import send_output
from oauthbroker.tools.orchestration.ipc import MOST_LINE, OUTDATED, IpcRefused, Peer
from oauthbroker.tools.turns.conversation import Conversation
from oauthbroker.tools.turns.extension_api import ExtensionFailed, InstanceValues
from oauthbroker.tools.turns.turn_loop import AgentParts, ConfigurationChanged, TurnLoop, turn_id_of
from oauthbroker.tools.types.agent_event import UnifiedEvent
from oauthbroker.tools.types.failures import ToolFailure, is_cancellation
from oauthbroker.tools.types.results import Message

NOT_RUN: Final = "E_TURN_NOT_RUN"
LOG: Final = logging.getLogger("oauthbroker.tools.agent")


class AgentWorker:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._parts: AgentParts | None = None
        self._authorized: frozenset[str] = frozenset()
        self._address = ""
        self._turn = asyncio.Lock()

    async def serve(self, kind: str, payload: dict[str, Any]) -> Any:
        """Answer one question: `agent.configure` or `turn.begin`."""
        match kind:
            case "agent.configure":
                return await self._configure(payload)
            case "turn.begin":
                async with self._turn:
                    try:
                        return await self._run(payload)
                    finally:
                        sys.stdout.flush()  # a line that no tool has ended
        raise IpcRefused("E_IPC", f"an agent process does not know {kind[:40]}")

    async def _configure(self, payload: dict[str, Any]) -> None:
        fault = ""
        try:
            self._parts = await parts_of(payload, Path(payload["workdir"]), IpcValues(self._peer), self._lend)
            if payload["changesets"]:
                register_swarm_bundle(self._parts.registry, self._peer)
        except (EntryRefused, RegistrationRefused, ExtensionFailed) as refused:
            fault = str(refused)
        except Exception as error:  # noqa: BLE001  (modules of the bundle; the text may hold secrets)
            fault = type(error).__name__
        if fault:
            raise IpcRefused(NOT_RUN, fault)
        self._authorized = frozenset(payload["authorized"])

    async def _run(self, payload: dict[str, Any]) -> dict[str, Any]:
        event = UnifiedEvent.from_json(payload["event"])
        conversation = Conversation(
            turn_id=turn_id_of(event.id),
            earlier=[Message.from_json(each) for each in payload["history"]],
            recorded=await self._recorded(),
            record=lambda appended: self._peer.ask("message.append", {"event": event.id, "appended": appended}),
        )
        access = payload["access"]
        self._address = "" if access is None else access["url"]
        async with nullcontext() if access is None else OAuth(access["url"], access["token"]) as oauth:
            return await self._ran(event, conversation, oauth)

    async def _recorded(self) -> list[Message]:
        """Return the messages that the turn recorded before, one by one: together they may be too large."""
        recorded: list[Message] = []
        while (kept := await self._peer.ask("message.get", {"number": len(recorded)})) is not None:
            recorded.append(Message.from_json(kept))
        return recorded

    async def _ran(self, event: UnifiedEvent, conversation: Conversation, oauth: OAuth | None) -> dict[str, Any]:
        if self._parts is None:
            raise IpcRefused(NOT_RUN, "the agent has no configuration yet")
        host = WorkerHost(peer=self._peer, oauth=oauth, address=self._address, authorized=self._authorized)
        fault = ""
        try:
            return _to_json(await TurnLoop(parts=self._parts, event=event, conversation=conversation, host=host).run())
        except ConfigurationChanged:
            return {"status": OUTDATED}
        except IpcRefused:
            raise
        except (ModelFailed, PipelineError) as error:
            fault = str(error)
        except BaseException as error:  # code of an extension: a SystemExit does not end the process
            if is_cancellation(error):
                raise
            fault = f"the turn failed with {type_name(error)}"
        raise IpcRefused(NOT_RUN, fault)

    def _lend(self, ctx: ToolContext) -> AbstractAsyncContextManager[TurnAccess | None]:
        """Return the broker's address and the token of an isolated call. It ends with the turn."""
        oauth = getattr(ctx, "oauth", None)
        return nullcontext(None if oauth is None else TurnAccess(self._address, oauth.turn_token.reveal()))


async def parts_of(
    config: Mapping[str, Any], workdir: Path, values: InstanceValues, lend: LendsAccess = no_access
) -> AgentParts:
    """Return the parts of an agent from its configuration. Runs the modules of its tools and extensions. `lend` gives
    calls of isolated tools a turn token. Raises one of REFUSALS."""
    folder = Path(config["folder"])
    tools = {name: ToolResourceSpec.model_validate(spec) for name, spec in config["tools"].items()}
    model = load_model(folder, **config["model"])
    isolate = _isolates(config, lend)
    registry, pipeline = await load_agent(tools, config["extensions"], folder, values=values, isolate=isolate)
    return AgentParts(
        name=config["name"],
        system_prompt=config["systemPrompt"],
        model=model,
        tools=config["shown"],
        registry=registry,
        # The orchestrator removes tokens before it keeps a message.
        calls=ToolCalls(registry, scrub=lambda value: value, outside_catalog=config["outsideCatalog"]),
        pipeline=pipeline,
        max_steps=config["maxSteps"],
        workdir=workdir,
    )


def _isolates(config: Mapping[str, Any], lend: LendsAccess) -> Isolate:
    """Return what makes the handler of a tool with `isolation: process`. The containment is looked up once."""

    @cache
    def containment() -> Containment:
        found = detect_containment(hidden=[Path(each) for each in (*config["hidden"], *config["configuration"])])
        LOG.info("%s", found.summary)
        return found

    def isolated(entry: Path, spec: ToolResourceSpec, seconds: float) -> ProcessTool:
        if not (containment().bubblewrap or config["weakIsolation"]):
            raise RegistrationRefused(NO_SANDBOX)
        limits, network = _limits(seconds), spec.network == "open"
        return ProcessTool(entry=entry, containment=containment(), limits=limits, lend=lend, network=network)

    return isolated


def _limits(seconds: float) -> CallLimits:
    """Return the usual limits for a call of so many seconds, which may use a processor all the time."""
    usual = CallLimits()
    return replace(usual, seconds=seconds, cpu_seconds=max(usual.cpu_seconds, ceil(seconds)))


def _to_json(result: TurnResult) -> dict[str, Any]:
    error = {} if result.error is None else {"error": result.error.to_json()}
    return {"status": "error" if error else "ok", "answer": result.answer, "steps": result.steps} | error


def _end_with(descriptor: int) -> None:
    """End the process group with the orchestrator's end of the socket. A tool that blocks the loop cannot delay it."""
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", select.POLLHUP))
    poll.poll()
    os.killpg(0, signal.SIGKILL)


async def _main(descriptor: int) -> None:
    streams = await asyncio.open_unix_connection(sock=socket.socket(fileno=descriptor), limit=MOST_LINE)
    peer = Peer(streams, "agent", "orchestrator")
    worker = AgentWorker(peer)
    reading = asyncio.create_task(peer.run(worker.serve))
    asked = asyncio.create_task(peer.shutdown_asked.wait())
    await asyncio.wait({reading, asked}, return_when=asyncio.FIRST_COMPLETED)
    if not reading.done():
        await peer.acknowledge_shutdown()
    await reading  # until the orchestrator ends the process
    asked.cancel()


class IpcJournal:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def begin(self, call_id: str) -> Mapping[str, Any] | None:
        before: dict[str, Any] | None = await self._peer.ask("journal.begin", {"call": call_id})
        return before

    async def end(self, call_id: str, result: Mapping[str, Any]) -> None:
        await self._peer.ask("journal.end", {"call": call_id, "result": dict(result)})

    async def submit(self, handle: str, call: Mapping[str, Any]) -> None:
        await self._peer.ask("journal.submit", {"handle": handle, "call": dict(call)})

    async def complete(self, handle: str, result: Mapping[str, Any]) -> None:
        await self._peer.ask("journal.complete", {"handle": handle, "result": dict(result)})


class IpcValues:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def get(self, key: str) -> Any:
        return await self._peer.ask("state.get", {"owner": key})

    async def put(self, key: str, value: Any) -> None:
        await self._peer.ask("state.set", {"owner": key, "value": value})


def register_swarm_bundle(registry: Registry, peer: Peer) -> None:
    """Register the tool `swarmBundle`. Raises RegistrationRefused if an extension has taken a name."""

    def asks(export: str) -> ToolHandler:
        async def handler(ctx: ToolContext, given: dict[str, Json]) -> Json:
            asked = {**given, "toolCallId": ctx.tool_call_id}
            return await _tool_asks(peer, f"swarmBundle.{export}", asked, "ChangesetRefused")

        return handler

    register_exports(registry, *map(asks, ("openChangeset", "commitChangeset", "discardChangeset")))


async def _tool_asks(peer: Peer, kind: str, asked: Mapping[str, Json], name: str) -> Json:
    """Ask for a tool. Raises ToolFailure with the code of a refusal."""
    try:
        return await peer.ask(kind, asked)
    except IpcRefused as refused:
        failed = ToolFailure(refused.message, name=name, code=refused.code, suggestion=refused.suggestion)
    raise failed


class WorkerHost:
    """The surroundings of a turn. `oauth` is the client of the turn; None where the broker serves no API."""

    def __init__(self, *, peer: Peer, oauth: OAuth | None, address: str, authorized: frozenset[str]) -> None:
        self._peer, self._oauth, self._address, self._authorized = peer, oauth, address, authorized
        self.logger = logging.getLogger("oauthbroker.tools.agent")
        self.journal = IpcJournal(peer)

    async def oauth_of(
        self, asks_as: str, call_id: str, *, blocking: bool
    ) -> OAuthCapability | SyncOAuthCapability | None:
        if self._oauth is None or asks_as.partition(":")[0] not in self._authorized:
            return None
        await _tool_asks(self._peer, "audit.call", {"tool": asks_as, "call": call_id}, "CallNotRecorded")
        narrowed = self._oauth.narrow(tool=asks_as)
        return SyncOAuth(self._address, narrowed.turn_token) if blocking else narrowed

    async def step_config(self) -> Sequence[Mapping[str, Any]]:
        """Let base tools use the open changesets. Return what the model is told. Raises ConfigurationChanged."""
        answer = await self._peer.ask("step.config", {})
        if not answer["current"]:
            raise ConfigurationChanged
        folders = [Path(each) for each in answer["changesets"]]
        changeset_folders.set(lambda _ctx: folders)
        blocks: Sequence[Mapping[str, Any]] = answer["blocks"]
        return blocks

    async def pending(self) -> Mapping[str, Any] | None:
        return None if self._oauth is None else await self._oauth.pending()

    def runtime_of(self, tool_call_id: str) -> AgentRuntime | None:
        return AgentRuntime(partial(_tool_asks, self._peer, name="AgentCallFailed"), tool_call_id)


if __name__ == "__main__":
    send_output()
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    asyncio.run(_main(int(sys.argv[1])))
