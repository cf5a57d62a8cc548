"""The parts that the example agents share: the configuration, the user's turn, and the lines for the host."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from oauthbroker import Broker, Turn, TurnAuth, open_broker

AGENT, THREAD = "planner", "thread-1"
TOOLS = ("mail", "files")
Serves = Callable[[Broker, Path, Turn, str], Awaitable[None]]


class QuietLog:
    """The broker's log: errors alone."""

    def bind(self, **_fields: Any) -> QuietLog:
        return self

    def info(self, event: str, **_fields: Any) -> None: ...

    def warning(self, event: str, **_fields: Any) -> None: ...

    def error(self, event: str, **fields: Any) -> None:
        logging.getLogger("broker").error("%s %s", event, fields)


def address_of(tool: str, turn: Turn) -> str:
    """Return the address of a tool's API. An agent of yours has it in its configuration."""
    return str(json.loads(turn.origin["places"])[tool])


def named(question: str) -> list[str]:
    """Return the tools that a question names, in its order: the plan of a scripted model."""
    return [word for word in question.lower().replace("?", " ").split() if word in TOOLS]


def say(**line: Any) -> None:
    """Tell the host: one line of JSON."""
    print(json.dumps(line), flush=True)


def main(serve: Serves) -> None:
    """Run an agent on a configuration until it is killed, or until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Run an agent. demo.py makes its configuration.")
    parser.add_argument("config", type=Path, help="The folder of the configuration.")
    parser.add_argument("question", nargs="*", default=[], help="The user's question; without it, paused runs go on.")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    config, question = given.config, " ".join(given.question)

    async def run() -> None:
        async with open_broker(config, env={}, log=QuietLog()) as broker:
            origin = json.loads((config / "origin.json").read_text("utf-8"))
            auth = TurnAuth(subjects={"user": origin["user"]})
            turn = Turn(agent_name=AGENT, instance_key=THREAD, origin=origin, auth=auth)
            await serve(broker, config.parent, turn, question)

    with suppress(KeyboardInterrupt):
        asyncio.run(run())
