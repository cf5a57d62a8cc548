"""Lists are short unless asked, say how many entries are left out, and are shown in a pager where they are longer than the screen."""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import cli
from oauthbroker.cli.output.json_output import ListAnswer, dumped
from oauthbroker.cli.output.options import LIMIT
from oauthbroker.cli.output.tables import Table, page
from oauthbroker.cli.stored_records import Listing

NUMBERS = Listing[int](
    ("number", "twice"), lambda it: (f"n{it}", str(2 * it)), lambda it: {"n": it}, none="There are none."
)
LISTS = {
    "api-keys list", "audit tail", "grants list", "providers list", "queues dead", "queues list", "secrets list",
    "sessions list",
}  # fmt: skip


def commands() -> dict[str, Any]:
    groups = {name: getattr(cli.command_of(name), "commands", {}) for name in cli.COMMANDS}
    return {f"{group} {name}": command for group, parts in groups.items() for name, command in parts.items()}


def test_every_list_has_a_limit():
    limits = {
        name: option.default
        for name, command in commands().items()
        for option in command.params
        if "--limit" in option.opts and "-n" in option.opts
    }
    assert dict.fromkeys(LISTS, LIMIT) | {"providers list": None} == limits, "the presets are one fixed list"
    assert {name for name in commands() if name.endswith((" list", " tail", " dead"))} == LISTS


@pytest.mark.parametrize(
    ("count", "limit", "said"),
    [
        (0, 30, "There are none.\n"),
        (1, 30, ""),
        (30, 30, ""),
        (31, 30, "Shown are 30 of 31: --limit 31 shows all.\n"),
        (5, 1, "Shown are 1 of 5: --limit 5 shows all.\n"),
        (31, None, ""),
    ],
)
def test_a_list_ends_at_its_limit_and_says_how_to_see_all(
    count: int, limit: int | None, said: str, capsys: pytest.CaptureFixture[str]
):
    """With --json the list is the same one, as that of `gh`, and the sentence is on stderr."""
    NUMBERS.show(range(count), as_json=False, limit=limit)
    printed = capsys.readouterr()
    shown = [line.split()[0] for line in printed.out.splitlines()[1:]]
    assert ([f"n{it}" for it in range(count)][:limit], said) == (shown, printed.err)
    NUMBERS.show(range(count), as_json=True, limit=limit)
    printed = capsys.readouterr()
    assert [{"n": it} for it in range(count)][:limit] == json.loads(printed.out)
    assert said.replace("There are none.\n", "") == printed.err


def pager(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a pager that writes its text and options into a file."""
    program, seen = folder / "my pager", folder / "seen"
    program.write_text(f'#!/bin/sh\necho "$LESS $1" > "{seen}"\ncat >> "{seen}"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PAGER", f"'{program}' --option")
    return seen


@pytest.mark.parametrize("less", [None, "S"])
def test_a_pager_gets_the_text_and_the_options_of_less_that_git_uses(
    less: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = pager(tmp_path, monkeypatch)
    monkeypatch.delenv("LESS", raising=False)
    if less is not None:
        monkeypatch.setenv("LESS", less)
    assert page("한 줄\n")
    assert f"{less or 'FRX'} --option\n한 줄\n" == seen.read_text("utf-8")


def test_a_pager_that_ends_early_is_no_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAGER", "true")
    assert page("x" * 1_000_000)


@pytest.mark.parametrize("named", ["", " ", "cat", "/nowhere/pager", "'"])
def test_without_a_pager_the_text_is_printed(named: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAGER", named)
    assert not page("text")


@pytest.mark.parametrize(
    ("rows", "terminal", "paged", "is_paged"),
    [(30, True, True, True), (3, True, True, False), (30, True, False, False), (30, False, True, False)],
)
def test_only_a_list_longer_than_the_terminal_is_paged(
    rows: int, terminal: bool, paged: bool, is_paged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = pager(tmp_path, monkeypatch)
    for name, value in {"TERM": "xterm", "LINES": "10", "COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        made = Table(("number", "name"), paged=paged)
        made.add([(str(it), "x") for it in range(rows)])
        made.end()
        stream.flush()
        assert is_paged is seen.exists()
        screen = "" if is_paged else os.read(ours, 65_536).decode()
    os.close(ours)
    assert f"{rows - 1} " in (seen.read_text() if is_paged else screen)


@pytest.mark.parametrize("above", [None, {"chosen": 3, "provider": {"done": 1}}])
@pytest.mark.parametrize("parts", [[], [[]], [[1]], [[{"a": 1}, {"b": [2]}], [], [{"c": "x\ny"}]]])
def test_a_list_that_is_printed_in_parts_is_the_document_that_one_part_makes(
    above: dict[str, Any] | None, parts: list[list[Any]], capsys: pytest.CaptureFixture[str]
):
    answer, whole = ListAnswer(above, "grants"), [each for part in parts for each in part]
    for part in parts:
        answer.add(part)
    answer.end()
    assert dumped(whole if above is None else above | {"grants": whole}) + "\n" == capsys.readouterr().out


def test_a_table_in_parts_has_one_head_and_the_widths_of_its_first_part(capsys: pytest.CaptureFixture[str]):
    made = Table(("id", "who"))
    for rows in ([("12345", "ada")], [("1", "bob"), ("1234567", "eve")]):
        made.add(rows)
    made.end()
    assert "id     who\n12345  ada\n1      bob\n1234567  eve\n" == capsys.readouterr().out


def test_on_a_terminal_a_part_is_a_table_of_its_own_and_a_list_of_several_is_not_paged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen = pager(tmp_path, monkeypatch)
    for name, value in {"TERM": "xterm", "LINES": "10", "COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        made = Table(("number",), paged=True)
        for start in (0, 20):
            made.add([(f"n{it}",) for it in range(start, start + 20)])
        made.end()
        stream.flush()
        assert not seen.exists()
        screen = ""
        while "n39\r" not in screen:
            screen += os.read(ours, 65_536).decode()
    os.close(ours)
    assert 2 == screen.count("number")
    assert all(f"n{it}\r" in screen for it in range(40))
