"""The configuration of a swarm's agents, as JSON that an agent process takes: no store key and no secret of another
agent is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oauthbroker import Broker
from oauthbroker.plugins import PluginResource, PluginResources

WEAK: Final = "toolIsolation"  # the weakening that lets isolated tools run without a sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmPlan:
    """A swarm: its agents by name, each with the configuration of its processes."""

    name: str
    entry_agent: str
    agents: Mapping[str, Mapping[str, Any]]
    grace_seconds: float

    @property
    def ref(self) -> str:
        return f"Swarm/{self.name}"


def plans_from(broker: Broker) -> dict[str, SwarmPlan]:
    """Return the plans of a broker's swarms by `Swarm/name`."""
    for model in broker.bundle.plugins["tools"].of("Model").values():
        for key in model.secrets.values():
            broker.scrubber.remember(key)  # a library may put it into the text of an exception, which is logged
    plans = [_plan(swarm, broker) for swarm in broker.bundle.plugins["tools"].of("Swarm").values()]
    return {plan.ref: plan for plan in plans}


def _plan(swarm: PluginResource, broker: Broker) -> SwarmPlan:
    """Return a plan. `authorized` are the resources that may ask for tokens. No sandbox shows the secret places: those
    that agent processes do not see either (`hidden`), and the bundle's own files (`configuration`)."""
    policy, bundle, resources = swarm.spec.policy, broker.bundle, broker.bundle.plugins["tools"]
    shared = {
        "maxSteps": policy.max_steps_per_turn,
        "outsideCatalog": policy.tool_calls == "registry",
        "folder": str(resources.folder),
        "authorized": sorted(bundle.tools),
        "hidden": sorted(
            str(Path(each).absolute()) for each in bundle.secret_places if each not in bundle.configuration
        ),
        "configuration": list(bundle.configuration),
        "weakIsolation": WEAK in bundle.settings.weaken,
    }
    agents = resources.of("Agent")
    return SwarmPlan(
        name=swarm.name,
        entry_agent=swarm.spec.entry_agent.name,
        agents={
            ref.name: _agent(agents[ref.name], resources, all_tools=policy.tool_calls == "registry") | shared
            for ref in swarm.spec.agents
        },
        grace_seconds=policy.grace_period_ms / 1000,
    )


def _agent(agent: PluginResource, resources: PluginResources, *, all_tools: bool) -> dict[str, Any]:
    """Return the configuration of an agent. `all_tools`: its registry has all of the bundle, shown or not."""
    tools, extensions = resources.of("Tool"), resources.of("Extension")
    shown = [ref.name for ref in agent.spec.tools]
    return {
        "name": agent.name,
        "systemPrompt": agent.spec.system_prompt,
        "model": _model(resources.of("Model")[agent.spec.model_ref.name]),
        "tools": {
            name: tools[name].spec.model_dump(mode="json", by_alias=True, exclude_none=True)
            for name in dict.fromkeys([*shown, *(tools if all_tools else ())])
        },
        "shown": shown,
        "extensions": [
            [ref.name, (spec := extensions[ref.name].spec).entry, spec.config] for ref in agent.spec.extensions
        ],
    }


def _model(model: PluginResource) -> dict[str, Any]:
    key = model.secrets.get(("apiKey",))
    return {
        "provider": model.spec.provider,
        "name": model.spec.name,
        "params": model.spec.params,
        "api_key": None if key is None else key.reveal(),
    }
