"""Flow tools, a plug-in: tools written as data, checked before anything is deployed. See README.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.plugins import Plugin, PluginCommand, lazily

if TYPE_CHECKING:
    from oauthbroker.flowtools.as_tools import FlowTools
    from oauthbroker.flowtools.deployment.versions import DeployedFlow, FlowVersions
    from oauthbroker.flowtools.entities.database import Database, apply
    from oauthbroker.flowtools.entities.definition import load_entity
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

PLUGIN = Plugin(
    name="flowtools",
    commands={
        "flow": PluginCommand(
            help="Flow tools: check, deploy, draw, run.", app="oauthbroker.flowtools.cli.commands:app"
        )
    },
    audit_types="oauthbroker.flowtools.risk.audit_types:TYPES",
    kinds="oauthbroker.flowtools.serving.kinds:KINDS",
    open="oauthbroker.flowtools.serving.plugin:open_plugin",
    erase="oauthbroker.flowtools.serving.data:erase_subject",
    backup="The database of flows is apart: `oauthbroker flow backup FILE` copies it, or says what to dump.",
    secret_places="oauthbroker.flowtools.serving.data:secret_places",
)

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(  # `oauthbroker --help` imports only the declaration
        __name__,
        {
            "flowtools.as_tools": {"FlowTools"},
            "flowtools.deployment.versions": {"DeployedFlow", "FlowVersions"},
            "flowtools.entities.definition": {"load_entity"},
            "flowtools.entities.database": {"Database", "apply"},
            "flowtools.risk.assessment": {"RiskAssessment", "assess"},
            "flowtools.running.auditing": {"audit_from_threads"},
            "flowtools.running.contract": {"FlowRuns"},
            "flowtools.running.ports": {"Adapter", "AnswerLost", "Effect", "EffectRefused", "NotSent"},
            "flowtools.running.resuming": {"resuming"},
            "flowtools.specification.failures": {"Actor"},
            "flowtools.specification.policies": {"load_policy"},
            "flowtools.specification.source": {"FlowRefused"},
            "flowtools.specification.spec": {"load_tool", "refuse_changed"},
        },
    )
