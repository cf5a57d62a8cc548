"""A plug-in that uses every name. Its declaration imports nothing else of it."""

from __future__ import annotations

from oauthbroker.plugins import Plugin, PluginCommand

PLUGIN = Plugin(
    name="sample",
    commands={
        "notebooks": PluginCommand(help="Notebooks of the sample plug-in: list.", app="sample_plugin.commands:app")
    },
    kinds="sample_plugin.specs:KINDS",
    audit_types="sample_plugin.audit_types:TYPES",
    open="sample_plugin.running:open_plugin",
)
