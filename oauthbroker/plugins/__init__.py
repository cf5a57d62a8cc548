"""The names for plug-ins, packages that extend the broker: docs/plugins.md explains them. They are imported when they
are first used. `declaration` is what a plug-in says about itself, `discovery` finds the installed ones. The broker
imports no plug-in by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily

if TYPE_CHECKING:
    from oauthbroker.audit.plugin_entry import PluginAudit, PluginAuditEntry
    from oauthbroker.config.plugin_files import read_json, read_resources, read_yaml
    from oauthbroker.config.problems.problems import ConfigProblem, SourcePlace
    from oauthbroker.config.reading.yaml_reader import YamlDocument
    from oauthbroker.config.written.client_spec import SecretSource
    from oauthbroker.config.written.fields import Ref, Strict, Tolerant
    from oauthbroker.core.bearer_challenge import demanded_scopes
    from oauthbroker.core.bounded_cache import Bounded
    from oauthbroker.core.clock import Clock, SystemClock
    from oauthbroker.core.errors import ConfigCauseError
    from oauthbroker.core.extras import UnfitExtra, check_extra
    from oauthbroker.core.foreign_code import ForeignFault, foreign_code
    from oauthbroker.core.foreign_text import foreign_text, harmless_text
    from oauthbroker.core.json_schema import json_schema_validator
    from oauthbroker.core.json_values import ValueCounter
    from oauthbroker.core.lifecycle import on_thread
    from oauthbroker.core.path_steps import climbs
    from oauthbroker.core.plain_json import JsonLimits, NotPlainJson, plain_json, type_name
    from oauthbroker.core.sentences import two_sentences
    from oauthbroker.core.strict_json import decode_json
    from oauthbroker.core.sync_bridge import wait_on
    from oauthbroker.events.port import EventLease
    from oauthbroker.injection.bounded_answers import Allowance, AnswerTooLarge, bounded_answer
    from oauthbroker.model.plugin_resources import PluginResource, PluginResources
    from oauthbroker.plugin_services.jwt_verifier import JwtIssuer, JwtVerifier
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
    from oauthbroker.wiring.mcp_server_facts import McpServerFacts, look_at_mcp_server

__all__ = [
    "Allowance",
    "AnswerTooLarge",
    "Background",
    "Bounded",
    "BoundedRequests",
    "ChangedText",
    "Clock",
    "ConfigCauseError",
    "ConfigProblem",
    "EventLease",
    "ForeignFault",
    "JsonLimits",
    "JwtIssuer",
    "JwtVerifier",
    "McpServerFacts",
    "NotPlainJson",
    "PinnedTexts",
    "Plugin",
    "PluginAudit",
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
    "Ref",
    "RequestModel",
    "ResourceKind",
    "RunningPlugin",
    "SecretSource",
    "SourcePlace",
    "Strict",
    "SubjectRecords",
    "SystemClock",
    "Tolerant",
    "UnfitExtra",
    "ValueCounter",
    "WebAnswer",
    "WrittenResource",
    "WrittenResources",
    "YamlDocument",
    "bounded_answer",
    "check_extra",
    "climbs",
    "decode_json",
    "demanded_scopes",
    "foreign_code",
    "foreign_text",
    "harmless_text",
    "json_schema_validator",
    "lazily",
    "look_at_mcp_server",
    "on_thread",
    "plain_json",
    "read_json",
    "read_resources",
    "read_yaml",
    "two_sentences",
    "type_name",
    "wait_on",
]

if not TYPE_CHECKING:  # with it, a type checker would accept every name
    __getattr__ = lazily(
        __name__,
        {
            "audit.plugin_entry": {"PluginAudit", "PluginAuditEntry"},
            "config.plugin_files": {"read_json", "read_resources", "read_yaml"},
            "config.problems.problems": {"ConfigProblem", "SourcePlace"},
            "config.reading.yaml_reader": {"YamlDocument"},
            "config.written.client_spec": {"SecretSource"},
            "config.written.fields": {"Ref", "Strict", "Tolerant"},
            "core.bearer_challenge": {"demanded_scopes"},
            "core.bounded_cache": {"Bounded"},
            "core.clock": {"Clock", "SystemClock"},
            "core.errors": {"ConfigCauseError"},
            "core.extras": {"UnfitExtra", "check_extra"},
            "core.foreign_code": {"ForeignFault", "foreign_code"},
            "core.foreign_text": {"foreign_text", "harmless_text"},
            "core.json_schema": {"json_schema_validator"},
            "core.json_values": {"ValueCounter"},
            "core.lifecycle": {"on_thread"},
            "core.path_steps": {"climbs"},
            "core.plain_json": {"JsonLimits", "NotPlainJson", "plain_json", "type_name"},
            "core.sentences": {"two_sentences"},
            "core.strict_json": {"decode_json"},
            "core.sync_bridge": {"wait_on"},
            "events.port": {"EventLease"},
            "injection.bounded_answers": {"Allowance", "AnswerTooLarge", "bounded_answer"},
            "model.plugin_resources": {"PluginResource", "PluginResources"},
            "plugin_services.jwt_verifier": {"JwtIssuer", "JwtVerifier"},
            "plugin_services.pinned_texts": {"ChangedText", "PinnedTexts"},
            "plugin_services.plugin_state": {"PluginState"},
            "plugin_services.public_web": {"PublicWeb", "WebAnswer"},
            "plugins.declaration": {
                "Plugin",
                "PluginCommand",
                "ResourceKind",
                "SubjectRecords",
                "WrittenResource",
                "WrittenResources",
            },
            "plugins.plugin_pages": {"PluginPage", "PluginPageRequest", "PluginPages", "PluginView"},
            "plugins.running_plugin": {"Background", "PluginCall", "PluginFinding", "PluginRoute", "RunningPlugin"},
            "web.api.fields": {"RequestModel"},
            "web.bounded_requests": {"BoundedRequests"},
            "wiring.mcp_server_facts": {"McpServerFacts", "look_at_mcp_server"},
        },
    )
