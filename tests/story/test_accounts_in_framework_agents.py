"""The example agent of each framework with two accounts of one user: by default, and named by its tools."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.framework_agents import EXAMPLES, PLAIN, Agents, python_of
from tests.kit.running_broker import BASE

sys.path.append(str(EXAMPLES))
from surroundings import prepare

pytestmark = pytest.mark.slow
PAUSES_IN_A_TOOL = ["langgraph", "pydantic-ai"]
FRAMEWORKS = [PLAIN, *PAUSES_IN_A_TOOL, "openai-agents", "google-adk"]
BOTH = ["work", "private"]
DENIED = "Access was not granted"
Makes = Callable[..., Agents]


def edited(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture
async def made(tmp_path: Path, identity_provider: IdentityProvider, canaries: Canaries) -> AsyncIterator[Makes]:
    """Make the agents of a framework, whose tools `mail` and `files` use the accounts of one app."""
    canaries.excuse(*(tmp_path / f"checkpoints.sqlite{end}" for end in ("", "-wal", "-shm")))
    made: list[Agents] = []

    def make(framework: str, accounts: dict[str, Any], *, named: bool) -> Agents:
        python_of(framework)
        config = prepare(tmp_path, identity_provider, BASE, lease_seconds=2)
        broker, origin = config / "broker.yaml", config / "origin.json"
        several = "  accounts: several\n  owner: {binding: localOperator, identity:"
        broker.write_text(
            edited(
                broker.read_text(),
                ("  owner: {identity:", several),
                ("{oauthAppRef: OAuthApp/files", "{oauthAppRef: OAuthApp/mail"),
            )
        )
        said = json.loads(origin.read_text())
        me = identity_provider.url("/api/me")
        origin.write_text(
            json.dumps(
                {
                    **said,
                    "places": json.dumps({"mail": me, "files": me}),
                    "accounts": json.dumps({"OAuthApp/mail": accounts}),
                }
            )
        )
        programs = tmp_path / "programs"
        programs.mkdir()
        subjects = 'subjects={"user": origin["user"]}'
        program = edited(
            (EXAMPLES / "program.py").read_text(), (subjects, f'{subjects}, accounts=json.loads(origin["accounts"])')
        )
        (programs / "program.py").write_text(program)
        agent = f"{framework.replace('-', '_')}_agent.py"
        text = (EXAMPLES / agent).read_text()
        if named:
            text = edited(
                text, ('"OAuthApp/mail"', '"OAuthApp/mail@work"'), ('"OAuthApp/files"', '"OAuthApp/mail@private"')
            )
        for_model = ("consent_first)\n    async", "consent_first)\n    @errors_for_model\n    async")
        if named and framework == "openai-agents":  # its SDK tells the model nothing of an exception
            text = edited(text, for_model, ("import Broker, Turn", "import Broker, Turn, errors_for_model"))
        (programs / agent).write_text(text)
        agents = Agents(config, identity_provider, framework, programs)
        made.append(agents)
        return agents

    yield make
    for process in (each for agents in made for each in agents.running):
        if process.returncode is None:
            process.kill()
            await process.wait()


async def accounts_of(agents: Agents, pauses: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return the pauses by the account of their sessions."""
    async with agents.broker(background=False) as broker:
        found = [await broker.sessions.find(each["sessionId"]) for each in pauses]
    return {"" if session is None else session.account: each for session, each in zip(found, pauses, strict=True)}


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_tools_that_name_no_account_use_the_default_of_the_turn(made: Makes, framework: str) -> None:
    agents = made(framework, {"allowed": BOTH, "default": "private"}, named=False)
    await agents.start("mail mail")
    pauses = await accounts_of(agents, (await agents.line())["paused"])
    assert ["private"] == list(pauses)
    await agents.consent(pauses["private"], "bob")
    assert 2 == (await agents.line())["answer"].count("bob")


@pytest.mark.parametrize("framework", PAUSES_IN_A_TOOL)
async def test_a_user_who_declines_one_account_connects_the_other(made: Makes, framework: str) -> None:
    agents = made(framework, {"allowed": BOTH}, named=True)
    await agents.start("mail files")
    pauses = await accounts_of(agents, (await agents.line())["paused"])
    assert set(BOTH) == set(pauses)
    await agents.consent(pauses["work"], deny=True)
    assert ["private"] == list(await accounts_of(agents, (await agents.line())["paused"]))
    await agents.consent(pauses["private"], "bob")
    answer = (await agents.line())["answer"]
    assert (1, 1) == (answer.count(DENIED), answer.count("bob"))
    async with agents.broker(background=False) as broker:
        assert [] == list(await broker.sessions.list(status="pending"))


@pytest.mark.parametrize("framework", ["openai-agents", "google-adk"])
async def test_a_tool_that_cannot_pause_gives_the_model_the_link_of_its_account(made: Makes, framework: str) -> None:
    agents = made(framework, {"allowed": BOTH}, named=True)
    await agents.start("mail files")
    answer = (await agents.line())["answer"]
    async with agents.broker(background=False) as broker:
        waiting = await broker.sessions.list(status="pending")
    assert sorted(BOTH) == sorted(each.account for each in waiting)
    assert 2 == answer.count("/connect/")
