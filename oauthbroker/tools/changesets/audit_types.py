"""The plug-in's entries in the audit log."""

from __future__ import annotations

from oauthbroker.plugins import PluginAuditEntry


class BundleActivated(PluginAuditEntry, plugin="tools"):
    """A revision of the bundle, such as `git:5f1c4e`, is becoming the configuration. Git's history has its author."""

    revision: str


TYPES = (BundleActivated,)
