"""`file-system__read` and `file-system__write`: files of the workdir, and nothing outside."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.tools.base.file_system import DEFAULT_BYTES, MOST_BYTES, handlers
from oauthbroker.tools.base.texts import confined
from oauthbroker.tools.calling.context import changeset_folders
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import VALUE
from tests.unit.tools.contexts import context
from tests.unit.tools.kit import performed

read, write = handlers["read"], handlers["write"]


def names(folder: Path) -> list[str]:
    return [it.name for it in folder.iterdir()]


@pytest.fixture
def ctx(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("only outside")
    return context(workdir=tmp_path / "work")


@pytest.mark.rule("002-14-1", "002-2.5-2")
def test_a_file_is_written_and_read_with_the_printed_members(ctx):
    path = str(ctx.workdir / "notes/today.md")
    assert {"path": path, "size": 6, "written": True} == write(ctx, {"path": "notes/today.md", "content": "한글"})
    assert {"path": path, "size": 6, "truncated": False, "content": "한글"} == read(ctx, {"path": "notes/today.md"})
    assert ["today.md"] == names(ctx.workdir / "notes")


@pytest.mark.rule("002-14-1")
@pytest.mark.parametrize(
    ("text", "arguments", "size", "content"),
    [
        ("x" * 100_001, {}, DEFAULT_BYTES, "x" * 100_000),
        ("abcdef", {"maxBytes": 3}, 3, "abc"),
        ("abcdef", {"maxBytes": 0}, 0, ""),
        ("한글", {"maxBytes": 4}, 3, "한"),
        ("한글", {"maxBytes": 2}, 0, ""),
        *(("abcdef", {"maxBytes": less}, 0, "") for less in (-1, -2, -(10**9))),
        ("abcdef", {"maxBytes": 2.9}, 2, "ab"),
    ],
)
def test_a_long_file_is_cut_to_the_bytes_that_were_asked_for(ctx, text, arguments, size, content):
    (ctx.workdir / "f").write_text(text)
    found = read(ctx, {"path": "f", **arguments})
    assert (len(text.encode()), True) == (found["size"], found["truncated"])
    assert (content, size) == (found["content"], len(found["content"].encode()))


@pytest.mark.rule("002-14-1", "002-10.2-1")
@pytest.mark.parametrize("most", [{}, {"maxBytes": 300_000}, {"maxBytes": 10**9}])
@pytest.mark.parametrize(
    "content", [b"\0" * 1_000_000, b"\xff" * 1_000_000, "한😀".encode() * 100_000, b'"\n' * 500_000]
)
async def test_a_read_returns_what_fits_an_output(ctx, content, most):
    (ctx.workdir / "f").write_bytes(content)
    result = await performed(lambda _ctx, args: read(ctx, {"path": "f", **most}))
    assert ("ok", True, len(content)) == (result.status, result.output["truncated"], result.output["size"])
    assert content.decode("utf-8", "replace").startswith(result.output["content"])
    size = len(json.dumps(result.output, ensure_ascii=False).encode())
    assert VALUE.size - 6 <= size <= VALUE.size or len(result.output["content"]) >= DEFAULT_BYTES // 4, "and no less"


def test_a_file_of_the_limits_length_is_whole(ctx):
    (ctx.workdir / "f").write_text("abc")
    assert ("abc", False) == ((it := read(ctx, {"path": "f", "maxBytes": 3}))["content"], it["truncated"])


REFUSED = [
    "/etc/passwd",
    "../outside/secret",
    "a/../../outside/secret",
    "/proc/self/environ",
    "",
    ".",
    "/",
    "a\0b",
    "//etc/passwd",
]


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_outside_is_refused(ctx, path):
    for call in (read, write):
        with pytest.raises(ToolFailure, match="not below the workdir") as failed:
            call(ctx, {"path": path, "content": "x"})
        assert "PathRefused" == failed.value.error.name


def test_a_sibling_whose_name_begins_as_the_workdirs_is_outside(ctx):
    with pytest.raises(ToolFailure, match="not below"):
        read(ctx, {"path": f"{ctx.workdir}-other/secret"})


def plant_file_link(work: Path) -> None:
    (work / "x").symlink_to("../outside/secret")


def plant_folder_link(work: Path) -> None:
    (work / "d").symlink_to("../outside")


def plant_process_link(work: Path) -> None:
    (work / "x").symlink_to("/proc/self/environ")


LINKS = [(plant_file_link, "x"), (plant_folder_link, "d/secret"), (plant_process_link, "x")]


@pytest.mark.parametrize(("plant", "path"), LINKS)
def test_a_symbolic_link_is_not_read_through(ctx, plant, path):
    plant(ctx.workdir)
    with pytest.raises(ToolFailure, match="link"):
        read(ctx, {"path": path})


@pytest.mark.parametrize(("plant", "path"), LINKS)
def test_a_symbolic_link_is_neither_replaced_nor_written_through(ctx, plant, path):
    plant(ctx.workdir)
    with pytest.raises(ToolFailure, match="link"):
        write(ctx, {"path": path, "content": "x"})
    assert os.path.lexists(ctx.workdir / path)
    assert ["secret"] == names(ctx.workdir.parent / "outside")


def test_a_hard_link_at_a_files_place_is_replaced_and_not_written_through(ctx):
    os.link(ctx.workdir.parent / "outside/secret", ctx.workdir / "x")
    write(ctx, {"path": "x", "content": "mine"})
    assert ("mine", "only outside") == (
        (ctx.workdir / "x").read_text(),
        (ctx.workdir.parent / "outside/secret").read_text(),
    )


def test_a_folder_that_is_a_link_is_not_written_through(ctx):
    plant_folder_link(ctx.workdir)
    with pytest.raises(ToolFailure, match="link"):
        write(ctx, {"path": "d/new", "content": "x"})
    assert ["secret"] == names(ctx.workdir.parent / "outside")


@pytest.mark.parametrize("use", [read, write])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_is_no_file_is_not_replaced_and_holds_nothing_up(ctx, make, use):
    make(ctx.workdir / "x")
    with pytest.raises(ToolFailure, match="regular file"):
        use(ctx, {"path": "x", "content": "y"})
    assert not (ctx.workdir / "x").is_file()


@pytest.mark.rule("002-14-5")
def test_a_missing_file_is_reported_with_its_path(ctx):
    with pytest.raises(ToolFailure, match=f"does not exist: {ctx.workdir}/x"):
        read(ctx, {"path": "x"})


def test_a_file_keeps_its_permissions(ctx):
    (ctx.workdir / "run.sh").write_text("a")
    (ctx.workdir / "run.sh").chmod(0o750)
    write(ctx, {"path": "run.sh", "content": "b"})
    assert 0o750 == (ctx.workdir / "run.sh").stat().st_mode & 0o777


def test_too_long_a_content_is_refused(ctx):
    with pytest.raises(ToolFailure, match="bytes"):
        write(ctx, {"path": "x", "content": "x" * (MOST_BYTES + 1)})


def test_files_of_an_open_changeset_have_absolute_paths(ctx, tmp_path):
    folder = tmp_path / "cs-1"
    folder.mkdir()
    token = changeset_folders.set(lambda it: [folder] if it.agent_name == "planner" else [])
    try:
        write(ctx, {"path": str(folder / "a.md"), "content": "x"})
        assert "x" == read(ctx, {"path": str(folder / "a.md")})["content"]
        assert ctx.workdir / "a.md" == confined(ctx, "a.md").path
        with pytest.raises(ToolFailure):
            read(context(workdir=ctx.workdir, agent_name="other"), {"path": str(folder / "a.md")})
    finally:
        changeset_folders.reset(token)


def test_a_folder_that_turns_into_a_link_and_back_lets_nothing_in_or_out(ctx):
    """Another tool of the agent swaps the folder while this one reads and writes."""
    work, over = ctx.workdir, threading.Event()
    (work / "d").mkdir()
    (work / "d/secret").write_text("inside")
    (work / "link").symlink_to("../outside")

    here, exchange = -100, 2  # of renameat2(2): the current folder, RENAME_EXCHANGE

    def swap() -> None:
        while not over.is_set():
            names = [str(work / name).encode() for name in ("d", "link")]
            assert 0 == ctypes.CDLL(None).renameat2(here, names[0], here, names[1], exchange)

    thread = threading.Thread(target=swap)
    thread.start()
    found = set()
    try:
        for number in range(300):
            with suppress(ToolFailure):
                found.add(read(ctx, {"path": "d/secret"})["content"])
            with suppress(ToolFailure):
                write(ctx, {"path": f"d/new-{number}", "content": "x"})
    finally:
        over.set()
        thread.join(60)
    assert found <= {"inside"}
    assert ["secret"] == names(work.parent / "outside")


@given(path=st.text(alphabet="ab./\0한~", max_size=12))
def test_a_path_that_is_accepted_stays_below_its_folder(path):
    ctx = context(workdir=Path("/work/dir"))
    with suppress(ToolFailure):
        place = confined(ctx, path)
        assert Path(os.path.normpath(place.path)).is_relative_to("/work/dir")
        assert not {"..", ".", ""} & set(place.parts)
