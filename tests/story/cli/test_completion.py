"""`oauthbroker completion`: bash itself is asked what it would complete."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oauthbroker.cli import COMMANDS
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import MAIN, REPOSITORY, Desk, command, environment
from tests.kit.rooms_installed import SAMPLE, distribution

pytestmark = pytest.mark.slow

ASK = """
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_oauthbroker_completion oauthbroker
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which the command lies."""
    script = tmp_path / "bin" / "oauthbroker"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nimport sys; sys.argv[0] = 'oauthbroker'; {MAIN}\n")
    script.chmod(0o755)
    path = f"{script.parent}:{environment()['PATH']}"
    (script.parent / "completion.bash").write_text(command("completion", "bash", cwd=tmp_path).out)
    return path


def completed(path: str, folder: Path, *words: str, **env: str) -> set[str]:
    """What bash offers once the last word is begun."""
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", path.partition(":")[0] + "/completion.bash", "oauthbroker", *words],
        check=False, cwd=folder,
        env=environment(PATH=path, **env), capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    return set(done.stdout.split())


def test_bash_completes_commands_options_apps_secrets_and_presets(desk: Desk, idp: IdentityProvider, path: str):
    desk.serve_app_of(idp)
    folder = desk.folder
    assert {*COMMANDS, "actions"} == completed(path, folder, "")  # the gateway's room comes along
    assert {"grants"} == completed(path, folder, "gra")
    assert {"revoke"} == completed(path, folder, "grants", "rev")
    assert {"--dry-run"} == completed(path, folder, "grants", "revoke", "--d")
    assert {"mail"} == completed(path, folder, "grants", "list", "--app", "")
    assert set() == completed(path, folder, "grants", "list", "--app", "x")
    assert {"mail"} == completed(path, folder, "secrets", "set", "")
    assert {"client_secret"} == completed(path, folder, "secrets", "set", "mail", "")
    assert {"slack"} == completed(path, folder, "providers", "show", "sl")
    assert {"bash", "zsh", "fish"} == completed(path, folder, "completion", "")
    assert {"operator"} == completed(path, folder, "api-keys", "create", "--role", "o")


def test_the_configuration_that_is_named_is_the_one_that_is_read(desk: Desk, idp: IdentityProvider, path: str):
    desk.serve_app_of(idp)
    (desk.folder / "config").rename(desk.folder / "elsewhere")
    assert set() == completed(path, desk.folder, "grants", "list", "--app", "")
    assert {"mail"} == completed(path, desk.folder, "grants", "list", "--config", "elsewhere", "--app", "")


def test_a_configuration_that_is_broken_completes_nothing_and_says_nothing(desk: Desk, path: str):
    desk.write("mail", "kind: [")
    assert set() == completed(path, desk.folder, "grants", "list", "--app", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(tmp_path: Path, shell: str):
    done = command("completion", shell, cwd=tmp_path)
    assert (0, "") == (done.code, done.err)
    assert f"_OAUTHBROKER_COMPLETE=complete_{shell}" in done.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.out, text=True, check=True, timeout=30)
    said = json.loads(command("completion", shell, "--json", cwd=tmp_path).out)
    assert {"shell": shell, "script": done.out.rstrip("\n")} == said


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_the_same_words(tmp_path: Path, shell: str):
    done = command(
        cwd=tmp_path, _OAUTHBROKER_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_ARGS="oauthbroker grants rev",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )  # fmt: skip
    assert "revoke" in done.out
    assert "list" not in done.out.split()


def test_an_unknown_shell_is_refused(tmp_path: Path):
    assert 2 == command("completion", "tcsh", cwd=tmp_path).code


def test_bash_completes_the_commands_of_installed_rooms_and_says_nothing_of_broken_ones(tmp_path: Path, path: str):
    site = distribution(tmp_path / "site", "other-room", {"other": "other:ROOM"}, other="raise RuntimeError")
    more = {"PYTHONPATH": ":".join(map(str, (REPOSITORY, SAMPLE, site)))}
    assert {*COMMANDS, "actions", "notebooks"} == completed(path, tmp_path, "", **more)
    assert {"list"} == completed(path, tmp_path, "notebooks", "", **more)
