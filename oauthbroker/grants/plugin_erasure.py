"""Erase what plug-ins keep about a subject outside of the store."""

from __future__ import annotations

from oauthbroker.audit.plugin_entry import PluginAudit
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.foreign_code import ForeignFault, foreign_code
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
        code = Code.STORE_UNAVAILABLE
        try:
            with foreign_code(f"the plug-in {name}, erase"):
                found = await erases(self.config.bundle, subject, dry_run=dry_run, audit=self.audit)
        except BrokerError as error:
            why, code = error.note or error.code.value, error.code
        except ForeignFault as fault:
            why = fault.why
        else:
            counts = (found.records, found.ending) if isinstance(found, SubjectRecords) else (None,)
            if all(type(count) is int and count >= 0 for count in counts):
                return found
            why = "it returned no SubjectRecords, or one with a number below 0"
        raise BrokerError(code, note=f"the plug-in {name} does not erase: {why}")
