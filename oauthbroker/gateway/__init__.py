"""The action gateway, a plug-in: it validates actions that a model proposes, before they run. See README.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.plugins import Plugin, PluginCommand, lazily

if TYPE_CHECKING:
    from oauthbroker.gateway.validation import GateDecision, gate, rulebook, validate

__all__ = ["PLUGIN", "GateDecision", "gate", "rulebook", "validate"]

PLUGIN = Plugin(
    name="gateway",
    commands={"gateway": PluginCommand(help="Proposed actions: validate.", app="oauthbroker.gateway.commands:app")},
    kinds="oauthbroker.gateway.spec:KINDS",
    open="oauthbroker.gateway.running:open_plugin",
)

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(__name__, {"gateway.validation": {"GateDecision", "gate", "rulebook", "validate"}})
