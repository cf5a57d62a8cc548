"""The audit entries of the sample plug-in."""

from __future__ import annotations

from oauthbroker.plugins import PluginAuditEntry


class NoteWritten(PluginAuditEntry, plugin="sample"):
    """A note is being written. This entry is written first."""

    notebook: str
    caller: str | None
    pages: int


TYPES = (NoteWritten,)
