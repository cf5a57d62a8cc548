"""`demo.py FRAMEWORK`: an agent asks for consent, is killed, and goes on after the user has agreed. `--auto` agrees."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from program import QuietLog
from surroundings import prepare

from oauthbroker import open_broker
from oauthbroker.testing import Browser, IdentityProvider, connect_through

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
QUESTION = "Is there anything new in my mail ?"
MOST_LINKS = 3
Process = asyncio.subprocess.Process


def python_of(framework: str) -> str:
    """Return the interpreter of a framework's environment, which `make frameworks` makes."""
    own = ROOT / f".venv-{framework}" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


async def started(framework: str, config: Path, *question: str) -> Process:
    program = str(HERE / f"{framework.replace('-', '_')}_agent.py")
    words = (python_of(framework), program, str(config), *question)
    return await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)


async def line_of(agent: Process) -> dict[str, Any]:
    if agent.stdout is None or not (text := await agent.stdout.readline()):
        raise SystemExit("The agent ended. Is its framework installed? make frameworks")
    line: dict[str, Any] = json.loads(text)
    return line


async def play(framework: str, config: Path, provider: IdentityProvider, *, auto: bool) -> None:
    agent = await started(framework, config, QUESTION)
    print("you  ", QUESTION)
    (pause,) = (await line_of(agent))["paused"]
    print("agent", pause["message"], pause["authorizationUrl"])
    agent.kill()
    await agent.wait()
    print("       the agent's process is killed, and another one starts")
    agent = await started(framework, config)
    try:
        for _ in range(MOST_LINKS):
            if auto:
                await connect_through(Browser(), provider, pause["authorizationUrl"], "alice")
            line = await line_of(agent)
            if "answer" in line:
                print("agent", line["answer"] or "The API answered nothing.")
                return
            pause = line["paused"][0]  # the provider has ended the connection meanwhile
            print("agent", pause["message"], pause["authorizationUrl"])
        raise SystemExit("The provider ends each connection at once. Run the demo again.")
    finally:
        agent.kill()
        await agent.wait()


async def main(framework: str, *, auto: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        TemporaryDirectory(prefix="frameworks-") as folder,
        IdentityProvider() as provider,
    ):
        config = prepare(Path(folder), provider, f"http://127.0.0.1:{port}")
        async with open_broker(config, env={}, log=QuietLog()) as broker, broker.serving(port=port):
            await play(framework, config, provider, auto=auto)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["plain", "langgraph", "pydantic-ai", "openai-agents", "google-adk"])
    parser.add_argument("--auto", action="store_true", help="Play the user, too.")
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(main(given.framework, auto=given.auto))
