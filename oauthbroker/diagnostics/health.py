"""Whether an operator is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import Code
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.observability.repeats import StoreOutage
from oauthbroker.plugins.running_plugin import PluginFinding
from oauthbroker.refresh.retry_store import RetryStore

HealthStatus = Literal["ok", "red"]


@dataclass(frozen=True, slots=True)
class Health:
    """Whether an operator is needed. `problems` are codes of docs/errors.md, and `<plugin>.<code>` of what a plug-in
    found, which `findings` explains; tokens are served all the same."""

    problems: tuple[str, ...] = ()
    findings: Mapping[str, PluginFinding] = field(default_factory=dict)

    @property
    def status(self) -> HealthStatus:
        return "red" if self.problems else "ok"

    def to_json(self) -> dict[str, Any]:
        if not self.problems:
            return {"status": "ok"}
        explained = [{"code": code, "text": each.text, "hint": each.hint} for code, each in self.findings.items()]
        return {"status": "red", "problems": [*self.problems]} | ({"findings": explained} if explained else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """Find the problems of a broker: with its configuration, its store, its audit log, its plug-ins. `plugins` returns
    the findings of all that are open, by `<plugin>.<code>`."""

    config: CurrentConfig
    opened_here: OpenedHere
    outage: StoreOutage
    retry_store: RetryStore
    audit: AuditWriter
    plugins: Callable[[], Mapping[str, PluginFinding]]

    def now(self) -> Health:
        is_away = self.opened_here.is_over or self.retry_store.unstored or self.outage.lasts
        store = Code.STORE_UNAVAILABLE if is_away else None
        codes = (self.config.failure, store, self.audit.failure)
        findings = self.plugins()
        ours = (code.value for code in codes if code is not None)
        return Health((*ours, *findings), findings)
