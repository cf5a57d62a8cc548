"""The example of a whole agent, as a reader of its page starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oauthbroker.testing.canary import MARK
from tests.kit.cli import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = "examples/team-assistant/assistant.py"
ANSWER = "You have 3 messages: Good morning, Alice. The build is green. Lunch at noon?"


@pytest.mark.parametrize("more", [[], ["--tell"]])
def test_auto_asks_consents_and_is_answered_by_a_turn_that_began_by_itself(more):
    done = subprocess.run(
        [sys.executable, PROGRAM, "--auto", *more],
        check=False,
        cwd=ROOT,
        env=environment(),
        text=True,
        capture_output=True,
        timeout=180,
    )
    assert 0 == done.returncode, done.stderr
    assert not done.stderr
    *conversation, line = done.stdout.splitlines()
    assert {"status": "ready", "answer": ANSWER} == json.loads(line)
    reported = ["you        Is there", "/connect/", "open the link and agree: status 200", ANSWER] if more else []
    assert [True] * len(reported) == [word in said for word, said in zip(reported, conversation, strict=True)]
    assert MARK not in done.stdout + done.stderr, "no token and no secret is shown"
