from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oauthbroker.tools.changesets.files import MOST_BYTES, MOST_DEPTH, MOST_FILES, MOST_NAMED
from tests.unit.tools.changesets.repositories import OWNER, Desk, bare_repository, git, no_problem

SECRET = "only outside"


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text(SECRET)
    return Desk.made(tmp_path)


def folders_deep(folder: Path) -> None:
    for _ in range(MOST_DEPTH + 5):
        folder = folder / "d"
    folder.mkdir(parents=True)


def a_repository_inside(folder: Path) -> None:
    git(folder, "init", "-q")


def a_pointer_to_a_repository_with_hooks(folder: Path) -> None:
    evil = folder.parent.parent / "evil"
    git(folder, "init", "-q", "--bare", str(evil))
    (evil / "config").write_text(f"[core]\nfsmonitor = touch {folder}/../../pwned\n")
    (folder / ".git").write_text(f"gitdir: {evil}\n")


def huge(folder: Path) -> None:
    with (folder / "run.sh").open("wb") as file:
        file.truncate(MOST_BYTES + 1)


def a_file_replaced_by_a_link(folder: Path) -> None:
    (folder / "run.sh").unlink()
    (folder / "run.sh").symlink_to("/etc/passwd")


def a_folder_in_another_case(folder: Path) -> None:
    (folder / "Prompts").mkdir()
    (folder / "Prompts/x").write_text("x")


def many_files(folder: Path) -> None:
    for number in range(MOST_FILES + 1):
        (folder / f"f{number}").touch()


PLANTED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a link to a file outside": (lambda it: (it / "x").symlink_to("../../../outside/secret"), "x", "symbolic link"),
    "a link to a folder outside": (lambda it: (it / "x").symlink_to("/etc"), "x", "symbolic link"),
    "a file replaced by a link": (
        a_file_replaced_by_a_link,
        "run.sh",
        "symbolic link",
    ),
    "a hard link": (lambda it: os.link(it.parents[2] / "outside/secret", it / "x"), "x", "hard link"),
    "a pipe": (lambda it: os.mkfifo(it / "x"), "x", "not a regular file"),
    "attributes": (lambda it: (it / ".gitattributes").write_text("* filter=evil"), ".gitattributes", "git reads"),
    "attributes in capitals": (lambda it: (it / ".GitAttributes").write_text("*"), ".GitAttributes", "git reads"),
    "a short name": (lambda it: (it / "GIT~1").write_text("*"), "GIT~1", "git reads"),
    "submodules": (lambda it: (it / ".gitmodules").write_text("[submodule]"), ".gitmodules", "git reads"),
    "a repository inside": (a_repository_inside, ".git/HEAD", "git reads"),
    "a .git file": (a_pointer_to_a_repository_with_hooks, ".git", "git reads"),
    "a newline": (lambda it: (it / "a\nM 100644 inline b").write_text("x"), "a\\u000aM 100644 inline b", "control"),
    "a name that is no text": (lambda it: (it / os.fsdecode(b"\xff")).write_text("x"), "\\udcff", "control"),
    "an invisible letter": (lambda it: (it / ".g\u200cit").write_text("x"), ".g\\u200cit", "control"),
    "a quote": (lambda it: (it / '"x').write_text("x"), '"x', "one of"),
    "another letter case": (lambda it: (it / "RUN.sh").write_text("x"), "run.sh", "letter case"),
    "a folder in another case": (
        a_folder_in_another_case,
        "prompts/planner.md",
        "letter case",
    ),
    "a huge file": (huge, "run.sh", "too large"),
    "deep folders": (folders_deep, "/".join("d" * MOST_DEPTH), "deeper"),
    "many files": (many_files, ".", "more than"),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_entry_of_a_worktree_is_named_and_reaches_nothing(desk, plant):
    put, file, reason = PLANTED[plant]
    opened, before = desk.changesets.open(OWNER), desk.tip()
    put(opened.folder)
    commit = desk.commit(opened.id)
    assert commit.status == "rejected"
    assert reason in {each.file: each.reason for each in commit.rejected}[file]
    assert len(commit.rejected) <= MOST_NAMED + 10
    assert (before, False) == (desk.tip(), (desk.root.parent / "pwned").exists())
    assert SECRET not in git(desk.repository, "cat-file", "--batch-all-objects", "--batch")


def test_a_worktree_that_became_a_link_is_not_read(desk):
    opened = desk.changesets.open(OWNER)
    moved = opened.folder.rename(opened.folder.parents[1] / "moved")
    opened.folder.symlink_to(desk.root.parent / "outside")
    assert desk.commit(opened.id).status == "failed"
    assert moved.exists()


def test_hooks_filters_and_settings_of_the_operator_are_not_run(desk, tmp_path, monkeypatch):
    marker = tmp_path / "ran"
    for hook in ("reference-transaction", "post-checkout", "post-commit", "update", "pre-commit"):
        script = desk.repository / "hooks" / hook
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\ntouch {marker}\n")
        script.chmod(0o755)
    (tmp_path / "gitconfig").write_text(f"[core]\nfsmonitor = touch {marker}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    git(desk.repository, "config", "filter.evil.smudge", f"touch {marker}")
    opened = desk.changesets.open(OWNER)
    (opened.folder / "run.sh").write_text("new\n")
    assert desk.commit(opened.id).status == "ok"
    assert not marker.exists()


def test_a_revision_with_a_link_is_refused_before_a_file_is_written(tmp_path):
    desk = Desk.made(tmp_path)
    (tmp_path / "work/link").symlink_to("/etc")
    git(tmp_path / "work", "add", "-A")
    git(tmp_path / "work", "commit", "-q", "-m", "link")
    git(tmp_path / "work", "push", "-q", str(desk.repository), "main")
    with pytest.raises(Exception, match="symbolic link"):
        desk.changesets.open(OWNER)
    assert [] == desk.changesets.folders(OWNER)


def test_an_unchanged_file_with_a_name_that_git_reads_stays(tmp_path):
    desk = Desk.made(tmp_path, no_problem, **{".gitattributes": "* text\n", ".gitignore": "x\n"})
    opened = desk.changesets.open(OWNER)
    (opened.folder / "run.sh").write_text("new\n")
    assert desk.commit(opened.id).status == "ok"
    assert ".gitattributes" in desk.files()


def test_a_sha256_repository_works_too(tmp_path):
    bare = bare_repository(tmp_path)
    new = tmp_path / "sha256.git"
    git(tmp_path, "init", "-q", "--bare", "--object-format=sha256", "-b", "main", str(new))
    stream = git(bare, "fast-export", "main")
    git(new, "fast-import", "--quiet", stdin=f"{stream}\n")
    desk = Desk.of(new, tmp_path / "system")
    opened = desk.changesets.open(OWNER)
    assert desk.commit(opened.id).new == desk.tip()
