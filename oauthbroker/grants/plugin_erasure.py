"""Erase what plug-ins keep about a subject outside of the store."""

from __future__ import annotations

from oauthbroker.audit.plugin_entry import PluginAudit
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import described
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.plugins.declaration import ErasesSubject, SubjectRecords
from oauthbroker.plugins.discovery import declared, named


@dataclass(frozen=True, slots=True)
class PluginErasure:
    """The plug-ins of the configuration in use that keep such data."""

    config: CurrentConfig
    audit: PluginAudit

    async def erase(self, subject: str, *, dry_run: bool) -> SubjectRecords:
        """Ask each plug-in, and return the sum. Raises a code with a note that names the plug-in that failed."""
        found = SubjectRecords()
        for plugin in map(declared, self.config.bundle.settings.plugins):
            if plugin.erase:
                each = await self._asked(plugin.name, named(plugin, plugin.erase), subject, dry_run=dry_run)
                found = SubjectRecords(records=found.records + each.records, ending=found.ending + each.ending)
        return found

    async def _asked(self, name: str, erases: ErasesSubject, subject: str, *, dry_run: bool) -> SubjectRecords:
        try:
            return await erases(self.config.bundle, subject, dry_run=dry_run, audit=self.audit)
        except BrokerError as error:
            why, code = error.note or error.code.value, error.code
        except Exception as error:  # noqa: BLE001  (code of another package: anything may happen)
            why, code = described(error), Code.STORE_UNAVAILABLE
        raise BrokerError(code, note=f"the plug-in {name} does not erase: {why}")
