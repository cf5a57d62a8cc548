"""Flow tools, a plug-in: tools written as data, checked before anything is deployed. See README.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oauthbroker.plugins import Plugin, PluginCommand

if TYPE_CHECKING:
    from oauthbroker.flowtools.deployment.versions import DeployedFlow, FlowVersions
    from oauthbroker.flowtools.risk.judging import FlowVerdict, judge
    from oauthbroker.flowtools.specification.policies import load_policy
    from oauthbroker.flowtools.specification.source import FlowRefused
    from oauthbroker.flowtools.specification.spec import load_tool, refuse_changed

__all__ = [
    "PLUGIN",
    "DeployedFlow",
    "FlowRefused",
    "FlowVerdict",
    "FlowVersions",
    "judge",
    "load_policy",
    "load_tool",
    "refuse_changed",
]

PLUGIN = Plugin(
    name="flowtools",
    commands={
        "flow": PluginCommand(
            help="Flow tools: check, deploy, draw, run.", app="oauthbroker.flowtools.cli.commands:app"
        )
    },
    kinds="oauthbroker.flowtools.serving.kinds:KINDS",
    open="oauthbroker.flowtools.serving.plugin:open_plugin",
    erase="oauthbroker.flowtools.serving.data:erase_subject",
    backup="The database of flows is apart: oauthbroker flow backup FILE copies it, or says what to dump.",
    secret_places="oauthbroker.flowtools.serving.data:secret_places",
)


def __getattr__(name: str) -> Any:
    """Import a part when it is first used: `oauthbroker --help` imports only the declaration."""
    if name not in __all__:
        raise AttributeError(name)
    from oauthbroker.flowtools.deployment import versions
    from oauthbroker.flowtools.risk import judging
    from oauthbroker.flowtools.specification import policies, source, spec

    parts = (judging, policies, source, spec, versions)
    return next(getattr(part, name) for part in parts if hasattr(part, name))
