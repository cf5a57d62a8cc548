"""Another broker process on the same files: it calls the tool of an MCP server once, and prints the result."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.testing import TestClock
from tests.kit.running_broker import BASE, file_store
from tests.story.mcp_apps_kit import app_at, call_tool


async def work(folder: str, url: str, now: str) -> None:
    clock = TestClock(datetime.fromisoformat(now))
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}))
    bundle, store = Bundle(settings, {"tickets": app_at(url)}), file_store(Path(folder), clock)
    async with open_broker(bundle, env={}, clock=clock, store=store, audit=AuditList(), background=False) as broker:
        sys.stdout.write(await call_tool(broker, url))


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
