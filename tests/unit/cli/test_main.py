"""`python -m oauthbroker` is the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oauthbroker import BrokerError, Code, __version__, cli
from tests.kit.cli import REPOSITORY, command, environment


@pytest.mark.parametrize("words", [("--help",), ("check", "nowhere"), ("no-such-command",)])
def test_the_module_is_the_command(tmp_path: Path, words: tuple[str, ...]):
    """The same words and the same status; and it calls itself `oauthbroker`, however it was started."""
    done = subprocess.run(
        [sys.executable, "-m", "oauthbroker", *words], check=False, cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    script = command(*words, cwd=tmp_path)
    assert (script.code, script.out, script.err) == (done.returncode, done.stdout, done.stderr)
    assert "__main__" not in done.stdout + done.stderr
    assert (words == ("--help",)) is (done.returncode == 0)
    assert all(name in done.stdout for name in cli.COMMANDS) is (done.returncode == 0)


@pytest.mark.parametrize("words", [("--version",), ("--version", "serve")])
def test_the_version_is_told(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert 0 == cli.run(list(words))
    assert f"oauthbroker {__version__}\n" == capsys.readouterr().out


@pytest.mark.parametrize(("others", "status"), [([], 2), ([ValueError()], 1)])
def test_the_refusal_of_one_task_among_several_is_a_refusal(
    others: list[Exception], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refused(*_: object, **__: object) -> None:
        inner = ExceptionGroup("", [BrokerError(Code.REQUEST_INVALID, note="the port is taken"), *others])
        raise ExceptionGroup("", [inner])

    monkeypatch.setattr(cli, "app", refused)
    assert status == cli.run(["version"])
    assert ("requestInvalid: the port is taken\n" == capsys.readouterr().err) is not bool(others)


BIG = """
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace
from oauthbroker import cli
from oauthbroker.cli.grants import commands, reading
from tests.unit.cli.test_grant_reading import Grants

@asynccontextmanager
async def vault(_):
    found = Grants()
    grant = SimpleNamespace(to_json=lambda: {"grantId": "x" * 100})
    async def summary(key):
        return grant
    found.summary = summary
    yield SimpleNamespace(grants=found)

reading.vault_of, commands._row = vault, lambda _: commands.HEAD
cli.main()
"""


LONG, SHORT = ("grants", "list", "-n", "5000", "--json"), ("grants", "list", "-n", "1")


@pytest.mark.parametrize("words", [LONG, SHORT, ("grants", "show", "abc", "--json")])
def test_a_reader_that_closes_stdout_ends_a_command_without_a_traceback(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As with `| head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", BIG, *words], check=False, cwd=REPOSITORY, env=environment(), stdout=closed,
            stderr=subprocess.PIPE, text=True, timeout=30, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert (1, False, False) == (done.returncode, "Traceback" in done.stderr, "Broken" in done.stderr), done.stderr
