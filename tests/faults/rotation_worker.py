"""A broker process that asks for tokens until its stdin ends; each call's outcome is counted, in one line at the end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

from oauthbroker import Ready, open_broker
from oauthbroker.model.token_results import Failed
from tests.kit.running_broker import turn


async def main(subject: str) -> None:
    reported, tokens, over = Counter[str](), set[str](), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    async with open_broker("config") as broker:
        print("up", flush=True)
        oauth = broker.oauth(turn(user=subject))
        while not over.is_set():
            result = await oauth.get_access_token("mail", min_ttl_seconds=0)
            if isinstance(result, Ready):
                reported["degraded" if result.degraded else "ready"] += 1
                tokens.add(result.access_token.reveal()[-12:])
            else:
                reported[result.code.value if isinstance(result, Failed) else result.status] += 1
            await asyncio.sleep(0.01)
    print(json.dumps({"told": reported, "tokens": sorted(tokens)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
