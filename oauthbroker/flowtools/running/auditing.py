"""The members of audit entries about runs, and the way of a run's thread to the broker's audit log."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.risk.audit_types import EffectSent
from oauthbroker.flowtools.running.checks import who
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.spec import Node
from oauthbroker.plugins import PluginAudit, PluginAuditEntry, wait_on

PROGRAMS: Final = ("key:", "service:")  # ids of API keys and services, not of persons
_SECONDS: Final = 30.0  # the longest wait for the event loop


def of_run(run: RunRecord) -> dict[str, Any]:
    """Return the members that name a run."""
    return {"tool": run.tool, "version": run.version, "run": run.id}


def of_caller(actor: Actor | None) -> dict[str, Any]:
    """Return the members that name a caller."""
    name = actor.id if actor else None
    program = name if name is not None and name.startswith(PROGRAMS) else None
    return {"caller": program, "actor": None if program else name, "subject": who(actor)[1].get("user")}


def effect_sent(run: RunRecord, node: Node, operation: str, attempt: int) -> EffectSent:
    """Return the entry of an attempt. The operation of a request is its method; a message has none."""
    app, provider = node.config.get("oauthAppRef"), node.config.get("provider")
    about: dict[str, Any] = {"node": node.id, "kind": node.type, "operation": operation or None, "attempt": attempt}
    return EffectSent(**of_run(run), **about, app=app and app.rpartition("/")[2], provider=provider)


def audit_from_threads(audit: PluginAudit) -> PluginAudit:
    """Return `Broker.audit` for the threads of runs: a log belongs to the event loop of its broker. Call this there."""
    loop = asyncio.get_running_loop()

    async def written(entry: PluginAuditEntry) -> None:
        audit(entry)

    def write(entry: PluginAuditEntry) -> None:
        try:
            return wait_on(loop, written(entry), _SECONDS)
        except BrokerError as error:
            if error.code is not Code.BROKER_UNREACHABLE:
                raise
            note = f"the audit log: {error.note}"
        raise BrokerError(Code.STORE_UNAVAILABLE, note=note)

    return write
