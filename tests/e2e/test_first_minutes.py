"""The first minutes of a person with `oauthbroker login`: the commands, the browser, and a program's first answer.

`make first-minutes` goes the same ways from an empty environment, and measures them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser

from oauthbroker.testing import Canaries
from tests.e2e.first_minutes import Machine, Walk, walk
from tests.e2e.first_ways import ways
from tests.kit.cli import MAIN, environment, free_port
from tests.story.keys_kit import GOOD

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

SHOWN = {
    "browser login": ["Its callback is", "Opening your browser ... or open http://127.0.0.1:", "Connected as oidc:user:U234567, scope read. "],
    "device flow": ["and type ", "Connected as alice (github:user:1001), scope repo. It has no end of its own."],
    "key": ["Connected as meter:user:U234567. The key is sealed here; Meter accepted it."],
    "MCP server": ["Opening your browser ... or open http://127.0.0.1:", "Connected, scope read offline_access. mcp does not say whose account it is. The broker refreshes it."],
}  # fmt: skip
ANSWERED = {
    "browser login": "Good morning, Alice.",
    "device flow": "Good morning, Alice.",
    "key": '{"id": "U234567"}',
    "MCP server": '"result": {"tools": []}',
}
ASKED = {"browser login": 4, "device flow": 3, "key": 1, "MCP server": 0}


@pytest.mark.parametrize("title", SHOWN)
async def test_one_command_after_the_installation_leads_to_the_first_answer(
    title: str, tmp_path: Path, canaries: Canaries, chromium: Browser
) -> None:
    port = free_port()
    canaries.add(GOOD, "key")
    async with ways(canaries, port) as found:
        assert set(SHOWN) == {each.title for each in found}
        way = next(each for each in found if each.title == title)
        machine = Machine(
            home=tmp_path, oauthbroker=[sys.executable, "-c", MAIN], python=sys.executable, env=environment(), port=port
        )
        walked = await walk(machine, way, chromium, canaries)
    canaries.excuse(machine.opened, *tmp_path.rglob("*.kek"))
    assert_reached(walked)
    canaries.look(walked.transcript, "the terminal", allow=("ticket", "user code"))  # what a login prints


def assert_reached(walked: Walk) -> None:
    """The API has answered after one command, which asked as often as it should and printed these texts."""
    title = walked.way.title
    assert [f"oauthbroker login {walked.way.login[0]}"] == [each.removesuffix(" --device") for each in walked.commands]
    assert ASKED[title] == len(walked.way.answers)
    assert [] == [text for text in SHOWN[title] if text not in walked.transcript], walked.transcript
    assert ANSWERED[title] in walked.answer
