"""`python -m oauthbroker.testing.provider`: the provider beside a program in any language."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

ROOT = Path(__file__).parents[3]


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-m", "oauthbroker.testing.provider", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def test_it_says_where_it_is_and_ends_with_its_parent():
    options = ("--client-id", "bot", "--redirect-uri", "http://127.0.0.1:9/cb", "--auto-consent", "bob")
    with running(*options, "--until-stdin-ends") as (process, said):
        metadata = httpx2.get(said["issuer"] + "/.well-known/openid-configuration", trust_env=False).json()
        assert (said["issuer"], said["endpoints"]["tokenUrl"]) == (metadata["issuer"], metadata["token_endpoint"])
        assert ("bot", ["alice", "bob", "mallory"]) == (said["clientId"], [*said["accounts"]])
        assert {"sub": "U234567", "team": "T111"} == said["accounts"]["alice"]
        form = {"grant_type": "client_credentials"}
        credentials = httpx2.BasicAuth("bot", said["clientSecret"])
        answer = httpx2.post(metadata["token_endpoint"], data=form, auth=credentials, trust_env=False)
        assert 200 == answer.status_code
        assert process.stdin is not None
        process.stdin.close()
        assert 0 == process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(number: signal.Signals):
    with running("--client-secret", "chosen-by-the-caller", "--dialect", "slack") as (process, said):
        assert "chosen-by-the-caller" == said["clientSecret"]
        process.send_signal(number)
        assert 0 == process.wait(60)
