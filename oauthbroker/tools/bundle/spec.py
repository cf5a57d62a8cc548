"""The kinds of resources: Tool (specification 002, section 4), and Agent, Swarm, Extension, Connector and Model, whose
members are ours."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from oauthbroker.plugins import Ref, ResourceKind, SecretSource, Strict, Tolerant, WrittenResource, WrittenResources
from oauthbroker.tools.bundle.entries import entry_problem
from oauthbroker.tools.calling.call_life import MOST_SECONDS
from oauthbroker.tools.types.catalog import SchemaRefused, compiled, is_export_name, is_resource_name
from oauthbroker.tools.types.results import MESSAGE

Line = Annotated[str, Field(min_length=1, max_length=2048)]
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)]
Prompt = Annotated[str, Field(max_length=200_000)]
_WRITE_EXPORT: Final = "write at least one function of the tool"
_NAME: Final = "is not of small letters, digits, - and single _"
_RENAME: Final = "rename it: the model sees resource__export"
_WRITE_ENTRY: Final = "write the path of a Python file, from the folder of the bundle"


def _bare(value: Any) -> Any:
    """Return the reference of `{ref: Kind/name}`, the form of lists in other documents of the runtime."""
    return value["ref"] if isinstance(value, dict) and set(value) == {"ref"} else value


Refs = Annotated[list[Annotated[Ref, BeforeValidator(_bare)]], Field(max_length=1000)]


class ToolExportSpec(Strict):
    """One function of a tool. `parameters` is a JSON Schema of type object, `timeoutSeconds` the time of a call. A
    member that is misspelt is refused: without its `parameters`, an export takes any arguments."""

    name: Line | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    parameters: dict[str, Any] | None = None
    timeout_seconds: Seconds | None = None
    auth: Annotated[Any, Field(exclude=True)] = None  # the broker reads it


class ToolResourceSpec(Tolerant):
    """The members of a Tool beside `auth`, which the broker reads. `timeoutSeconds` is that of exports without one;
    `network` is that of an isolated tool, which has none unless it says so."""

    entry: Line | None = None
    error_message_limit: Annotated[int, Field(ge=1, le=10_000)] = MESSAGE
    timeout_seconds: Seconds | None = None
    isolation: Literal["process"] | None = None
    network: Literal["none", "open"] | None = None
    exports: Annotated[list[ToolExportSpec], Field(max_length=1000)] | None = None


class ExtensionSpec(Tolerant):
    """`entry` has `register(api)`. `config` is handed to it."""

    entry: Line | None = None
    config: dict[str, Any] = Field(default_factory=dict)


class ChannelSpec(Tolerant):
    """`swarmRef` is the swarm that gets the events of this channel."""

    swarm_ref: Ref | None = None


class ModelSpec(Strict):
    """A model by its provider's name for it. `params` go into each request."""

    provider: Line
    name: Line
    api_key: SecretSource | None = None
    params: dict[str, bool | int | float | str] = Field(default_factory=dict)


class ChangesetsSpec(Strict):
    """The files that a changeset may change, as globs."""

    allow: Annotated[list[Line], Field(max_length=200)] = Field(default_factory=list)


class AgentSpec(Strict):
    """An agent: its model, its words, and what its steps show."""

    model_ref: Ref
    system_prompt: Prompt = ""
    tools: Refs = Field(default_factory=list)
    extensions: Refs = Field(default_factory=list)
    changesets: ChangesetsSpec | None = None


class PolicySpec(Strict):
    """The limits of a swarm. `toolCalls: registry` allows calls of tools that the catalog does not show."""

    max_steps_per_turn: Annotated[int, Field(ge=1, le=1000)] = 32
    grace_period_ms: Annotated[int, Field(ge=0, le=300_000)] = 5000
    tool_calls: Literal["catalog", "registry"] = "catalog"


class SwarmSpec(Strict):
    """The agents that work together. `entryAgent` gets the events of channels."""

    entry_agent: Ref
    agents: Annotated[Refs, Field(min_length=1)]
    policy: PolicySpec = Field(default_factory=PolicySpec)
    changesets: ChangesetsSpec | None = None


def check_tool(tool: WrittenResource, resources: WrittenResources) -> None:
    if not is_resource_name(tool.name):
        tool.refuse_name(f"the name ends with _ or {_NAME}", _RENAME)
    if tool.spec.exports is None:
        tool.missing(("exports",), _WRITE_EXPORT)
    elif not tool.spec.exports:
        tool.refuse(("exports",), "without any export", _WRITE_EXPORT)
    for index, export in enumerate(tool.spec.exports or ()):
        _check_export(tool, index, export)
    if tool.spec.network is not None and tool.spec.isolation is None:
        tool.refuse(("network",), "a limit that only `isolation: process` keeps", "add isolation, or remove network")
    names = [export.name for export in tool.spec.exports or () if export.name is not None]
    _check_entry(tool, resources, handlers=[name for name in names if is_export_name(name)])


def _check_export(tool: WrittenResource, index: int, export: ToolExportSpec) -> None:
    path = ("exports", index)
    if export.name is None:
        tool.missing((*path, "name"), "write the name of the function")
    elif not is_export_name(export.name):
        tool.refuse((*path, "name"), f"the name begins with _ or {_NAME}", _RENAME)
    try:
        compiled(export.parameters if tool.whole(*path, "parameters") else None)
    except SchemaRefused as problem:
        what, hint, inner = problem.args
        tool.refuse((*path, "parameters", *inner), what, hint)


def _check_entry(resource: WrittenResource, resources: WrittenResources, handlers: Iterable[str] | None) -> None:
    if resource.spec.entry is None:
        resource.missing(("entry",), _WRITE_ENTRY)
    elif resource.whole("entry") and (problem := entry_problem(resource.spec.entry, resources.folder, handlers)):
        resource.refuse(("entry",), *problem)


def check_connector(connector: WrittenResource, resources: WrittenResources) -> None:
    if connector.spec.swarm_ref is not None:
        resources.refer(connector, ("swarmRef",), "Swarm")


def check_agent(agent: WrittenResource, resources: WrittenResources) -> None:
    resources.refer(agent, ("modelRef",), "Model")
    _check_list(agent, resources, "tools", "Tool")
    _check_list(agent, resources, "extensions", "Extension")


def check_swarm(swarm: WrittenResource, resources: WrittenResources) -> None:
    _check_list(swarm, resources, "agents", "Agent")
    entry = resources.refer(swarm, ("entryAgent",), "Agent")
    if entry is not None and entry.name not in {each.name for each in swarm.spec.agents}:
        swarm.refuse(("entryAgent",), "an agent that this swarm does not list", "add it to spec.agents")


def _check_list(resource: WrittenResource, resources: WrittenResources, field: str, kind: str) -> None:
    seen: set[str] = set()
    misnamed = {name.casefold() for name in resources.of("Tool") if not is_resource_name(name)}  # a problem of its own
    for index, ref in enumerate(getattr(resource.spec, field)):
        if kind == "Tool" and ref.name in misnamed:
            continue
        found = resources.refer(resource, (field, index), kind)
        if found is not None and ref.name in seen:
            resource.refuse((field, index), "the same reference twice", "remove one")
        seen.add(ref.name)


KINDS = (
    ResourceKind(kind="Tool", model=ToolResourceSpec, check=check_tool),
    ResourceKind(kind="Agent", model=AgentSpec, check=check_agent),
    ResourceKind(kind="Swarm", model=SwarmSpec, check=check_swarm),
    ResourceKind(kind="Extension", model=ExtensionSpec, check=partial(_check_entry, handlers=None)),
    ResourceKind(kind="Connector", model=ChannelSpec, check=check_connector),
    ResourceKind(kind="Model", model=ModelSpec),
)
