"""The same agent without a framework: `pause` and `resume`, as other adapters use them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
from program import AGENT, address_of, main, named, say

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, Broker, Turn
from oauthbroker.integrations import PausedRun, PauseEnd, consent_for, pause, resume


async def call_api(broker: Broker, turn: Turn, tool: str) -> str:
    """Send a tool's request. The broker adds the token, which the tool never holds."""
    try:
        async with broker.oauth(turn, f"Tool/{tool}").client(f"OAuthApp/{tool}") as http:
            found = await http.get(address_of(tool, turn))
    except httpx2.TransportError as error:
        return f"The {tool} could not be reached ({type(error).__name__}). Ask again later."
    return found.text if found.is_success else f"The {tool} answered with status {found.status_code}. Ask again later."


async def answer(broker: Broker, turn: Turn, question: str) -> None:
    """Call the tools that the question names, and say their results; or pause, which keeps the question."""
    needs = [await consent_for(broker, turn, tool) for tool in named(question)]
    asked = {each.auth_session_id: each for each in needs if isinstance(each, AuthorizationRequired)}
    shown = [await pause(broker, turn, each, run="answer", state=question) for each in asked.values()]
    if shown:
        say(paused=shown)
        return
    try:
        results = [
            need or await call_api(broker, turn, tool) for tool, need in zip(named(question), needs, strict=True)
        ]
    except AuthorizationRequiredError as ended:  # the provider refused the token: ask again
        say(paused=[await pause(broker, turn, ended.result, run="answer", state=question)])
        return
    say(answer=" ".join(map(str, results)))


async def serve(broker: Broker, _folder: Path, turn: Turn, question: str) -> None:
    async def go_on(run: PausedRun, _end: PauseEnd) -> None:
        await answer(broker, run.turn, run.state)

    async with resume(broker, AGENT, go_on):
        if question:
            await answer(broker, turn, question)
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(serve)
