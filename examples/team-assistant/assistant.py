"""A whole agent on one machine: `make demo ARGS=--agent`, and with `--auto` the user is played too."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

import uvicorn
from chat import chat_page
from conversation import Conversation
from setting import ErrorLog, Setting, prepared

from oauthbroker import open_broker
from oauthbroker.testing import Browser, connect_through
from oauthbroker.tools import Activation, Orchestrator, plans_from

QUESTION = "Is there anything new?"
PERSON = "alice"
PATIENCE_SECONDS = 120
NOBODY = 65534
LINK = re.compile(r"http://127\.0\.0\.1:\d+/connect/\S+")


@dataclass(frozen=True)
class Running:
    """The agent, as it waits for its user."""

    setting: Setting
    chat: Conversation


@asynccontextmanager
async def running(base_url: str, listener: socket.socket) -> AsyncGenerator[Running, None]:
    """Run the broker, its pages, the chat and the agents' processes."""
    with prepared(base_url) as setting:
        changesets = setting.changesets()
        opened = changesets.newest()
        async with open_broker(opened.folder, env={}, log=ErrorLog()) as broker:
            activation = Activation(broker, changesets, opened)
            workspaces = setting.folder / "workspaces"
            user = NOBODY if os.geteuid() == 0 else None  # agents of a runtime that is root need a user of their own
            plans = plans_from(broker)
            try:
                orchestrator = Orchestrator(
                    broker, plans, workspaces, address=base_url, activation=activation, user=user
                )
            except ValueError as refused:  # this machine cannot run agents apart from the runtime
                raise SystemExit(f"team-assistant: {refused}.") from None
            chat = Conversation(broker, f"demo:user:{setting.provider.account(PERSON).sub}")
            options = uvicorn.Config(chat_page(chat), lifespan="off", log_level="warning", access_log=False)
            server = uvicorn.Server(options)
            pages = asyncio.create_task(server.serve(sockets=[listener]))
            agents = asyncio.create_task(orchestrator.run())
            try:
                yield Running(setting, chat)
            finally:
                agents.cancel()
                with suppress(asyncio.CancelledError):
                    await agents
                server.should_exit = True
                await pages


async def play(run: Running, tell: Callable[..., None]) -> dict[str, str]:
    """Play the user: ask, open the link, agree, and wait. Return the answer of the turn that began by itself, and
    whether the connection was there for it."""
    await run.chat.say(QUESTION)
    tell("you       ", QUESTION)
    asked = await run.chat.answer(1)
    tell("assistant ", asked)
    link = LINK.search(asked)
    if link is None:
        raise SystemExit("The assistant showed no link.")
    page = await connect_through(Browser(), run.setting.provider, link[0], PERSON)
    tell("you        open the link and agree: status", page.status)
    answer = await run.chat.answer(2)
    tell("assistant ", answer)
    status = "ready" if page.status == HTTPStatus.OK else "failed"
    return {"status": "authorization_required" if LINK.search(answer) else status, "answer": answer}


def silent(*_words: object) -> None:
    """Print nothing."""


async def main(*, auto: bool, tells: bool, port: int) -> None:
    """Run until the played user has the answer, or until Ctrl-C."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with running(base_url, listener) as run:
            if not auto:
                print(f"Open {base_url}/chat and ask: {QUESTION}\nCtrl-C ends the demo.", flush=True)
                await asyncio.Event().wait()
            async with asyncio.timeout(PATIENCE_SECONDS):
                ended = await play(run, print if tells else silent)
    print(json.dumps(ended, ensure_ascii=False))
    if ended["status"] != "ready":
        raise SystemExit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser(prog="team-assistant", description=__doc__)
    parser.add_argument("--auto", action="store_true", help="Play the user too, and print one line of JSON.")
    parser.add_argument("--tell", action="store_true", help="With --auto, print the conversation before the JSON.")
    parser.add_argument("--port", type=int, default=0, help="Where the chat listens; 0 takes a free one.")
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(main(auto=given.auto, tells=given.tell, port=given.port))
