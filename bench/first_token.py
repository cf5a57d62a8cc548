"""An embedding program: python -m bench.first_token <folder> opens the broker, takes one token, and says its memory."""

from __future__ import annotations

import asyncio
import sys

from oauthbroker import Turn, TurnAuth, open_broker

IDLE_SECONDS = 1.0


async def main(folder: str) -> None:
    async with open_broker(f"{folder}/config", env={}) as broker:
        turn = Turn("planner", "thread", auth=TurnAuth(subjects={"user": "idp:user:U1"}))
        found = await broker.oauth(turn).get_access_token("mail")
        assert found.status == "ready", found
        print("token", flush=True)
        await asyncio.sleep(IDLE_SECONDS)
        from bench.answering import memory_mib  # the figure comes without the cost of its own imports

        print(memory_mib(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
