"""The members of audit entries about runs, and the way of a run's thread to the broker's audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.risk.audit_types import EffectSent
from oauthbroker.flowtools.running.checks import who
from oauthbroker.flowtools.running.journal import RunRecord
from oauthbroker.flowtools.specification.failures import Actor
from oauthbroker.flowtools.specification.spec import Node
from oauthbroker.plugins import PluginAudit, PluginAuditEntry

PROGRAMS: Final = ("key:", "service:")  # ids of API keys and services, not of persons
_SECONDS: Final = 30.0  # the longest wait for the event loop
T = TypeVar("T")


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

    def write(entry: PluginAuditEntry) -> None:
        async def written() -> None:
            audit(entry)

        on_loop(loop, written, _SECONDS, ended=_unavailable, late=_unavailable)

    return write


def _unavailable(why: str) -> BrokerError:
    return BrokerError(Code.STORE_UNAVAILABLE, note=f"the audit log: {why}")


def on_loop(
    loop: asyncio.AbstractEventLoop,
    work: Callable[[], Coroutine[Any, Any, T]],
    seconds: float,
    *,
    ended: Callable[[str], Exception],
    late: Callable[[str], Exception],
) -> T:
    """Return what work returns on the broker's event loop, for a thread of a run. Raises `ended` if the loop does not
    run, and `late` without an answer in time."""
    if _is_here(loop):
        raise RuntimeError("a run was called on the broker's event loop: call it from a thread")
    if not loop.is_running():
        raise ended("the broker has ended")
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        return future.result(seconds)
    except (TimeoutError, CancelledError):
        raise late("the broker gave no answer in time") from None
    finally:
        future.cancel()


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
