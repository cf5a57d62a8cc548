"""Whether an operator is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.errors import Code
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.refresh.retry_store import RetryStore


@dataclass(frozen=True, slots=True)
class Health:
    """Whether an operator is needed. `problems` are codes of docs/errors.md; tokens are served all the same."""

    problems: tuple[str, ...] = ()

    @property
    def status(self) -> Literal["ok", "red"]:
        return "red" if self.problems else "ok"

    def to_json(self) -> dict[str, str | list[str]]:
        return {"status": self.status, "problems": list(self.problems)} if self.problems else {"status": "ok"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """Find the problems of a broker: with its configuration, its store, its audit log."""

    config: CurrentConfig
    retry_store: RetryStore
    audit: AuditWriter

    def now(self) -> Health:
        unstored = Code.STORE_UNAVAILABLE if self.retry_store.unstored else None
        codes = (self.config.trouble, unstored, self.audit.trouble)
        return Health(tuple(code.value for code in codes if code is not None))
