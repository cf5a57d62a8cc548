"""docs/testing.md and the reference name everything that can be used, and the examples of the page run."""

from __future__ import annotations

import argparse
import ast
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import testing
from oauthbroker.testing import (
    Account,
    Authority,
    Browser,
    Canaries,
    Client,
    IdentityProvider,
    Page,
    SeenRequest,
    TestClock,
)
from oauthbroker.testing import pytest_plugin as plugin
from oauthbroker.testing.cookies import CookieJar
from oauthbroker.testing.provider import __main__ as command
from oauthbroker.testing.provider.history import DeviceStory, Family, Refusal, Revocation, TokenResponse
from oauthbroker.testing.provider.script import AuthorizeScript, EndpointScript, Scripts, TokenScript
from tests.kit.cli import environment
from tests.unit.testing.child_pytest import names_with_outcome, run_pytest
from tools.site.reference import python_api

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BACKSTAGE = {"next_step", "changed", "next_id_token", "of", "name"}  # the provider's side of a script
INTERNAL = {
    Canaries: {"active", "notes", "directories", "excused", "outside", "shown"},
    IdentityProvider: {"canaries", "clock"},
    CookieJar: {"all", "take", "header"},
    Browser: {"canaries", "language"},
    Page: {"method"},
    Account: {"display"},
    Family: {"client_id", "login", "scopes"},
    DeviceStory: {"client_id", "user_code", "scopes", "resources"},
    Client: {"display", "lifetime", "gets_refresh_tokens"},
    TestClock: {"now", "monotonic", "random_bytes", "jitter"},  # the Clock's own
}


@functools.cache
def text() -> str:
    """Return the page with its reference, which takes half a second: no run that only collects pays it."""
    return PAGE + python_api.pages()["python/oauthbroker.testing.md"]


def public(thing: Any) -> set[str]:
    names = {name for name in dir(thing) if not name.startswith("_")}
    names |= {name for name in getattr(thing, "__annotations__", {}) if not name.startswith("_")}
    return names - BACKSTAGE - INTERNAL.get(thing, set())


@pytest.mark.parametrize(
    "thing",
    [
        IdentityProvider,
        EndpointScript,
        TokenScript,
        AuthorizeScript,
        Browser,
        Page,
        Canaries,
        CookieJar,
        TestClock,
        Account,
        Client,
        SeenRequest,
        Family,
        DeviceStory,
        Revocation,
        Refusal,
        TokenResponse,
        Authority,
    ],
)
def test_every_public_name_is_documented(thing: Any):
    assert set() == {name for name in public(thing) if not re.search(rf"\b{name}\b", text())}


def test_every_exported_name_and_endpoint_script_is_documented():
    scripts = set(vars(Scripts()))
    assert set() == {name for name in {*testing.__all__, *scripts} if not re.search(rf"\b{name}\b", text())}


def test_every_fixture_is_documented():
    fixtures = {name for name, value in vars(plugin).items() if type(value).__name__ == "FixtureFunctionDefinition"}
    assert {"no_secret_leaks", "canaries", "test_clock", "identity_provider", "browser"} == fixtures
    assert set() == {name for name in fixtures if f"| `{name}` |" not in PAGE}


def test_every_option_of_the_command_is_documented(monkeypatch: pytest.MonkeyPatch):
    parsers: list[argparse.ArgumentParser] = []
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda self, given: parsers.append(self))
    command.arguments([])
    options = {option for action in parsers[0]._actions for option in action.option_strings if option.startswith("--")}
    assert set() == {option for option in options - {"--help"} if option not in PAGE}


def test_every_path_of_the_provider_is_documented():
    from oauthbroker.testing.provider.routes import ROUTES

    assert set() == {path for path in ROUTES if f"`{path}`" not in PAGE}


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path):
    runnable = [block for block in BLOCKS if "def test_" in block and "open_broker" not in block]
    suite = "\n".join(runnable)
    report = run_pytest(tmp_path, suite, "-o", "asyncio_mode=auto")
    assert set(re.findall(r"def (test_\w+)", suite)) == names_with_outcome("PASSED", report)


@pytest.mark.slow
def test_the_files_are_all_that_an_empty_folder_needs(tmp_path: Path):
    """In a process of its own, with the configuration that the page has the reader write and no other."""
    section = PAGE.partition("\n## With pytest\n")[2].partition("\n## ")[0]
    files = dict(re.findall(r"`([\w.]+\.\w+)`[^`\n]*:\n\n```\w+\n(.*?)```", section, re.DOTALL))
    assert [
        "pytest.ini",
        "conftest.py",
        "test_provider.py",
        "test_agent.py",
        "messages_tool.py",
        "test_tool.py",
    ] == list(files)
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], check=False, cwd=tmp_path, env=environment(), capture_output=True,
        text=True, timeout=240, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert "warning" not in (done.stdout + done.stderr).lower()


def test_every_example_is_python():
    assert len(BLOCKS) >= 5
    for block in BLOCKS:
        ast.parse(block)
        for line in block.splitlines():
            assert len(line) <= 120
