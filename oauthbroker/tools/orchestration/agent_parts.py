"""Build the parts of an agent in its process: model, tools, extensions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, Final

from oauthbroker.tools.bundle.loading import Isolate, ModelConfig, load_agent, load_model
from oauthbroker.tools.bundle.spec import ToolResourceSpec
from oauthbroker.tools.calling.calls import ToolCalls
from oauthbroker.tools.calling.registry import RegistrationRefused
from oauthbroker.tools.isolation.containment import NO_SANDBOX, CallLimits, Containment, detect_containment
from oauthbroker.tools.isolation.process_tool import LendsAccess, ProcessTool, no_access
from oauthbroker.tools.turns.extension_api import InstanceValues
from oauthbroker.tools.turns.turn_loop import AgentParts

LOG: Final = logging.getLogger("oauthbroker.tools.agent")


async def parts_of(
    config: Mapping[str, Any], workdir: Path, values: InstanceValues, lend: LendsAccess = no_access
) -> AgentParts:
    """Return the parts of an agent from its configuration. Runs the modules of its tools and extensions. `lend` gives
    calls of isolated tools a turn token. Raises one of REFUSALS."""
    folder = Path(config["folder"])
    tools = {name: ToolResourceSpec.model_validate(spec) for name, spec in config["tools"].items()}
    model = load_model(ModelConfig(**config["model"]), folder)
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
