"""A store that was restored in part: lost parts are named, with the way to restore them, and none is made anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.kit.cli import Desk
from tests.kit.running_broker import tree

RESTORE = "restore it from a backup, or make an empty folder (0700) where no record was"


def data_of(desk: Desk) -> Path:
    return desk.folder / "store" / "data"


def failures(desk: Desk) -> list[tuple[str, str]]:
    reported = json.loads(desk.type("doctor", "--offline", "--json").out)
    return [
        (it["check"], f"{it['about']}: {it['text']} {it['hint']}")
        for it in reported["checks"]
        if it["severity"] == "failure"
    ]


@pytest.mark.parametrize(
    "words", [("serve",), ("grants", "list"), ("store", "export", "x.age", "--recipient", "{key}")], ids=" ".join
)
@pytest.mark.parametrize("kind", ["grants", "secrets", "tombstones"])
def test_a_lost_folder_is_refused_and_not_made_anew(used: Desk, kind: str, words: tuple[str, ...]) -> None:
    pyrage = pytest.importorskip("pyrage")
    recipient = str(pyrage.x25519.Identity.generate().to_public())
    shutil.rmtree(data_of(used) / kind)
    done = used.type(*(word.format(key=recipient) for word in words))
    assert (2, True) == (done.code, f"data/{kind} is missing: {RESTORE}" in done.err), done.err
    assert "waiting does not change that" in done.err
    assert not (data_of(used) / kind).exists()


def test_a_lost_folder_is_a_failure_of_doctor_and_a_fault_of_verify(used: Desk) -> None:
    for kind in ("grants", "secrets"):
        shutil.rmtree(data_of(used) / kind)
    before = tree(used.folder)
    hint = "Restore it from a backup. Only if it had no records, make it empty (0700)."
    assert [("permissions", f"data/{kind}: Missing. {hint}") for kind in ("grants", "secrets")] == failures(used)
    done = used.type("store", "verify")
    assert 1 == done.code
    assert {"grants: its folder is missing", "secrets: its folder is missing", "2 faults."} <= set(
        done.out.splitlines()
    )
    assert before == tree(used.folder)


def test_an_empty_folder_in_place_of_a_lost_one_lets_the_store_open(used: Desk) -> None:
    shutil.rmtree(data_of(used) / "sessions")
    (data_of(used) / "sessions").mkdir(0o700)
    assert 0 == used.type("grants", "list").code


def test_a_copy_without_locks_is_whole_for_doctor_and_for_a_start(used: Desk) -> None:
    """Backups leave them out."""
    shutil.rmtree(data_of(used) / "locks")
    before = tree(used.folder)
    assert [] == failures(used)
    assert before == tree(used.folder)
    (data_of(used) / "locks").mkdir(0o700)
    assert [] == failures(used)
    assert 0 == used.type("grants", "list").code


@pytest.mark.parametrize("key_file", ["there", "lost"])
@pytest.mark.parametrize(
    "words", [("serve",), ("init",), ("init", "--if-missing"), ("store", "verify"), ("grants", "list")], ids=" ".join
)
def test_a_lost_keyring_is_to_be_restored(used: Desk, words: tuple[str, ...], key_file: str) -> None:
    (data_of(used) / "keyring").unlink()
    if key_file == "lost":
        used.key_file.unlink()
    before = tree(used.folder)
    done = used.type(*words)
    assert (2, "") == (done.code, done.out)
    assert "its keyring is missing. Restore the keyring from a backup" in done.err
    assert not {"init`", "remove", "start over", "begin anew"} & set(done.err.split())
    assert before == tree(used.folder)


def test_a_lost_keyring_is_a_failure_of_doctor(used: Desk) -> None:
    (data_of(used) / "keyring").unlink()
    [(check, text)] = failures(used)
    assert ("keys", True) == (check, "Restore the keyring from a backup" in text)


@pytest.mark.parametrize("name", ["data", "data/grants", "data/keyring"])
def test_a_link_is_called_a_link_by_a_start_and_by_doctor(used: Desk, name: str) -> None:
    place = used.folder / "store" / name
    place.rename(used.folder / "store" / "elsewhere")
    place.symlink_to(used.folder / "store" / "elsewhere")
    done = used.type("serve")
    assert (2, True) == (done.code, f"{place.name} is a link" in done.err), done.err
    assert ("permissions", True) in [(check, f"{name}: A link." in text) for check, text in failures(used)]
