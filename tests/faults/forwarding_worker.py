"""A process that forwards the events of one agent, and may kill itself at a step of that.

One line on its stdin, as JSON: `folder` (of the files), `database` (its URL, or empty for files), `url` and `secret` of
the receiver or `servers` of NATS, `place` and `times`: at which step it kills itself, when it gets there for the
so-manieth time. It prints "up" and when it leads, and ends with its stdin.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.events.forwarding import agent_forwarder
from oauthbroker.events.forwarding.agent_forwarder import AgentForwarder
from oauthbroker.events.forwarding.jetstream import JetStream
from oauthbroker.events.forwarding.senders import WebhookSender
from oauthbroker.events.port import EventLease
from oauthbroker.events.queue_storage import QueueStorage
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.forwarders import Forwarder, Nats, Webhook
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.protocol.network.api_transport import ApiTransport
from oauthbroker.store.format.port import Store
from tests.kit.nats import SUBJECT
from tests.kit.running_broker import BASE, file_store

AGENT = "planner"
LEASE_SECONDS = 2.0
# The function of a step, and whether the process dies before or after it.
PLACES: dict[str, tuple[Any, str, bool]] = {
    "the event is leased": (AgentForwarder, "_next", True),
    "it is about to be sent": (WebhookSender, "send", False),
    "the answer has begun": (ApiTransport, "send", True),
    "the receiver has it": (WebhookSender, "send", True),
    "it is about to be marked": (EventLease, "ack", False),
    "a part of the queue is written": (QueueStorage, "_put", True),
    "it is marked": (EventLease, "ack", True),
    "the stream has it": (JetStream, "publish", True),
}


def kill_at(place: str, times: int) -> None:
    """Replace the function of a place, so that the process kills itself there."""
    owner, name, after = PLACES[place]
    real: Callable[..., Awaitable[Any]] = getattr(owner, name)
    left = [times]

    async def dying(*args: Any, **more: Any) -> Any:
        if not after:
            _count(left)
        found = await real(*args, **more)
        if after:
            _count(left)
        return found

    setattr(owner, name, dying)


def tell_who_leads() -> None:
    """Print a line when this process has the lease."""
    real = AgentForwarder._serve

    async def serve(self: AgentForwarder, lease: Any) -> None:
        print("leads", flush=True)
        await real(self, lease)
        print("led", flush=True)

    AgentForwarder._serve = serve  # type: ignore[method-assign]


def _count(left: list[int]) -> None:
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def store_of(work: dict[str, Any]) -> Store:
    if not work["database"]:
        return file_store(Path(work["folder"]))
    from tests.kit.postgres import open_postgres_store

    return open_postgres_store(Secret(work["database"]), Path(work["folder"]), lease_seconds=LEASE_SECONDS)


def forwarder_of(work: dict[str, Any]) -> Forwarder:
    to = (
        Nats(servers=tuple(work["servers"]), subject=SUBJECT)
        if work.get("servers")
        else Webhook(url=work["url"], secrets=(Secret(work["secret"]),))
    )
    return Forwarder(name="hook", agents=(AGENT,), to=to)


def settings() -> Settings:
    limits = Limits(queue_lease_seconds=LEASE_SECONDS, queue_attempts=100)
    return Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=limits)


async def main() -> None:
    work = json.loads(sys.stdin.readline())
    agent_forwarder.ASIDE_SECONDS = 0.2
    tell_who_leads()
    if work.get("place"):
        kill_at(work["place"], work["times"])
    bundle = Bundle(settings(), {}, forwarders=(forwarder_of(work),))
    clock, log = SystemClock(), io.StringIO()
    async with open_broker(
        bundle, env={}, clock=clock, store=store_of(work), audit=AuditList(), log=json_log(log, clock)
    ):
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
