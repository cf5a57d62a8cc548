"""oauthbroker: OAuth tokens for tool-calling agents. The public names, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily
from oauthbroker.core.version import VERSION

if TYPE_CHECKING:
    from oauthbroker.audit.plugin_entry import PluginAuditEntry
    from oauthbroker.broker import Broker
    from oauthbroker.config.check import check_config
    from oauthbroker.config.plugin_files import read_resources
    from oauthbroker.config.written.client_spec import SecretSource
    from oauthbroker.config.written.fields import Ref, Strict, Tolerant
    from oauthbroker.core.bearer_challenge import demanded_scopes
    from oauthbroker.core.clock import Clock, SystemClock
    from oauthbroker.core.errors import BrokerError, Code
    from oauthbroker.core.foreign_text import foreign_text, harmless_text
    from oauthbroker.core.json_values import ValueCounter
    from oauthbroker.core.plain_json import JsonLimits, NotPlainJson, plain_json, type_name
    from oauthbroker.core.secret import Secret
    from oauthbroker.core.strict_json import decode_json
    from oauthbroker.injection.bounded_answers import Allowance, AnswerTooLarge, bounded_answer
    from oauthbroker.injection.errors import AuthorizationNeeded, InjectionError, RequestRefused, told_to_model
    from oauthbroker.model.plugin_resources import PluginResource, PluginResources
    from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
    from oauthbroker.model.turn import Turn, TurnAuth
    from oauthbroker.plugin_services.pinned_texts import ChangedText, PinnedTexts
    from oauthbroker.plugin_services.plugin_state import PluginState
    from oauthbroker.plugin_services.public_web import PublicWeb, WebAnswer
    from oauthbroker.plugins.declaration import (
        Plugin,
        PluginCommand,
        ResourceKind,
        SubjectRecords,
        WrittenResource,
        WrittenResources,
    )
    from oauthbroker.plugins.plugin_pages import PluginPage, PluginPageRequest, PluginPages, PluginView
    from oauthbroker.plugins.running_plugin import Background, PluginCall, PluginFinding, PluginRoute, RunningPlugin
    from oauthbroker.web.api.fields import RequestModel
    from oauthbroker.web.bounded_requests import BoundedRequests
    from oauthbroker.wiring import open_broker
    from oauthbroker.wiring.mcp_server_facts import McpServerFacts, look_at_mcp_server

__all__ = [
    "Allowance",
    "AnswerTooLarge",
    "AuthorizationNeeded",
    "AuthorizationRequired",
    "Background",
    "BoundedRequests",
    "Broker",
    "BrokerError",
    "ChangedText",
    "Clock",
    "Code",
    "Failed",
    "InjectionError",
    "JsonLimits",
    "McpServerFacts",
    "NotPlainJson",
    "PinnedTexts",
    "Plugin",
    "PluginAuditEntry",
    "PluginCall",
    "PluginCommand",
    "PluginFinding",
    "PluginPage",
    "PluginPageRequest",
    "PluginPages",
    "PluginResource",
    "PluginResources",
    "PluginRoute",
    "PluginState",
    "PluginView",
    "PublicWeb",
    "Ready",
    "Ref",
    "RequestModel",
    "RequestRefused",
    "ResourceKind",
    "RunningPlugin",
    "Secret",
    "SecretSource",
    "Strict",
    "SubjectRecords",
    "SystemClock",
    "TokenResult",
    "Tolerant",
    "Turn",
    "TurnAuth",
    "ValueCounter",
    "WebAnswer",
    "WrittenResource",
    "WrittenResources",
    "__version__",
    "bounded_answer",
    "check_config",
    "decode_json",
    "demanded_scopes",
    "foreign_text",
    "harmless_text",
    "look_at_mcp_server",
    "open_broker",
    "plain_json",
    "read_resources",
    "told_to_model",
    "type_name",
]

__version__ = VERSION
__getattr__ = lazily(
    __name__,
    {
        "audit.plugin_entry": {"PluginAuditEntry"},
        "broker": {"Broker"},
        "config.check": {"check_config"},
        "config.written.client_spec": {"SecretSource"},
        "config.written.fields": {"Ref", "Strict", "Tolerant"},
        "config.plugin_files": {"read_resources"},
        "core.bearer_challenge": {"demanded_scopes"},
        "core.clock": {"Clock", "SystemClock"},
        "core.errors": {"BrokerError", "Code"},
        "core.secret": {"Secret"},
        "core.foreign_text": {"foreign_text", "harmless_text"},
        "core.json_values": {"ValueCounter"},
        "core.plain_json": {"JsonLimits", "NotPlainJson", "plain_json", "type_name"},
        "core.strict_json": {"decode_json"},
        "injection.bounded_answers": {"Allowance", "AnswerTooLarge", "bounded_answer"},
        "injection.errors": {"AuthorizationNeeded", "InjectionError", "RequestRefused", "told_to_model"},
        "model.plugin_resources": {"PluginResource", "PluginResources"},
        "model.token_results": {"AuthorizationRequired", "Failed", "Ready", "TokenResult"},
        "model.turn": {"Turn", "TurnAuth"},
        "plugin_services.pinned_texts": {"ChangedText", "PinnedTexts"},
        "plugin_services.public_web": {"PublicWeb", "WebAnswer"},
        "plugin_services.plugin_state": {"PluginState"},
        "plugins.declaration": {
            "ResourceKind",
            "Plugin",
            "PluginCommand",
            "SubjectRecords",
            "WrittenResource",
            "WrittenResources",
        },
        "plugins.running_plugin": {"Background", "RunningPlugin", "PluginCall", "PluginFinding", "PluginRoute"},
        "plugins.plugin_pages": {"PluginPage", "PluginPages", "PluginView", "PluginPageRequest"},
        "web.bounded_requests": {"BoundedRequests"},
        "web.api.fields": {"RequestModel"},
        "wiring": {"open_broker"},
        "wiring.mcp_server_facts": {"McpServerFacts", "look_at_mcp_server"},
    },
)
