"""What the product says refers to nothing that only its repository has."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oauthbroker
from oauthbroker import cli
from oauthbroker.web.api.openapi import document

SOURCES = Path(oauthbroker.__file__).parent
PAGE = re.compile(r"\b[\w-]+\.md\b|\bdocs/[a-z-]+\b|\btests/[A-Z]")
WHEEL = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"][
    "wheel"
]
INSTALLED = {Path(page).name for page in WHEEL["force-include"].values()}
MODULES = sorted(SOURCES.rglob("*.py"))


def texts_of(module: ast.Module) -> Iterator[str]:
    """Every text of a module that is no docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_no_message_names_a_page_that_an_installed_user_does_not_have():
    found = [
        (str(path.relative_to(SOURCES)), text)
        for path in MODULES
        for text in texts_of(ast.parse(path.read_text("utf-8")))
        if PAGE.search(text) and text not in INSTALLED
    ]
    assert [] == found


def test_neither_does_a_page_for_people():
    assert [] == [path.name for path in SOURCES.rglob("*.html") if PAGE.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_neither_does_the_help_of_a_command(name: str):
    for words in ([], *([word] for word in getattr(cli.command_of(name), "commands", {}))):
        said = CliRunner().invoke(cli.app, [name, *words, "--help"], env={"TERM": "dumb", "COLUMNS": "400"})
        assert (0, None) == (said.exit_code, PAGE.search(said.stdout)), said.stdout


def test_neither_does_the_description_of_the_api():
    assert not PAGE.search(json.dumps(document()))
