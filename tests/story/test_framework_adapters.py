"""The example agent of each framework pauses for consent, is killed, and goes on in another process, once."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired
from oauthbroker.integrations import consent_for
from oauthbroker.testing import Browser, Canaries, IdentityProvider, connect_through
from oauthbroker.testing.canary import MARK
from tests.kit.cli import environment
from tests.kit.docs import code_blocks, page_text
from tests.kit.framework_agents import EXAMPLES, PLAIN, Agents, python_of
from tests.kit.running_broker import BASE

sys.path.append(str(EXAMPLES))
from surroundings import prepare

pytestmark = pytest.mark.slow
FRAMEWORKS = [PLAIN, "langgraph", "pydantic-ai", "openai-agents", "google-adk"]
MAIL, FILES = "Good morning, Alice.", "alice"
DENIED = "Access was not granted"


@pytest.fixture(params=FRAMEWORKS)
async def agents(
    request: Any, tmp_path: Path, identity_provider: IdentityProvider, canaries: Canaries
) -> AsyncIterator[Agents]:
    python_of(request.param)
    canaries.excuse(*(tmp_path / f"checkpoints.sqlite{end}" for end in ("", "-wal", "-shm")))  # `leaks` looks into them
    found = Agents(prepare(tmp_path, identity_provider, BASE, lease_seconds=2), identity_provider, request.param)
    yield found
    for process in found.running:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def quiet(agents: Agents) -> None:
    """Assert that nothing is left for an agent: no paused run, no event, no dead letter. Then end it."""
    async with agents.broker(background=False) as broker:
        async with asyncio.timeout(60):
            while [each async for each in broker.plugin_state("integrations").all()]:
                await asyncio.sleep(0.05)
            while any(state.waiting or state.leased for state in await broker.dead_letters.states()):
                await asyncio.sleep(0.05)
        assert [] == await broker.events.dead("planner")
    await agents.kill()
    assert [] == list(agents.leaks(Canaries.active()))


@pytest.mark.case("140", "141")
async def test_a_paused_run_is_resumed_once_after_its_process_was_killed(agents):
    await agents.start("Is there anything new in my mail ?")
    (pause,) = (await agents.line())["paused"]
    assert {"authorizationUrl", "message", "sessionId"} == set(pause)
    await agents.kill()
    await agents.consent(pause)
    assert 0 == agents.idp.count("resource")
    await agents.start()
    assert MAIL in (await agents.line())["answer"]
    await quiet(agents)
    assert 2 == len(agents.said)
    assert 1 == agents.idp.count("resource")


@pytest.mark.sample(1)
@pytest.mark.case("142")
async def test_parallel_calls_of_two_apps_ask_once_for_each(agents):
    await agents.start("mail mail files files")
    pauses = (await agents.line())["paused"]
    assert 2 == len(pauses)
    for pause in pauses:
        await agents.consent(pause)
    last = await agents.line()
    while "paused" in last:
        last = await agents.line()
    assert (2, 2) == (last["answer"].count(MAIL), last["answer"].count(f'"{FILES}"'))
    await quiet(agents)
    assert 1 == sum("answer" in line for line in agents.said)
    assert 2 == agents.idp.count("authorize")


@pytest.mark.sample(1)
@pytest.mark.case("142")
async def test_a_run_that_needs_two_consents_pauses_again_after_the_first(agents):
    await agents.start("mail mail files files")
    first, second = (await agents.line())["paused"]
    await agents.consent(first)
    (left,) = (await agents.line())["paused"]
    assert second["sessionId"] == left["sessionId"]
    await agents.consent(second)
    answer = (await agents.line())["answer"]
    assert (2, 2) == (answer.count(MAIL), answer.count(f'"{FILES}"'))
    assert 2 == agents.idp.count("authorize")


@pytest.mark.sample(1)
@pytest.mark.case("143")
async def test_a_denied_consent_ends_the_pause_with_a_sentence_and_no_new_link(agents):
    await agents.start("mail mail")
    (pause,) = (await agents.line())["paused"]
    await agents.consent(pause, deny=True)
    answer = (await agents.line())["answer"]
    assert 2 == answer.count(DENIED)
    await quiet(agents)
    async with agents.broker(background=False) as broker:
        assert [] == list(await broker.sessions.list(status="pending"))


@pytest.mark.sample(1)
@pytest.mark.case("140", "141")
async def test_a_run_whose_process_is_killed_while_it_goes_on_goes_on_again(agents):
    await agents.start("mail")
    (pause,) = (await agents.line())["paused"]
    hold = agents.idp.script.resource.hang()
    await agents.consent(pause)
    await hold.arrived(60)
    await agents.kill()
    assert [] == list(agents.leaks(Canaries.active())), "the tool has sent the token"
    hold.release()
    await agents.start()
    assert MAIL in (await agents.line())["answer"]
    await quiet(agents)
    assert 1 == sum("answer" in line for line in agents.said)


@pytest.mark.parametrize("agents", ["langgraph", "pydantic-ai"], indirect=True)
async def test_a_token_that_the_provider_refuses_pauses_the_run_in_the_middle_of_its_tool(agents):
    async with agents.broker(background=False) as broker:
        asked = await consent_for(broker, agents.turn, "mail")
        assert isinstance(asked, AuthorizationRequired)
        await connect_through(Browser(apps={BASE: broker.asgi.app}), agents.idp, asked.authorization_url, "alice")
    agents.idp.revoke_all("demo")
    await agents.start("mail mail")
    (pause,) = (await agents.line())["paused"]
    await agents.consent(pause)
    assert 2 == (await agents.line())["answer"].count(MAIL)
    await quiet(agents)


@pytest.mark.parametrize("framework", [each for each in FRAMEWORKS if each != PLAIN])
def test_the_first_example_of_a_page_is_code_of_the_agent_that_the_tests_run(framework):
    _imports, block = code_blocks(f"docs/integrations/{framework}.md")[0].split(
        'MAIL = "https://mail.example.com/inbox"\n'
    )
    code = re.sub(
        r'address_of\("mail", [^)]+\)', "MAIL", page_text(f"examples/frameworks/{framework.replace('-', '_')}_agent.py")
    )
    lines = {line.strip() for line in code.splitlines()}
    assert [] == [line for line in map(str.strip, block.splitlines()) if line not in lines]
    assert 15 > sum(bool(line.strip()) for line in block.splitlines())


def test_the_demo_of_the_examples_tells_the_story():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", PLAIN, "--auto"],
        check=False, env=environment(), text=True, capture_output=True, timeout=180,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    reported = [done.stdout.index(words) for words in ("anything new", "/connect/", "is killed", MAIL)]
    assert sorted(reported) == reported
    assert MARK not in done.stdout + done.stderr
