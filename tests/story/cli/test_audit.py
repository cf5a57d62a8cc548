"""`oauthbroker audit`: the log verified and read by a holder of the keys, and printed without a secret."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.testing import IdentityProvider
from tests.kit.cli import MAIN, Desk, environment

ALICE = "idp:user:U234567"


def log_of(desk: Desk) -> Path:
    return desk.folder / "store" / "data" / "audit.jsonl"


def lines(desk: Desk, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(desk.type("audit", "tail", "--json", *words).out)
    return found


def test_a_sound_log_is_called_sound(used: Desk):
    done = used.type("audit", "verify")
    assert (0, True) == (done.code, done.out.startswith("Sound: "))
    found = json.loads(used.type("audit", "verify", "--json").out)
    assert (True, 1, found["last"], []) == (found["sound"], found["first"], found["checkpointed"], found["breaks"])
    assert found["verified"] == found["last"] > 4
    noted = f"{found['last']}:{found['mac']}"
    assert noted in done.err
    assert 0 == used.type("audit", "verify", "--head", noted).code
    assert 1 == used.type("audit", "verify", "--head", f"{found['last']}:{'0' * 32}").code
    assert 2 == used.type("audit", "verify", "--head", "last").code


def test_a_changed_line_is_named_with_its_place_and_none_of_its_text(used: Desk):
    text = log_of(used).read_text("utf-8")
    log_of(used).write_text(text.replace('"agent":"planner"', '"agent":"mallory"', 1), "utf-8")
    number = next(at for at, line in enumerate(text.splitlines(), 1) if '"agent":"planner"' in line)
    done = used.type("audit", "verify")
    assert 1 == done.code
    assert ["audit.jsonl", str(number), "changed"] == done.out.splitlines()[1].split()[:3]
    assert "mallory" not in done.out + done.err
    [broken] = json.loads(used.type("audit", "verify", "--json").out)["breaks"]
    assert {"file": "audit.jsonl", "line": number, "kind": "changed"} == broken


@pytest.fixture
def hosts(used: Desk, tmp_path: Path) -> tuple[Path, Path]:
    """The collected logs of two hosts that share a store."""
    own, folders = log_of(used).parent, (tmp_path / "one", tmp_path / "two")
    shutil.copytree(own, folders[0])
    for name in ("audit.jsonl", "audit.anchor"):
        (own / name).unlink()
    used.canaries.may_show("API key")
    used.canaries.add(used.type("api-keys", "create", "second-host", "--role", "runtime").out.strip(), "API key")
    shutil.copytree(own, folders[1])
    return folders


def test_the_collected_logs_of_all_hosts_are_verified_with_the_key_of_their_store(used: Desk, hosts: tuple[Path, Path]):
    words = [str(folder) for folder in hosts]
    done = used.type("audit", "verify", *words)
    assert 0 == done.code
    assert [True, True] == [f"{word}: Sound: " in done.out for word in words]
    changed = hosts[1] / "audit.jsonl"
    changed.write_text(changed.read_text("utf-8").replace("second-host", "forged-host", 1), "utf-8")
    assert 1 == used.type("audit", "verify", *words).code
    found = json.loads(used.type("audit", "verify", *words, "--json").out)
    assert (False, [True, False]) == (found["sound"], [found["logs"][word]["sound"] for word in words])


def test_a_log_that_comes_twice_or_is_none_is_refused(used: Desk, hosts: tuple[Path, Path], tmp_path: Path):
    one, two = hosts
    shutil.copytree(one, tmp_path / "copy")
    for words in ([one, tmp_path / "copy"], [one, tmp_path], [one, two, "--head", f"1:{'0' * 32}"]):
        done = used.type("audit", "verify", *map(str, words))
        assert (2, "") == (done.code, done.out), words


def test_looking_writes_no_line_and_a_log_without_lines_is_sound_until_it_is_taken_away(
    desk: Desk, idp: IdentityProvider
):
    desk.serve_app_of(idp)
    assert 0 == desk.type("init").code
    desk.canaries.add(desk.key_file.read_text("ascii").strip(), "key")
    done = desk.type("audit", "verify")
    assert (0, "Sound: 0 lines.\n") == (done.code, done.out)
    assert [] == lines(desk)
    assert "There are no such lines." in desk.type("audit", "tail").err
    assert not log_of(desk).exists()
    assert ("ok", "No line was written yet.") == examined_log(desk)
    log_of(desk).with_name("audit.anchor").unlink()
    assert ("failure", "The log was changed: 1 break.") == examined_log(desk)
    assert 1 == desk.type("audit", "verify").code


@pytest.mark.parametrize(
    "gone", [("audit.jsonl",), ("audit.anchor",), ("audit.jsonl", "audit.anchor"), ()], ids=" and ".join
)
def test_doctor_and_verify_judge_a_log_that_was_taken_away_or_emptied_alike(used: Desk, gone: tuple[str, ...]):
    for name in gone:
        log_of(used).with_name(name).unlink()
    if not gone:
        log_of(used).write_bytes(b"")
    assert ("failure", "The log was changed: 1 break.") == examined_log(used)
    assert 1 == used.type("audit", "verify").code


def examined_log(desk: Desk) -> tuple[str, str]:
    """Return what doctor says of the log."""
    found = json.loads(desk.type("doctor", "--offline", "--json").out)["checks"]
    [(severity, text)] = [(it["severity"], it["text"]) for it in found if it["check"] == "audit"]
    return severity, text


def test_the_tail_joins_a_line_with_the_grant_that_only_the_store_knows(used: Desk):
    found = lines(used, "--type", "TokenIssued", "--app", "mail")
    assert [("TokenIssued", "planner", ALICE, True)] == [
        (it["type"], it["agent"], it["subject"], it["genuine"]) for it in found
    ]
    [grant] = json.loads(used.type("grants", "list", "--json").out)
    assert grant["grantId"] == found[0]["grantId"]
    text = log_of(used).read_text("utf-8")
    assert not [word for word in (ALICE, "U234567", grant["grantId"], "1700000000.000100") if word in text]
    assert 2 == len(lines(used, "-n", "2"))
    assert "There is no app other. Known: mail." in used.type("audit", "tail", "--app", "other").err
    rows = [line.split() for line in used.type("audit", "tail").out.splitlines()]
    assert ["no", "time", "entry", "app", "who", "details"] == rows[0]
    assert ALICE in rows[-1]
    assert ["1", "LogBegan", "-", "file=1"] == [rows[1][0], *rows[1][2:]]


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("TokenIsued", "The nearest known one is TokenIssued."),
        ("LogRotatd", "The nearest known one is LogRotated."),
        ("Nope", "Known are ApiKeyChanged, "),
    ],
)
@pytest.mark.parametrize("more", [(), ("--follow",)])
def test_a_type_that_no_line_can_have_is_refused(used: Desk, typed: str, says: str, more: tuple[str, ...]):
    """It would look like a log in which that never happened."""
    done = used.type("audit", "tail", "--type", typed, *more)
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(f"There is no entry of type {typed}. {says}")
    assert [] == lines(used, "--type", "GrantRevoked"), "one that did not happen is none"


def test_a_name_from_hell_does_not_speak_to_the_terminal(used: Desk):
    with log_of(used).open("a", encoding="utf-8") as file:
        file.write(
            '{"seq":999,"at":"2026","type":"TokenIssued","agent":"\\u001b[31mred","tool":["a"],"mac":"'
            + "0" * 32
            + '"}\n'
        )
    done = used.type("audit", "tail")
    assert "NOT GENUINE" in done.out
    assert "\\u001b[31mred" in done.out
    assert "tool=['a']" in done.out, "a member of another form does not end the list"
    assert "\x1b" not in done.out + used.type("audit", "tail", "--json").out
    assert [False] == [it["genuine"] for it in lines(used, "-n", "1")]


@pytest.mark.slow
def test_following_goes_on_with_what_others_write(used: Desk):
    """A process of its own; a secret that is set meanwhile is a line, and Ctrl-C ends it."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "audit", "tail", "-n", "1", "--follow", "--json"],
        env=environment(), cwd=used.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    guard = threading.Timer(30, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert 0 == used.type("secrets", "set", "other", "key", stdin="a-value-of-no-worth").code
        second = json.loads(process.stdout.readline())
        process.send_signal(2)
        rest, complaint = process.communicate(timeout=60)
    finally:
        guard.cancel()
        process.kill()
        process.wait(60)
    assert ["TokenIssued", "SecretChanged"] == [first["type"], second["type"]]
    assert first["seq"] + 1 == second["seq"]
    assert (130, b"") == (process.returncode, rest), complaint


def test_the_pseudonym_of_a_person_is_printed_and_is_the_same_each_time(used: Desk):
    first, again, other = (used.type("audit", "name", each).out for each in (ALICE, ALICE, "bob"))
    assert (True, first, True) == (first.startswith("person-"), again, first != other)
    assert 1 == len(first.splitlines())
    assert "U234567" not in first
