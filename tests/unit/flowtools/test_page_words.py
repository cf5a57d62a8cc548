"""The words of the operators' pages: each language has each word, each word is used, each failure has advice."""

from __future__ import annotations

import ast
from pathlib import Path

from jinja2 import Environment, nodes

import oauthbroker.flowtools
from oauthbroker.core.words import read_words
from oauthbroker.flowtools.running import approvals, journal
from oauthbroker.flowtools.running.journal import STATES
from oauthbroker.flowtools.serving.pages import PAGES
from oauthbroker.flowtools.specification.source import published_schema

PLUGIN = Path(oauthbroker.flowtools.__file__).parent
ENGLISH = read_words(PAGES / "words")["en"]["pages"]
BEFORE_A_RUN = {
    "answerGone",
    "idempotencyConflict",
    "inputInvalid",
    "unauthenticated",
    "forbidden",
    "versionWithdrawn",
}  # such a call leaves no run


def words_used() -> set[str]:
    """Return the words that templates and handlers name."""
    found = {"nav"}
    for file in PAGES.glob("*.html"):
        for read in Environment(autoescape=True).parse(file.read_text("utf-8")).find_all(nodes.Getattr):
            if isinstance(read.node, nodes.Name) and read.node.name == "words":
                found.add(read.attr)
    for node in ast.walk(ast.parse((PLUGIN / "serving" / "pages.py").read_text("utf-8"))):
        match node:
            case ast.Attribute(value=ast.Attribute(attr="words"), attr=name):
                found.add(name)
    return found


def words_of_data() -> set[str]:
    """Return the words that are found by a risk, a trigger, a state or a code."""
    triggers = published_schema()["$defs"]["Trigger"]["properties"]["type"]["enum"]
    steps = (journal.DONE, journal.SENT, journal.RETRY, journal.UNKNOWN, journal.WAITS)
    decisions = (approvals.ASKED, approvals.APPROVED, approvals.DECLINED)
    paused = (journal.UNKNOWN, journal.ESCALATED, journal.WAITING, journal.FAILING)
    return {
        *(f"risk_{each}" for each in ("green", "yellow", "red")),
        *(f"trigger_{each}" for each in triggers),
        *(f"state_{each}" for each in STATES),
        *(f"step_{each}" for each in steps),
        *(f"decision_{each}" for each in decisions),
        *(f"advice_{each}" for each in {*codes(), *paused, approvals.DECLINED} - BEFORE_A_RUN),
    }


def codes() -> set[str]:
    """Return the codes of all failures that the plug-in's code raises. One that is stored is raised again."""
    found = set()
    for file in PLUGIN.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "FlowFailed":
                code = call.args[0]
                assert isinstance(code, ast.Constant) or ast.unparse(code).endswith("['code']"), file.name
                found |= {str(code.value)} if isinstance(code, ast.Constant) else set()
    return found


def test_the_pages_use_exactly_the_words_that_there_are() -> None:
    assert len(codes()) > 15
    assert ENGLISH.keys() == words_used() | words_of_data()
