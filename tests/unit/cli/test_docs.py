"""docs/cli.md names every command and every option, and the README shows none that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from oauthbroker import cli

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs/cli.md").read_text("utf-8")
COMMON = {"--help", "-h", "-c", "-y", "--json"}


def commands() -> Iterator[tuple[str, Any]]:
    """(`grants list`, its command) of all there are."""
    for name in cli.COMMANDS:
        command: Any = typer.main.get_command(cli.module_of(name).app)
        parts = getattr(command, "commands", None)
        yield from ((f"{name} {part}", each) for part, each in parts.items()) if parts else [(name, command)]


def test_every_command_and_option_is_on_the_page():
    for name, command in commands():
        line = next((line for line in PAGE.splitlines() if line.startswith(f"| `{name}")), None)
        assert line, f"{name} is missing"
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        options = {option for parameter in shown for option in parameter.opts if option.startswith("-")}
        for option in options - COMMON - {"--config"}:
            assert option in line, f"{name} {option}"


def test_every_command_in_the_documentation_exists_with_its_arguments():
    known = dict(commands())
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    shown = [
        found
        for page in pages
        for found in re.findall(r"^oauthbroker ([^#\n]*)", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert shown
    for line in shown:
        words = line.split("<")[0].split()
        name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
        given = words[len(name.split()) :]
        assert name in known, line
        known[name].make_context(name, given, resilient_parsing=False)
