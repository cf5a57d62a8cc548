"""The plug-in's entries in the audit log. Each is written before its act, and none has arguments or results."""

from __future__ import annotations

from oauthbroker.plugins import PluginAuditEntry


class ToolCalled(PluginAuditEntry, plugin="tools"):
    """A tool that declares an app, such as `Tool/mail:send`, is about to be called with the tokens of this turn."""

    tool: str
    call: str
    agent: str
    instance: str


class ChangesetChanged(PluginAuditEntry, plugin="tools"):
    """An agent is about to `open`, `commit` or `discard` a changeset. One that is being opened has no id yet."""

    action: str
    agent: str
    instance: str
    changeset: str | None = None


class BundleActivated(PluginAuditEntry, plugin="tools"):
    """A revision of the bundle, such as `git:5f1c4e`, is becoming the configuration. Git's history has its author."""

    revision: str


TYPES = (ToolCalled, ChangesetChanged, BundleActivated)
