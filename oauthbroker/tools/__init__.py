"""The tool runtime, a plug-in: it declares tools, shows them to a model, calls them and runs agents' turns.
See README.md. The public names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.plugins import Plugin, PluginCommand, lazily

if TYPE_CHECKING:
    from oauthbroker.tools.bundle.loading import register_tools
    from oauthbroker.tools.calling.broker_turn import blocks_of, oauth_of
    from oauthbroker.tools.calling.calls import ToolCalls
    from oauthbroker.tools.calling.context import AuthorizedToolContext, CallScope, ToolContext, changeset_folders
    from oauthbroker.tools.calling.journal import DurableJournal
    from oauthbroker.tools.calling.registry import Registry
    from oauthbroker.tools.changesets.activation import Activation, allowed_files
    from oauthbroker.tools.changesets.changesets import Changesets, open_changesets
    from oauthbroker.tools.changesets.editor import SwarmBundleTool
    from oauthbroker.tools.changesets.files import AllowedFiles
    from oauthbroker.tools.isolation.containment import CallLimits, Containment, detect_containment
    from oauthbroker.tools.isolation.process_tool import LendsAccess, ProcessTool, TurnAccess
    from oauthbroker.tools.models import Model, ModelAnswer, ModelRequest, ScriptedModel
    from oauthbroker.tools.orchestration.instances import Instance, Instances
    from oauthbroker.tools.orchestration.orchestrator import Orchestrator
    from oauthbroker.tools.orchestration.plan import plans_from
    from oauthbroker.tools.turns.extension_api import ExtensionApi
    from oauthbroker.tools.types.catalog import ToolCatalogItem
    from oauthbroker.tools.types.failures import ToolFailure
    from oauthbroker.tools.types.results import GoesOn, Message, Submitted, ToolCall, ToolCallResult

__all__ = [
    "PLUGIN", "Activation", "AllowedFiles", "AuthorizedToolContext", "CallLimits", "CallScope", "Changesets",
    "Containment", "DurableJournal", "ExtensionApi", "GoesOn", "Instance", "Instances", "LendsAccess", "Message",
    "Model", "ModelAnswer", "ModelRequest", "Orchestrator", "ProcessTool", "Registry", "ScriptedModel", "Submitted",
    "SwarmBundleTool", "ToolCall", "ToolCallResult", "ToolCalls", "ToolCatalogItem", "ToolContext", "ToolFailure",
    "TurnAccess", "allowed_files", "blocks_of", "changeset_folders", "detect_containment", "oauth_of",
    "open_changesets", "plans_from", "register_tools",
]  # fmt: skip

PLUGIN = Plugin(
    name="tools",
    commands={"tools": PluginCommand(help="Tools of agents: check, run.", app="oauthbroker.tools.commands:app")},
    kinds="oauthbroker.tools.bundle.spec:KINDS",
    audit_types="oauthbroker.tools.types.audit_types:TYPES",
)

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(
        __name__,
        {
            "tools.calling.broker_turn": {"blocks_of", "oauth_of"},
            "tools.calling.calls": {"ToolCalls"},
            "tools.types.catalog": {"ToolCatalogItem"},
            "tools.changesets.activation": {"Activation", "allowed_files"},
            "tools.changesets.files": {"AllowedFiles"},
            "tools.changesets.changesets": {"Changesets", "open_changesets"},
            "tools.changesets.editor": {"SwarmBundleTool"},
            "tools.calling.context": {"AuthorizedToolContext", "CallScope", "ToolContext", "changeset_folders"},
            "tools.turns.extension_api": {"ExtensionApi"},
            "tools.types.failures": {"ToolFailure"},
            "tools.isolation.containment": {"CallLimits", "Containment", "detect_containment"},
            "tools.isolation.process_tool": {"LendsAccess", "ProcessTool", "TurnAccess"},
            "tools.calling.journal": {"DurableJournal"},
            "tools.bundle.loading": {"register_tools"},
            "tools.models": {"Model", "ModelAnswer", "ModelRequest", "ScriptedModel"},
            "tools.orchestration.instances": {"Instance", "Instances"},
            "tools.orchestration.orchestrator": {"Orchestrator"},
            "tools.orchestration.plan": {"plans_from"},
            "tools.calling.registry": {"Registry"},
            "tools.types.results": {"GoesOn", "Message", "Submitted", "ToolCall", "ToolCallResult"},
        },
    )
