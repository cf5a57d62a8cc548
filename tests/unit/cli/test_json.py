"""`--json`: every command takes it, and stdout then holds exactly one JSON document, also after a failure."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from oauthbroker import cli
from oauthbroker.cli import run
from oauthbroker.cli.output import json_output
from oauthbroker.cli.output.json_output import ListAnswer
from oauthbroker.cli.output.progress import SOMEWHERE
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import Refused
from oauthbroker.testing import Canaries

FILLED = {"shell": "bash", "name": "some-name", "key": "some_key", "grant_id": "0123456789", "key_id": "key-0123456789"}
ANSWERS_BADNESS = {"check", "doctor"}  # their findings are the answer, good or bad
PLAYS = {"demo"}  # would put on a play; shown by tests/story/test_demo.py


def commands() -> Iterator[tuple[str, Any]]:
    for name in cli.COMMANDS:
        command: Any = cli.command_of(name)
        parts = getattr(command, "commands", None)
        yield from ((f"{name} {part}", each) for part, each in parts.items()) if parts else [(name, command)]


ALL = dict(commands())


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a configuration; nothing is typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    return tmp_path


def typed(name: str) -> list[str]:
    """The command with a word for each argument that it cannot do without."""
    needed = [it for it in ALL[name].params if it.param_type_name == "argument" and it.required]
    return [*name.split(), *(FILLED.get(it.name, "some-file") for it in needed)]


@pytest.mark.parametrize("name", ALL)
def test_every_command_takes_it(name: str):
    assert "--json" in {option for parameter in ALL[name].params for option in parameter.opts}


@pytest.mark.parametrize("name", sorted(set(ALL) - PLAYS))
def test_every_command_answers_in_one_document_where_there_is_nothing_to_work_on(empty: Path, capsys: Any, name: str):
    status = run([*typed(name), "--json"])
    document = json.loads(capsys.readouterr().out)
    if status == 0:
        assert "error" not in document
    elif name in ANSWERS_BADNESS:
        assert document["ok"] is False
    else:
        assert {"code", "message"} <= document["error"].keys()
        assert status in {1, 2}


@pytest.mark.parametrize("name", ALL)
def test_every_command_says_in_one_document_that_it_was_not_understood(empty: Path, capsys: Any, name: str):
    status = run([*typed(name), "--json", "--no-such-option"])
    said = capsys.readouterr()
    assert (2, "usage") == (status, json.loads(said.out)["error"]["code"])
    assert "--no-such-option" in said.err


@pytest.mark.parametrize(
    "words", [["--json"], ["no-such-command", "--json"], ["grants", "--json"], ["grants", "no", "--json"]]
)
def test_half_a_command_is_a_document_too(empty: Path, capsys: Any, words: list[str]):
    assert 2 == run(words)
    assert "usage" == json.loads(capsys.readouterr().out)["error"]["code"]


def test_an_argument_that_is_no_option_asks_for_nothing(empty: Path, capsys: Any):
    """After `--` everything is an argument."""
    assert 2 == run(["providers", "show", "--", "--json"])
    assert "" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (Refused("Not so.", lines=[1]), 2, {"code": "refused", "message": "Not so.", "lines": [1]}),
        (
            BrokerError(Code.STORE_LOCKED, note="why"),
            2,
            {"code": "storeLocked", "message": BrokerError(Code.STORE_LOCKED).message(), "note": "why"},
        ),
        (typer.Abort(), 130, {"code": "stopped", "message": "Stopped before it was done."}),
        (KeyboardInterrupt(), 130, {"code": "stopped", "message": SOMEWHERE}),
    ],
)
def test_how_a_command_can_end_without_an_answer(
    empty: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, raised: BaseException, status: int, error: dict[str, Any]
):
    monkeypatch.setattr("oauthbroker.cli.providers.presets", _raising(raised))
    assert status == run(["providers", "list", "--json"])
    said = capsys.readouterr()
    assert {"error": error} == json.loads(said.out)
    assert "" == _without_json(monkeypatch, capsys, raised)


def _without_json(patch: pytest.MonkeyPatch, capsys: Any, raised: BaseException) -> str:
    patch.setattr("oauthbroker.cli.providers.presets", _raising(raised))
    run(["providers", "list"])
    return str(capsys.readouterr().out)


def _raising(raised: BaseException) -> Any:
    def fail() -> None:
        raise raised

    return fail


def test_a_crash_is_a_document_without_the_words_of_the_crash(
    empty: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, canaries: Canaries
):
    secret = canaries.mint("access token").reveal()
    monkeypatch.setattr("oauthbroker.cli.providers.presets", _raising(KeyError(secret)))
    assert 1 == run(["providers", "list", "--json"])
    said = capsys.readouterr()
    assert secret not in said.out + said.err
    assert "crash" == json.loads(said.out)["error"]["code"]
    assert json.loads(said.out)["error"]["message"].startswith("KeyError at ")


def test_after_an_answer_nothing_follows(capsys: Any):
    json_output.begin()
    json_output.answer({"chosen": 1})
    json_output.refuse("refused", "too late")
    assert {"chosen": 1} == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("text", ["\x1b[31mred", "\x9b31m", "\u202egnp.exe", "\u2028", "\U000e0041", "한국어 ok"])
def test_no_text_in_a_document_speaks_to_a_terminal(text: str):
    printed = json_output.dumped({"said": text})
    assert {"said": text} == json.loads(printed)
    assert all(char.isprintable() or char == "\n" for char in printed)
    assert ("한국어" in printed) is ("한국어" in text), "what can be read stays readable"


def test_an_answer_that_a_task_began_is_followed_by_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def print_part() -> None:
        ListAnswer().add([{"grantId": "one"}])

    json_output.begin()
    asyncio.run(print_part())
    json_output.refuse("crash", "The disk is full.")
    assert "crash" not in capsys.readouterr().out
