"""A broker process that polls for device codes on real time, driven by a test: orders are lines of JSON.

`{"do": "ask"}` asks for a token and answers with what a tool is told; `{"do": "wait", "for": ID}` waits until that session
has ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from oauthbroker import open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import BASE, device_app, file_store, turn
from tests.story.callback_worker import Elsewhere


async def obey(broker: Broker, orders: dict[str, Any]) -> dict[str, Any]:
    if orders["do"] == "wait":
        found = await broker.wait(orders["for"], timeout=20)
        return {"status": found.status}
    return await broker.oauth(turn()).getAccessToken({"oauthAppRef": "OAuthApp/tv"})


async def main() -> None:
    orders = json.loads(sys.stdin.readline())
    elsewhere = cast("IdentityProvider", Elsewhere(orders["endpoints"], orders["secret"]))
    limits = Limits(sweep_seconds=0.5, provider_seconds=2.0)
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), limits=limits)
    clock = SystemClock()
    store = file_store(Path(orders["folder"]), clock)
    bundle = Bundle(settings, {"tv": device_app(elsewhere)})
    async with open_broker(bundle, env={}, clock=clock, store=store, audit=AuditList()) as broker:
        answer: dict[str, Any] = {"status": "here"}
        while True:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line:
                return
            answer = await obey(broker, json.loads(line))


if __name__ == "__main__":
    asyncio.run(main())
