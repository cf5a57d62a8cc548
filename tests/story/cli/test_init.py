"""A new store: `oauthbroker init` makes its key once, never over anything, and what does not fit is refused unchanged."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.kit.cli import BROKER, Desk
from tests.kit.running_broker import tree

DATA = "store/data"


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def test_it_says_where_the_key_is_and_that_it_needs_a_backup_of_its_own(desk: Desk):
    done = desk.type("init")
    assert (0, "") == (done.code, done.err)
    assert f"Made the key: {desk.key_file}" in done.out
    assert "Back the key up now, and not together with the store." in done.out
    assert desk.key_file.read_text("ascii").strip() not in done.out


@pytest.mark.case("72")
def test_only_the_owner_can_read_the_new_files_under_any_umask(desk: Desk):
    before = os.umask(0)
    try:
        assert 0 == desk.type("init").code
    finally:
        os.umask(before)
    found = modes(desk.folder)
    assert 0o600 == found["keys/broker.kek"]
    assert 0o700 == found["keys"]
    assert 0o700 == found[DATA]
    assert 0o600 == found[f"{DATA}/keyring"]


@pytest.mark.parametrize(("umask", "open_ones"), [(0, 0o022), (0o077, 0o077)])
@pytest.mark.parametrize("words", [("init",), ("init", "--server", "team"), ("flow", "new", "shop")])
def test_no_file_of_a_new_folder_is_more_open_than_the_umask_or_writable_by_others(
    desk: Desk, umask: int, open_ones: int, words: tuple[str, ...]
):
    known, before = {*desk.folder.rglob("*")}, os.umask(umask)
    try:
        assert 0 == desk.type(*words).code
    finally:
        os.umask(before)
    made = [each for each in desk.folder.rglob("*") if each not in known]
    assert made
    assert [] == [each for each in made if each.lstat().st_mode & open_ones]


def test_a_second_time_is_refused_and_nothing_changes(desk: Desk):
    desk.type("init")
    before = tree(desk.folder)
    done = desk.type("init")
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith("keyExists: A key or a store already exists and is never overwritten.")
    assert before == tree(desk.folder)


@pytest.mark.parametrize("url", ["", "mysql://127.0.0.1/tokens", "postgresql:///tokens?host=/nowhere"])
def test_a_store_that_is_refused_leaves_no_file(desk: Desk, monkeypatch: pytest.MonkeyPatch, url: str):
    stated = "url: {valueFrom: {env: OAUTHBROKER_OF_A_TEST}}"
    broker = BROKER.format(base=desk.base, port=desk.port)
    desk.write("broker", broker.replace("store: {root: ../store}", f"store: {{root: ../store, {stated}}}"))
    monkeypatch.setenv("OAUTHBROKER_OF_A_TEST", url)
    before = tree(desk.folder)
    assert 2 == desk.type("init").code
    assert before == tree(desk.folder)


def test_a_key_that_was_there_is_used_and_kept(desk: Desk):
    desk.type("init")
    key = desk.key_file.read_bytes()
    (desk.folder / DATA / "keyring").unlink()
    done = desk.type("init")
    assert 0 == done.code
    assert f"Used the key that was there: {desk.key_file}" in done.out
    assert key == desk.key_file.read_bytes()


@pytest.mark.case("69")
def test_a_keyring_without_its_key_gets_no_new_key(desk: Desk):
    desk.type("init")
    desk.key_file.unlink()
    before = tree(desk.folder)
    done = desk.type("init")
    assert 2 == done.code
    assert "keyUnknown" in done.err
    assert before == tree(desk.folder)


def another_key(desk: Desk) -> None:
    keyring = (desk.folder / DATA / "keyring").read_bytes()
    desk.key_file.unlink()
    (desk.folder / DATA / "keyring").unlink()
    desk.type("init")
    (desk.folder / DATA / "keyring").write_bytes(keyring)


def no_key(desk: Desk) -> None:
    desk.key_file.unlink()


def half_a_keyring(desk: Desk) -> None:
    keyring = desk.folder / DATA / "keyring"
    keyring.write_bytes(keyring.read_bytes()[:100])


def open_key(desk: Desk) -> None:
    desk.key_file.chmod(0o644)


def open_store(desk: Desk) -> None:
    (desk.folder / DATA).chmod(0o777)


@pytest.mark.sample(8)
@pytest.mark.case("69", "72")
@pytest.mark.parametrize("words", [("serve",), ("secrets", "list"), ("grants", "list")], ids=" ".join)
@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (another_key, "keyMismatch"),
        (no_key, "keyUnknown"),
        (half_a_keyring, "keyMismatch"),
        (open_key, "storePermissions"),
        (open_store, "storePermissions"),
    ],
)
def test_a_key_or_store_that_does_not_fit_stops_every_command_and_not_a_byte_changes(desk: Desk, words, spoil, code):
    desk.type("init")
    spoil(desk)
    before = tree(desk.folder), modes(desk.folder)
    done = desk.type(*words)
    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(f"{code}: ")
    assert before == (tree(desk.folder), modes(desk.folder))


@pytest.mark.parametrize("words", [("serve",), ("secrets", "list"), ("grants", "list")], ids=" ".join)
def test_without_a_store_every_command_says_how_to_make_one(desk: Desk, words):
    done = desk.type(*words)
    assert 2 == done.code
    assert "There is no store yet. Run: `oauthbroker init`" in done.err
    assert not (desk.folder / "store").exists()


@pytest.mark.parametrize("words", [("init",), ("serve",), ("secrets", "list"), ("grants", "list")], ids=" ".join)
def test_a_configuration_with_problems_is_reported_in_full_and_nothing_is_made(desk: Desk, words):
    desk.write(
        "bad", "apiVersion: agents.example.io/v1alpha1\nkind: OAuthApp\nmetadata: {name: bad}\nspec: {flow: x}\n"
    )
    done = desk.type(*words)
    assert 2 == done.code
    lines = done.err.splitlines()
    assert all(line.startswith("config/bad.yaml:") for line in lines[:-1])
    assert f"{len(lines) - 1} problems; nothing of this configuration was used." == lines[-1]
    assert ["config"] == [path.name for path in desk.folder.iterdir()]
