"""How commands say no: our words only, on stderr, with a status; and nothing stored may speak to the terminal."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
import typer

from oauthbroker import cli
from oauthbroker.cli.output.error_output import PAGE, tell
from oauthbroker.cli.output.tables import columns, shown
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import Refused, described
from oauthbroker.core.version import VERSION
from oauthbroker.observability.library_log import LibraryLog, calm_libraries
from oauthbroker.observability.logging import json_log
from oauthbroker.testing import Canaries


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Refused("Nothing was changed."), "Nothing was changed.\n"),
        (
            BrokerError(Code.STORE_LOCKED, note="x"),
            f"{BrokerError(Code.STORE_LOCKED, note='x')}\n  See {PAGE}#store-locked\n",
        ),
    ],
)
def test_a_refusal_is_its_sentence_and_status_two(capsys: Any, refusal: BrokerError | Refused, said: str):
    assert 2 == tell(refusal)
    assert ("", said) == tuple(capsys.readouterr())


@pytest.mark.case("89")
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_crash_reports_its_place_and_never_its_message(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, canaries: Canaries, wrapped: bool
):
    secret = canaries.mint("access token").reveal()

    def broken(*_: object, **__: object) -> None:
        crash = KeyError(secret)
        raise ExceptionGroup(secret, [crash]) if wrapped else crash

    monkeypatch.setattr(cli, "app", broken)
    assert 1 == cli.run(["secrets", "list"])
    said = capsys.readouterr().err
    assert secret not in said
    assert said.startswith(f"Internal error in oauthbroker {VERSION}: KeyError at ")
    assert ("test_error_output.py" in said) is not wrapped  # an exception that was never raised has no place


@pytest.mark.parametrize("wrapped", [False, True])
def test_debug_shows_the_calls_of_a_crash_and_no_text_of_foreign_exceptions(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, canaries: Canaries, wrapped: bool
):
    secret = canaries.mint("access token").reveal()

    def broken(*_: object, **__: object) -> None:
        try:
            dict[str, str]()[secret]
        except KeyError as error:
            if wrapped:
                raise ValueError(secret) from error
            raise

    monkeypatch.setattr(cli, "app", broken)
    assert 1 == cli.run(["--debug", "secrets", "list"])
    said = capsys.readouterr().err
    assert secret not in said
    assert ("in broken" in said, "builtins.KeyError" in said, wrapped) == (True, True, "builtins.ValueError" in said)


def test_debug_shows_the_calls_of_a_refusal_too_and_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Any
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # without a bundle here, `serve` looks there
    for words, shows in ((["--debug", "serve"], True), (["serve"], False), (["serve", "--debug"], False)):
        assert 2 == cli.run(words)
        assert shows is ("in serve_command" in capsys.readouterr().err)


def test_a_place_is_the_innermost_line_first():
    with pytest.raises(ValueError, match="Expecting") as crash:
        json.loads("{")
    assert described(crash.value).startswith("JSONDecodeError at decoder.py:")


@pytest.mark.case("89")
def test_what_a_library_logs_keeps_its_place_and_loses_its_words(canaries: Canaries):
    secret, stream = canaries.mint("code").reveal(), io.StringIO()
    logger = logging.Logger("h11")  # noqa: LOG001 - a tree of its own, beside the one that is swept
    logger.addHandler(LibraryLog(json_log(stream, SystemClock())))
    logger.debug("GET /?code=%s", secret)
    logger.warning("GET /?code=%s", secret)
    try:
        json.loads(secret)
    except ValueError:
        logger.exception(secret)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert secret not in stream.getvalue()
    assert ["warning", "error"] == [line["severity"] for line in lines]
    assert {"h11"} == {line["library"] for line in lines}
    assert lines[1]["crash"].startswith("JSONDecodeError at decoder.py:")


@pytest.mark.case("88")
def test_a_stored_text_cannot_steer_the_terminal():
    assert "\\u001b[2Jalice\\u202egro\\u000a" == shown("\x1b[2Jalice\u202egro\n")
    assert "id   who\n1    b\\u0007\n123  나" == columns(("id", "who"), [("1", "b\a"), ("123", "나")])


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_exists_and_helps_with_the_words_of_the_overview(name: str):
    """The overview knows a command's line without loading it, so the two must agree."""
    command = cli.command_of(name)
    assert cli.COMMANDS[name] == (command.help or "").splitlines()[0]
    _, colon, listed = cli.COMMANDS[name].rstrip(".").partition(": ")
    if isinstance(command, typer.core.TyperGroup) and colon and name not in {"audit", "providers"}:
        assert set(command.commands) == set(listed.split(", ")), "the line that lists its commands lists them all"


def test_no_option_takes_a_secret():
    """Arguments are visible to every user of the machine."""
    for name in cli.COMMANDS:
        command: Any = cli.command_of(name)
        for each in getattr(command, "commands", {name: command}).values():
            options = {option for parameter in each.params for option in parameter.opts}
            assert not {it for it in options if any(word in it for word in ("secret", "token", "password", "-kek"))}


def test_libraries_speak_as_they_did_once_the_server_has_ended():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    with calm_libraries(json_log(stream, SystemClock())):
        logging.getLogger("asyncio").warning("said inside")
        logging.getLogger("asyncio").info("too quiet")
    assert before == (root.handlers, root.level)
    assert ["asyncio"] == [json.loads(line)["library"] for line in stream.getvalue().splitlines()]
