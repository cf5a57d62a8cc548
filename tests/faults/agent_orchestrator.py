"""`python -m tests.faults.agent_orchestrator FOLDER`: an orchestrator on the store of a folder, for agent_kills to kill."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

from oauthbroker import Secret, open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import SystemClock
from oauthbroker.events import queue
from oauthbroker.observability.logging import json_log
from oauthbroker.tools.orchestration.orchestrator import Orchestrator
from oauthbroker.tools.orchestration.plan import plans_from
from tests.kit.agent_bundle import USER
from tests.kit.running_broker import file_store


async def main(folder: Path) -> None:
    """Run until killed. The token that a tool leaks is known to the scrubber, as one that was handed out is."""
    clock = SystemClock()
    backoff: Any = queue
    backoff.BACKOFF_SECONDS = (0,) * 5  # the kills are many, and their test is short
    logging.basicConfig(level=logging.INFO)
    store = file_store(folder, clock)
    log = json_log(sys.stderr, clock)
    async with open_broker(folder / "config", env={}, clock=clock, store=store, audit=AuditList(), log=log) as broker:
        broker.scrubber.remember(Secret((folder / "config" / "leaked").read_text()))
        orchestrator = Orchestrator(broker, plans_from(broker), folder / "workspaces", user=USER)
        print("up", flush=True)
        await orchestrator.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
