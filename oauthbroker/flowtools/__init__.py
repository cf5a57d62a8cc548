"""Flow tools, a plug-in: tools written as data, checked before anything is deployed. See README.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oauthbroker.plugins import Plugin, PluginCommand

if TYPE_CHECKING:
    from oauthbroker.flowtools.as_tools import FlowTools
    from oauthbroker.flowtools.deployment.versions import DeployedFlow, FlowVersions
    from oauthbroker.flowtools.entities.database import Database
    from oauthbroker.flowtools.entities.definition import load_entity
    from oauthbroker.flowtools.entities.tables import apply
    from oauthbroker.flowtools.risk.assessment import RiskAssessment, assess
    from oauthbroker.flowtools.running.auditing import audit_from_threads
    from oauthbroker.flowtools.running.contract import FlowRuns
    from oauthbroker.flowtools.running.ports import Adapter, AnswerLost, Effect, EffectRefused, NotSent
    from oauthbroker.flowtools.running.resuming import resuming
    from oauthbroker.flowtools.specification.failures import Actor
    from oauthbroker.flowtools.specification.policies import load_policy
    from oauthbroker.flowtools.specification.source import FlowRefused
    from oauthbroker.flowtools.specification.spec import load_tool, refuse_changed

__all__ = [
    "PLUGIN",
    "Actor",
    "Adapter",
    "AnswerLost",
    "Database",
    "DeployedFlow",
    "Effect",
    "EffectRefused",
    "FlowRefused",
    "FlowRuns",
    "FlowTools",
    "FlowVersions",
    "NotSent",
    "RiskAssessment",
    "apply",
    "assess",
    "audit_from_threads",
    "load_entity",
    "load_policy",
    "load_tool",
    "refuse_changed",
    "resuming",
]

_PARTS = {
    "as_tools": {"FlowTools"},
    "deployment.versions": {"DeployedFlow", "FlowVersions"},
    "entities.database": {"Database"},
    "entities.definition": {"load_entity"},
    "entities.tables": {"apply"},
    "risk.assessment": {"RiskAssessment", "assess"},
    "running.auditing": {"audit_from_threads"},
    "running.contract": {"FlowRuns"},
    "running.ports": {"Adapter", "AnswerLost", "Effect", "EffectRefused", "NotSent"},
    "running.resuming": {"resuming"},
    "specification.failures": {"Actor"},
    "specification.policies": {"load_policy"},
    "specification.source": {"FlowRefused"},
    "specification.spec": {"load_tool", "refuse_changed"},
}

PLUGIN = Plugin(
    name="flowtools",
    commands={
        "flow": PluginCommand(
            help="Flow tools: check, deploy, draw, run.", app="oauthbroker.flowtools.cli.commands:app"
        )
    },
    audit_types="oauthbroker.flowtools.running.auditing:TYPES",
    kinds="oauthbroker.flowtools.serving.kinds:KINDS",
    open="oauthbroker.flowtools.serving.plugin:open_plugin",
    erase="oauthbroker.flowtools.serving.data:erase_subject",
    backup="The database of flows is apart: oauthbroker flow backup FILE copies it, or says what to dump.",
    secret_places="oauthbroker.flowtools.serving.data:secret_places",
)


def __getattr__(name: str) -> Any:
    """Import a part when it is first used: `oauthbroker --help` imports only the declaration."""
    for part, names in _PARTS.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{part}"), name)
    raise AttributeError(name)
