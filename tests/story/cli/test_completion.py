"""`oauthbroker completion`: what bash completes, and what each shell is offered."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oauthbroker.cli import COMMANDS
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import MAIN, REPOSITORY, Desk, environment
from tests.kit.plugins_installed import SAMPLE, distribution

ASK = """
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_oauthbroker_completion oauthbroker
printf '%s\\n' "${COMPREPLY[@]}"
"""


METER = """apiVersion: agents.example.io/v1alpha1
kind: CredentialApp
metadata: {name: meter}
spec:
  subjectMode: user
  fields: {apiKey: {title: API key}}
  inject: {bearer: "{apiKey}"}
  api: {hosts: [api.meter.example]}
  verify: {path: /me, account: "meter:user:{id}"}
"""


@pytest.fixture
def path(desk: Desk) -> str:
    """Return a PATH with the command and its completion script."""
    script = desk.folder / "bin" / "oauthbroker"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nimport sys; sys.argv[0] = 'oauthbroker'; {MAIN}\n")
    script.chmod(0o755)
    (script.parent / "completion.bash").write_text(desk.type("completion", "bash").out)
    return f"{script.parent}:{environment()['PATH']}"


def completed(path: str, folder: Path, *words: str, **env: str) -> set[str]:
    """Return what bash offers for the last word."""
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", path.partition(":")[0] + "/completion.bash", "oauthbroker", *words],
        check=False, cwd=folder,
        env=environment(PATH=path, **env), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    return set(done.stdout.split())


@pytest.fixture
def offered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Return a function that sends the request of bash's script in this process and returns the offered words."""

    def ask(*words: str) -> set[str]:
        with monkeypatch.context() as shell:
            shell.setenv("_OAUTHBROKER_COMPLETE", "complete_bash")
            shell.setenv("COMP_WORDS", " ".join(["oauthbroker", *words]))
            shell.setenv("COMP_CWORD", str(len(words)))
            done = desk.type()
        assert (0, "") == (done.code, done.err)
        return set(done.out.split())

    return ask


@pytest.mark.slow
def test_bash_completes_commands_options_and_apps(desk: Desk, idp: IdentityProvider, path: str):
    desk.serve_app_of(idp)
    assert {*COMMANDS, "flow", "gateway", "mcp", "tools"} == completed(
        path, desk.folder, ""
    )  # the plug-ins of this package come along
    assert {"--dry-run"} == completed(path, desk.folder, "grants", "revoke", "--d")
    assert {"mail"} == completed(path, desk.folder, "grants", "list", "--app", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gra",), ("grants",)),
        (("grants", "rev"), ("revoke",)),
        (("flow", "ru"), ("run", "runs")),
        (("grants", "list", "--app", "x"), ()),
        (("grants", "list", "--app", "OAuth"), ()),
        (("grants", "list", "--app", "OAuthApp/m"), ("OAuthApp/mail",)),
        (("grants", "list", "--app", "CredentialApp/"), ("CredentialApp/meter",)),
        (("grants", "list", "--app", "m"), ("mail", "meter")),
        (("secrets", "set", ""), ("mail",)),
        (("secrets", "set", "mail", ""), ("client_secret",)),
        (("providers", "show", "sl"), ("slack",)),
        (("completion", ""), ("bash", "zsh", "fish")),
        (("api-keys", "create", "--role", "o"), ("operator",)),
    ],
    ids=" ".join,
)
def test_a_shell_is_offered_commands_apps_secrets_and_presets(
    desk: Desk,
    idp: IdentityProvider,
    offered: Callable[..., set[str]],
    words: tuple[str, ...],
    expected: tuple[str, ...],
):
    desk.serve_app_of(idp)
    desk.write("meter", METER)
    assert set(expected) == offered(*words)


def test_the_configuration_that_is_named_is_the_one_that_is_read(
    desk: Desk, idp: IdentityProvider, offered: Callable[..., set[str]]
):
    desk.serve_app_of(idp)
    (desk.folder / "config").rename(desk.folder / "elsewhere")
    assert set() == offered("grants", "list", "--app", "")
    assert {"mail"} == offered("grants", "list", "--config", "elsewhere", "--app", "")


def test_a_configuration_that_is_broken_completes_nothing_and_says_nothing(
    desk: Desk, offered: Callable[..., set[str]]
):
    desk.write("mail", "kind: [")
    assert set() == offered("grants", "list", "--app", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(desk: Desk, shell: str):
    done = desk.type("completion", shell)
    assert (0, "") == (done.code, done.err)
    assert f"_OAUTHBROKER_COMPLETE=complete_{shell}" in done.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.out, text=True, check=True, timeout=120)
    said = json.loads(desk.type("completion", shell, "--json").out)
    assert {"shell": shell, "script": done.out.rstrip("\n")} == said


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_the_same_words(desk: Desk, monkeypatch: pytest.MonkeyPatch, shell: str):
    monkeypatch.setenv("_OAUTHBROKER_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "oauthbroker grants rev")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    done = desk.type()
    assert "revoke" in done.out
    assert "list" not in done.out.split()


def test_an_unknown_shell_is_refused(desk: Desk):
    assert 2 == desk.type("completion", "tcsh").code


@pytest.mark.slow
def test_bash_completes_the_commands_of_installed_plugins_and_says_nothing_of_broken_ones(tmp_path: Path, path: str):
    site = distribution(tmp_path / "site", "other-plugin", {"other": "other:PLUGIN"}, other="raise RuntimeError")
    more = {"PYTHONPATH": ":".join(map(str, (REPOSITORY, SAMPLE, site)))}
    assert {*COMMANDS, "flow", "gateway", "mcp", "notebooks", "tools"} == completed(path, tmp_path, "", **more)
    assert {"list"} == completed(path, tmp_path, "notebooks", "", **more)
