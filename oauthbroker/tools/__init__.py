"""The tool runtime, a plug-in: it declares tools, shows them to a model, calls them and runs agents' turns.
See README.md. The public names are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from oauthbroker.plugins import Plugin, PluginCommand

if TYPE_CHECKING:
    from oauthbroker.tools.bundle.loading import register_tools
    from oauthbroker.tools.calling.broker_turn import blocks_of, oauth_of
    from oauthbroker.tools.calling.calls import ToolCalls
    from oauthbroker.tools.calling.context import AuthorizedToolContext, CallScope, ToolContext, changeset_folders
    from oauthbroker.tools.calling.journal import DurableJournal
    from oauthbroker.tools.calling.registry import Registry
    from oauthbroker.tools.changesets.activation import Activation, allowed_files
    from oauthbroker.tools.changesets.changesets import Changesets, open_changesets
    from oauthbroker.tools.changesets.differences import AllowedFiles
    from oauthbroker.tools.changesets.editor import SwarmBundleTool
    from oauthbroker.tools.isolation.containment import CallLimits, Containment, detect_containment
    from oauthbroker.tools.isolation.process_tool import LendsAccess, ProcessTool, TurnAccess
    from oauthbroker.tools.models.port import Model, ModelAnswer, ModelRequest, ScriptedModel
    from oauthbroker.tools.orchestration.instances import Instance, Instances
    from oauthbroker.tools.orchestration.orchestrator import Orchestrator
    from oauthbroker.tools.orchestration.plan import plans_from
    from oauthbroker.tools.turns.extension_api import ExtensionApi
    from oauthbroker.tools.types.catalog import ToolCatalogItem
    from oauthbroker.tools.types.failures import ToolFailure
    from oauthbroker.tools.types.results import GoesOn, Message, Submitted, ToolCall, ToolCallResult

__all__ = [
    "PLUGIN",
    "Activation",
    "AllowedFiles",
    "AuthorizedToolContext",
    "CallLimits",
    "CallScope",
    "Changesets",
    "Containment",
    "DurableJournal",
    "ExtensionApi",
    "GoesOn",
    "Instance",
    "Instances",
    "LendsAccess",
    "Message",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "Orchestrator",
    "ProcessTool",
    "Registry",
    "ScriptedModel",
    "Submitted",
    "SwarmBundleTool",
    "ToolCall",
    "ToolCallResult",
    "ToolCalls",
    "ToolCatalogItem",
    "ToolContext",
    "ToolFailure",
    "TurnAccess",
    "allowed_files",
    "blocks_of",
    "changeset_folders",
    "detect_containment",
    "oauth_of",
    "open_changesets",
    "plans_from",
    "register_tools",
]

PLUGIN = Plugin(
    name="tools",
    commands={"tools": PluginCommand(help="Tools of agents: check, run.", app="oauthbroker.tools.commands:app")},
    kinds="oauthbroker.tools.bundle.spec:KINDS",
    audit_types="oauthbroker.tools.types.audit_types:TYPES",
)
_PLACES: Final = {
    "calling.broker_turn": {"blocks_of", "oauth_of"},
    "calling.calls": {"ToolCalls"},
    "types.catalog": {"ToolCatalogItem"},
    "changesets.activation": {"Activation", "allowed_files"},
    "changesets.differences": {"AllowedFiles"},
    "changesets.changesets": {"Changesets", "open_changesets"},
    "changesets.editor": {"SwarmBundleTool"},
    "calling.context": {"AuthorizedToolContext", "CallScope", "ToolContext", "changeset_folders"},
    "turns.extension_api": {"ExtensionApi"},
    "types.failures": {"ToolFailure"},
    "isolation.containment": {"CallLimits", "Containment", "detect_containment"},
    "isolation.process_tool": {"LendsAccess", "ProcessTool", "TurnAccess"},
    "calling.journal": {"DurableJournal"},
    "bundle.loading": {"register_tools"},
    "models.port": {"Model", "ModelAnswer", "ModelRequest", "ScriptedModel"},
    "orchestration.instances": {"Instance", "Instances"},
    "orchestration.orchestrator": {"Orchestrator"},
    "orchestration.plan": {"plans_from"},
    "calling.registry": {"Registry"},
    "types.results": {"GoesOn", "Message", "Submitted", "ToolCall", "ToolCallResult"},
}


if not TYPE_CHECKING:  # with it, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        place = next((place for place, names in _PLACES.items() if name in names), None)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{place}"), name)
