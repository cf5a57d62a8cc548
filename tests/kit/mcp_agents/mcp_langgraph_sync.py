"""The same agent of LangChain, whose graph is called without await and whose checkpointer has no await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from mcp_langgraph import asked, config_of, deliver, event, made
from mcp_program import Asks, main, say

from oauthbroker import Broker, Turn
from oauthbroker.integrations import resume_langgraph


@asynccontextmanager
async def serve(broker: Broker, folder: Path, url: str, streamed: bool) -> AsyncIterator[Asks]:
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        agent = made(broker, folder, url, saver)
        stream = event if streamed else None
        async with resume_langgraph(broker, "planner", agent, deliver=deliver, stream=stream, synchronous=True):

            async def ask(turn: Turn, question: str) -> None:
                await deliver(turn, await asyncio.to_thread(called, turn, question))

            def called(turn: Turn, question: str) -> Any:
                config, given = config_of(turn, question), asked(question)
                if not streamed:
                    return agent.invoke(given, config, context=turn)
                result: dict[str, Any] = {}
                for mode, chunk in agent.stream(given, config, context=turn, stream_mode=["updates", "values"]):
                    say(user=turn.instance_key, event=mode)
                    result |= chunk if mode == "values" or "__interrupt__" in chunk else {}
                return result

            yield ask


if __name__ == "__main__":
    main(serve)
