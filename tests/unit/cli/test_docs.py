"""docs/cli.md names every command and every option, and the README shows none that does not exist."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import cli
from tests.kit.all_commands import commands

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs/cli.md").read_text("utf-8")
COMMON = {"--help", "-h", "-c", "-y", "--json"}


def test_every_command_and_option_is_on_the_page():
    for name, command in commands().items():
        if command.hidden:
            continue
        line = next((line for line in PAGE.splitlines() if line.startswith(f"| `{name}")), None)
        assert line, f"{name} is missing"
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        options = {option for parameter in shown for option in parameter.opts if option.startswith("-")}
        for option in options - COMMON - {"--config"}:
            assert option in line, f"{name} {option}"


PAGES = [REPOSITORY / "README.md", REPOSITORY / "SECURITY.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
STARTS = re.compile(  # where a line runs the command: by itself, in a pipe, inside $( ), in the unit, in the container
    r"(?:^[ ]*|[|][ ]*|[$][(]|^ExecStart=\S*/|opentelemetry-instrument )oauthbroker |^run (?=[a-z])", re.MULTILINE
)


def named(words: list[str], known: dict[str, Any]) -> str:
    """The command that a line begins with."""
    pair = " ".join(words[:2])
    return pair if pair in known else words[0]


def lines() -> Iterator[Any]:
    """Every command line in the pages' blocks, without what comes before and after it."""
    for page in PAGES:
        for block in re.findall(r"```(?:sh|ini)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            text = block.replace("\\\n", " ")
            for start in STARTS.finditer(text):
                line = text[start.end() :].partition("\n")[0]
                yield pytest.param(line, id=f"{page.name}: {line[:40].strip()}")


def test_commands_are_found_wherever_a_line_runs_them():
    shown = "\n".join(str(each.values[0]) for each in lines())
    for words in ("check config", "grants import - --verify", "api-keys create my-runtime", "init --config config  ", "serve --config /etc/oauthbroker --workers 2"):  # fmt: skip
        assert words in shown, words


@pytest.mark.parametrize("line", [*lines()])
def test_every_command_line_of_a_block_parses(line: str):
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = [*itertools.takewhile(lambda word: not set(word) <= set("();<>|&"), lexer)]
    known = commands()
    name = named(words, known)
    assert name in known
    known[name].make_context(name, words[len(name.split()) :])


def test_every_command_that_a_sentence_names_exists_with_its_options():
    known = commands()
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for said in re.findall(r"`oauthbroker ([a-z][^`]*)`", prose):
            words = said.split()
            name = named(words, known)
            assert name in known.keys() | cli.COMMANDS, said
            options = (
                {option for parameter in known[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
                if name in known
                else set()
            )
            assert {word for word in words if word.startswith("--")} <= options, said
