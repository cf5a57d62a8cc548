"""The orchestrator's side of `agents__*`: requests, messages, spawned instances (specification 002, section 11). An
agent reaches only agents of its swarm, and instances of its own conversation: no model can name another user's. The
turn's `auth` and trace are handed on unchanged."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from oauthbroker import Broker, BrokerError
from oauthbroker.plugins import NotPlainJson, plain_json
from oauthbroker.tools.calling.context import REQUEST_SECONDS
from oauthbroker.tools.calling.journal import COMPLETED
from oauthbroker.tools.orchestration.instances import Instance, Instances, Outcome
from oauthbroker.tools.orchestration.ipc import IpcRefused
from oauthbroker.tools.orchestration.plan import SwarmPlan
from oauthbroker.tools.types.agent_event import FAILED, MESSAGE, REQUEST, ReplyTo, UnifiedEvent
from oauthbroker.tools.types.results import INPUT

POLL_SECONDS: Final = 0.5  # for turns that another orchestrator ends
_ENDS: Final = {COMPLETED, FAILED}
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingTurn:
    """The turn whose tool calls, and where its files are."""

    plan: SwarmPlan
    instance: Instance
    event: UnifiedEvent
    workdir: Path


class AgentCalls:
    """Answers the calls of all agent processes of an orchestrator."""

    def __init__(self, broker: Broker, instances: Instances) -> None:
        self._broker = broker
        self._instances = instances
        self._waits_for: dict[Instance, list[Instance]] = {}
        self.requests: dict[str, str] = {}  # the agents by the events whose outcome a call waits for
        self._ended = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The count of turns that wait for another agent."""
        return len(self._waits_for)

    def turn_ended(self) -> None:
        """Wake the requests, one of which may have its answer now."""
        self._ended.set()
        self._ended = asyncio.Event()

    async def answer(self, caller: CallingTurn, kind: str, asked: Mapping[str, Any]) -> Any:
        """Answer one call. Raises IpcRefused."""
        match kind:
            case "agents.request":
                return await self._request(caller, asked)
            case "agents.send":
                await self._enqueue(caller, asked, MESSAGE, None)
                return None
            case "agents.spawn":
                return await self._spawn(caller, asked)
            case "agents.list":
                return await self._list(caller, include_all=bool(asked.get("includeAll")))
            case "agents.catalog":
                return catalog_of(caller)
        raise IpcRefused("E_IPC", "the orchestrator does not know this call")

    async def _request(self, caller: CallingTurn, asked: Mapping[str, Any]) -> dict[str, Any]:
        target = _target(caller, asked)
        reply_to = ReplyTo(caller.instance.name, str(asked.get("requestId")))
        if self._would_wait_for_itself(caller.instance, target):
            text = f"{target.agent} waits for this agent, so it cannot answer."
            raise IpcRefused("E_AGENT_DEADLOCK", text, "Answer without it, or use agents__send.")
        waits_for = self._waits_for.setdefault(caller.instance, [])
        waits_for.append(target)  # before the first await: two that ask each other at once both look here
        try:
            event_id = await self._enqueue(caller, asked, REQUEST, reply_to)
            self.requests[event_id] = target.agent
            outcome = await self._outcome(event_id, _seconds(asked.get("timeout")))
        finally:
            waits_for.remove(target)
            if not waits_for:
                self._waits_for.pop(caller.instance, None)
        if outcome is None:
            text = f"{target.agent} did not answer in time. It may still work on the request."
            raise IpcRefused("E_AGENT_TIMEOUT", text, "Ask again later, or go on without it.")
        if outcome["status"] != "ok":
            raise IpcRefused("E_AGENT_FAILED", f"{target.agent}: {outcome['answer']}")
        return {"target": target.agent, "instanceKey": asked.get("instanceKey"), "response": outcome["answer"]}

    async def _outcome(self, event_id: str, seconds: float) -> Outcome | None:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    ended = self._ended
                    if (outcome := await self._instances.outcome(event_id)) is not None:
                        return outcome
                    with suppress(TimeoutError):
                        await asyncio.wait_for(ended.wait(), POLL_SECONDS)
        except TimeoutError:
            return None
        finally:
            del self.requests[event_id]

    def _would_wait_for_itself(self, caller: Instance, target: Instance) -> bool:
        seen, reached = set[Instance](), [target]
        while reached:
            if (at := reached.pop()) == caller:
                return True
            reached += [] if at in seen else self._waits_for.get(at, [])
            seen.add(at)
        return False

    async def _enqueue(self, caller: CallingTurn, asked: Mapping[str, Any], kind: str, reply: ReplyTo | None) -> str:
        target = _target(caller, asked)
        payload = {
            "input": _input(asked),
            "source": {"kind": "agent", "name": caller.instance.agent, "instanceKey": caller.instance.key},
            "traceId": caller.event.trace_id,
        }
        if reply is not None:
            payload["replyTo"] = reply.to_json()
        try:
            return await self._broker.events.enqueue(
                target.agent,
                kind,
                payload,
                turn=caller.event.turn,
                instance_key=target.key,
                idempotency_key=json.dumps([caller.event.id, asked.get("requestId")]),
            )
        except BrokerError as error:
            refused = IpcRefused("E_AGENT_QUEUE", error.message())
        raise refused

    async def _spawn(self, caller: CallingTurn, asked: Mapping[str, Any]) -> dict[str, Any]:
        name = asked.get("instanceKey")
        name = f"{asked.get('requestId')}".removeprefix("call-") if name is None else name
        target = _target(caller, {**asked, "instanceKey": name})
        cwd = None if asked.get("cwd") is None else str(_inside(caller.workdir, str(asked["cwd"])))
        created = await self._instances.prepare(target, caller.instance, cwd)
        return {"target": target.agent, "instanceKey": name, "cwd": cwd, "created": created}

    async def _list(self, caller: CallingTurn, *, include_all: bool) -> list[dict[str, Any]]:
        own = [caller.instance.agent, caller.instance.key]
        spawned = await self._instances.spawned(caller.instance)
        return [
            {"target": each["agent"], "instanceKey": each["name"], "cwd": each["cwd"]}
            for each in spawned
            if include_all or each["by"] == own
        ]


def catalog_of(caller: CallingTurn) -> dict[str, Any]:
    """Return the swarm's agents. An agent may call all but itself."""
    available = list(caller.plan.agents)
    return {
        "swarmName": caller.plan.name,
        "entryAgent": caller.plan.entry_agent,
        "selfAgent": caller.instance.agent,
        "availableAgents": available,
        "callableAgents": [name for name in available if name != caller.instance.agent],
    }


def addressed(event: UnifiedEvent) -> Instance:
    """Return the instance of an event. Agents reach instances of their conversation. One that an agent has named is
    reached by agents and by the ends of its own work, and by no channel. Raises ValueError for other events."""
    instance = Instance.of(event.turn)
    if event.type in {MESSAGE, REQUEST} and event.source.get("kind") == "agent":
        sender = Instance.of(replace(event.turn, instance_key=str(event.source.get("instanceKey"))))
        if sender.conversation != instance.conversation:
            raise ValueError("it comes from an agent of another conversation")
    elif not (instance.spawned is None or event.type in _ENDS or event.type.startswith("auth.")):
        raise ValueError("its instanceKey is that of an instance that an agent has named")
    return instance


def _target(caller: CallingTurn, asked: Mapping[str, Any]) -> Instance:
    """Return the instance that a call names: of an agent of the swarm, in the caller's conversation."""
    agent, name = asked.get("target"), asked.get("instanceKey")
    if not isinstance(agent, str) or agent not in caller.plan.agents:
        known = ", ".join(caller.plan.agents)
        raise IpcRefused("E_AGENT_UNKNOWN", "The swarm defines no agent of this name.", f"Its agents: {known}.")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise IpcRefused("E_AGENT_INSTANCE", "An instanceKey has 1 to 64 letters, digits, dots, hyphens or _.")
    return replace(caller.instance, agent=agent, spawned=name)


def _input(asked: Mapping[str, Any]) -> str:
    """Return the text of a request or a message. Raises IpcRefused."""
    problem = "it is not a text"
    try:
        if isinstance(text := asked.get("input"), str):
            return str(plain_json(text, INPUT))
    except NotPlainJson as refused:
        problem = str(refused)
    raise IpcRefused("E_AGENT_INPUT", f"The input is refused: {problem}.", "Send a shorter text, or a path of a file.")


def _seconds(given: object) -> float:
    return min(max(float(given), 0.0), 3600.0) if isinstance(given, int | float) else REQUEST_SECONDS


def _inside(workdir: Path, cwd: str) -> Path:
    """Return a folder below the caller's own. Raises IpcRefused for any other path."""
    root = workdir.resolve()
    found = None if "\0" in cwd else (root / cwd).resolve()
    if found is None or not found.is_relative_to(root) or not found.is_dir():
        raise IpcRefused("E_AGENT_CWD", "cwd is no folder below the working directory of this agent.")
    return found
