"""What the agents share: the plan of their scripted models, and lines of JSON from and to the test."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from oauthbroker import Broker, Turn, TurnAuth, open_broker

SERVER = "tickets"
Asks = Callable[[Turn, str], Awaitable[None]]
Serves = Callable[[Broker, Path, str, bool], AbstractAsyncContextManager[Asks]]


def planned(question: str, listed: Iterable[str], results: list[str]) -> str | None:
    """Return the tool to call next: the question names one for each step. While it is not listed, the one that connects.
    None when all steps are done."""
    steps = question.split()
    if len(results) >= len(steps):
        return None
    endings = (steps[len(results)], "oauthbroker_connect")
    names = list(listed)
    return next((name for end in endings for name in names if name.endswith(end)), "nothing")


def arguments(name: str | None) -> dict[str, str]:
    """Return the arguments of a call, which the server repeats."""
    return {"word": "!"} if str(name).endswith("whose") else {}


def say(**line: Any) -> None:
    """Tell the test: one line of JSON."""
    print(json.dumps(line), flush=True)


def main(serve: Serves) -> None:
    """Run an agent until it is killed. Each line of the input has a user, a conversation and a question."""
    logging.basicConfig(level=logging.ERROR)
    config, url, streamed = Path(sys.argv[1]), sys.argv[2], "--streamed" in sys.argv

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with open_broker(config, env={}) as broker, serve(broker, config.parent, url, streamed) as ask:
            say(ready=True)
            async with asyncio.TaskGroup() as group:
                while line := await loop.run_in_executor(None, sys.stdin.readline):
                    asked = json.loads(line)
                    auth = TurnAuth(subjects={"user": asked["subject"]})
                    turn = Turn("planner", asked["conversation"], origin={"user": asked["user"]}, auth=auth)
                    group.create_task(_answered(ask, turn, asked["question"]))
                await asyncio.Event().wait()

    asyncio.run(run())


async def _answered(ask: Asks, turn: Turn, question: str) -> None:
    try:
        await ask(turn, question)
    except Exception:  # noqa: BLE001  (the test shows it)
        traceback.print_exc()
        os._exit(1)
