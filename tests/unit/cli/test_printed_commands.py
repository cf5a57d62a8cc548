"""A command that is printed runs as it is printed: with the `--config` of the command line that printed it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import oauthbroker
from oauthbroker import cli
from oauthbroker.cli.output.commands_here import config_in, name_config, runnable
from oauthbroker.core.printed_commands import WITHOUT_CONFIG, with_config
from tests.kit.all_commands import commands

PACKAGE = Path(oauthbroker.__file__).parent
# Written in full, with the options that they need, or no text that names a command.
OTHERS = {"cli/server_files.py", "core/printed_commands.py", "cli/demo/printing.py", "cli/demo/stage.py"}


def test_each_command_is_completed_if_it_takes_the_option_and_no_other_is() -> None:
    for name, command in commands().items():
        takes = any("--config" in parameter.opts for parameter in command.params) or name == "flow secret"
        printed = with_config(f"Run `oauthbroker {name} NAME` now.", "here")
        assert ("--config here" in printed) == takes, name
    assert all(any(f"{name} ".startswith(f"{it} ") for name in commands()) for it in WITHOUT_CONFIG)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Run `oauthbroker init`, or look.", "Run `oauthbroker init --config 'my folder'`, or look."),
        ("`oauthbroker init --config there`", "`oauthbroker init --config there`"),
        ("`oauthbroker grants list -c there`", "`oauthbroker grants list -c there`"),
        ("`a` oauthbroker init `b`", "`a` oauthbroker init `b`"),
        ("`oauthbroker login github`", "`oauthbroker login github`"),
    ],
)
def test_the_folder_is_quoted_and_named_once(text: str, said: str) -> None:
    assert said == with_config(text, "my folder")


@pytest.mark.parametrize("words", [["--config", "there"], ["-c", "there"], ["--config=there"]])
def test_the_option_is_read_in_each_of_its_forms(words: list[str]) -> None:
    name_config(config_in(["doctor", *words]))
    try:
        assert "`oauthbroker init --config there`" == runnable("`oauthbroker init`")
    finally:
        name_config("")


NAMES_COMMAND = re.compile(r"oauthbroker (?!import\b)")


def texts() -> Iterator[tuple[str, str]]:
    """Yield each text of the package that is no docstring, with its place, of the files that name a command."""
    for file in sorted(PACKAGE.rglob("*.py")):
        source = file.read_text("utf-8")
        if not NAMES_COMMAND.search(source):
            continue  # to parse the whole package takes seconds
        tree = ast.parse(source)
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            place = f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                yield place, "".join(str(it.value) if isinstance(it, ast.Constant) else "X" for it in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said | parts:
                yield place, node.value


def test_every_command_in_a_text_stands_between_backticks_where_it_reads_a_configuration() -> None:
    words = rf"oauthbroker (?!(?:{'|'.join(WITHOUT_CONFIG)})\b)(?:{'|'.join(sorted(cli.COMMANDS))}|flow|mcp|tools)\b"
    bare = [
        (place, text)
        for place, text in texts()
        if re.search(rf"(?<!`){words}", text) and place.partition(":")[0] not in OTHERS
    ]
    assert [] == bare
