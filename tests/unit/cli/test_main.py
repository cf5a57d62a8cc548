"""`python -m oauthbroker` is the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oauthbroker import __version__, cli
from tests.kit.cli import command, environment


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
