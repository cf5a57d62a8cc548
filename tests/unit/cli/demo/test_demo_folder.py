"""Where the demo lives: it empties only what a demo made, one demo at a time, and its key lies elsewhere and goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.cli.demo.demo_folder import MARKER, fresh
from oauthbroker.core.refused import Refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store" / "demo"


def test_every_demo_begins_with_an_empty_folder_of_its_own(folder: Path):
    with fresh(folder) as (there, _):
        assert (folder, 0o700) == (there, there.stat().st_mode & 0o777)
        (there / "data" / "grants").mkdir(parents=True)
        (there / "data" / "grants" / "one").write_text("old")
        (there / "broker.log").write_text("old")
        (there / "away").symlink_to(folder.parent.parent)
    with fresh(folder) as (there, _):
        assert [MARKER] == [path.name for path in there.iterdir()]
    assert folder.parent.parent.exists(), "links are not followed"


def test_the_key_lies_elsewhere_and_is_gone_afterwards(folder: Path):
    with fresh(folder) as (there, key_file):
        assert not key_file.is_relative_to(there)
        assert 0o700 == key_file.parent.stat().st_mode & 0o777
        key_file.write_text("key")
    assert not key_file.parent.exists()


def test_a_folder_that_no_demo_made_is_left_alone(folder: Path):
    folder.mkdir(parents=True)
    (folder / "precious").write_text("mine")
    with pytest.raises(Refused, match="was not made by a demo"), fresh(folder):
        pytest.fail("let in")
    assert "mine" == (folder / "precious").read_text()
    assert not (folder / MARKER).exists()


@pytest.mark.parametrize("link", ["folder", "marker"])
def test_a_planted_link_is_refused(folder: Path, tmp_path: Path, link: str):
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").write_text("mine")
    folder.parent.mkdir()
    if link == "folder":
        (target / MARKER).touch()
        folder.symlink_to(target)
    else:
        folder.mkdir()
        (folder / MARKER).symlink_to(target / "precious")
    with pytest.raises(Refused), fresh(folder):
        pytest.fail("let in")
    assert "mine" == (target / "precious").read_text()


def test_a_second_demo_is_refused_without_waiting(folder: Path):
    with fresh(folder) as (there, _):
        (there / "data").mkdir()
        with pytest.raises(Refused, match="Another demo is running"), fresh(folder):
            pytest.fail("let in")
        assert (there / "data").is_dir(), "the first one keeps its things"


def test_where_nothing_may_be_written_it_says_so(tmp_path: Path):
    (tmp_path / "store").write_text("a file")
    with pytest.raises(Refused, match="Start the demo in a folder where you may write"), fresh(tmp_path / "store/demo"):
        pytest.fail("let in")
