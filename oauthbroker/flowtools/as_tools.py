"""Deployed flows as tools of an agent, registered by their serving versions. A model sees `createReservation` as
`flow__create-reservation`. It never says for whom a flow runs: the runtime does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from oauthbroker import AuthorizationRequiredError, BrokerError, Code
from oauthbroker.flowtools.deployment.versions import DeployedFlow, FlowVersions
from oauthbroker.flowtools.running.contract import FlowRuns
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import ESCALATED, SUCCEEDED, UNKNOWN, WAITING
from oauthbroker.flowtools.running.working import RunResult
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.plugins import on_thread
from oauthbroker.tools import Registry, ToolCatalogItem, ToolContext, ToolFailure

OWNER: Final = "Tool/flow"  # what an agent names in `tools` to get all flows
SECONDS: Final = 3600.0  # the most of a call: nodes have limits of their own, and a run may wait for another process
# Returns the authenticated caller of a tool call: the user of its turn, and never a word of the model.
ActorOf = Callable[[ToolContext], Actor | None]
_WORDS: Final = {
    ESCALATED: "A person has to decide first. Do not call it again.",
    UNKNOWN: "An answer was lost, so it may have taken effect. Do not call it again; tell the user.",
    WAITING: "It waits for a user's consent.",
}


class FlowTools:
    """The deployed flows in the registry of one agent process."""

    def __init__(self, registry: Registry, *, versions: FlowVersions, runs: FlowRuns, actor_of: ActorOf) -> None:
        self._registry, self._versions, self._runs, self._actor_of = registry, versions, runs, actor_of
        self._ready: dict[str, ReadyFlow] = {}  # by the full name of a tool

    async def follow(self) -> tuple[str, ...]:
        """Register each flow as its serving version is now, and return why others are left out: a version is refused,
        or its name is too long. Call it where a step begins, before its catalog is made."""
        serving, problems = await on_thread(self._serving)
        for name in self._ready.keys() - serving.keys():
            self._registry.remove(name, owner=OWNER)
            del self._ready[name]
        for name, deployed in serving.items():
            try:
                self._register(name, deployed)
            except (FlowRefused, ValueError) as refused:
                problems.append(str(refused))
        return tuple(problems)

    def _serving(self) -> tuple[dict[str, DeployedFlow], list[str]]:
        """Return the versions that serve, by the names that a model sees, and why others do not."""
        problems, serving = list[str](), dict[str, DeployedFlow]()
        for name in self._versions.names():
            try:
                deployed = self._versions.deployed(name)
                if not deployed.withdrawn:
                    serving[tool_name(name)] = deployed
            except FlowRefused as refused:
                problems.append(str(refused))
        return serving, problems

    def _register(self, name: str, deployed: DeployedFlow) -> None:
        known = self._ready.get(name)
        if known is not None and known.tool.source.digest == deployed.tool.source.digest:
            return
        flow = self._runs.ready(deployed.tool, deployed.policies)
        description = f"{flow.tool.description} (risk: {flow.assessment.risk})"
        item = ToolCatalogItem(name=name, description=description, parameters={"type": "object", **flow.tool.input})
        if known is not None:
            self._registry.remove(name, owner=OWNER)
        self._registry.register(item, partial(self._call, flow), owner=OWNER, seconds=SECONDS)
        self._ready[name] = flow

    async def _call(self, flow: ReadyFlow, ctx: ToolContext, args: Mapping[str, Any]) -> Any:
        """Run a flow, and return its output. The call that a model repeats after a consent goes on with its run."""
        actor, call = self._actor_of(ctx), f"{ctx.agent_name}\n{ctx.instance_key}\n{ctx.tool_call_id}"
        try:
            return answer(await on_thread(lambda: self._runs.call(flow, dict(args), actor, call=call)))
        except SQLAlchemyError as error:  # its text has statements and values, which no model may read
            note = type(error).__name__
        raise BrokerError(Code.STORE_UNAVAILABLE, note=note)


def answer(result: RunResult) -> Any:
    """Return the output of a run. Raises AuthorizationRequiredError while a user has to consent, and ToolFailure."""
    if result.state == SUCCEEDED:
        return result.output
    if result.authorization is not None:
        raise AuthorizationRequiredError(result.authorization)
    words = " ".join(filter(None, (result.message, _WORDS.get(result.state))))
    raise ToolFailure(words or "It still runs. Call it again later.", name=result.code or result.state)


def tool_name(flow: str) -> str:
    """Return the name that a model sees. Names of tools have small letters, and a single `_` stands for a dot
    (specification 002, section 5): each name of a flow has another one."""
    return f"flow__{re.sub('[A-Z]', lambda found: f'-{found[0].lower()}', flow).replace('.', '_')}"
