"""The example that `oauthbroker flow new` writes: docs/flowtools.md begins with it, and its broker serves it."""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.kit.cli import Desk, serving
from tests.kit.docs import ROOT, code_blocks, page_text

PAGE, SHIPPED = "docs/flowtools.md", ROOT / "examples" / "flowtools"
pytestmark = pytest.mark.rule("flow-new")


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def typed(desk: Desk, line: str) -> str:
    """Type one line as a shell does, and return its output."""
    words, _, to = line.partition(" > ")
    done = desk.type(*shlex.split(words)[1:])
    assert 0 == done.code, (line, done)
    if to:
        Path(to).write_text(done.out, "utf-8")
    return done.out


def test_the_folder_that_ships_is_the_one_that_the_command_writes(desk: Desk) -> None:
    assert 0 == desk.type("flow", "new", "shop").code
    assert files(SHIPPED) == files(desk.folder / "shop")
    page = code_blocks(PAGE, "json")[0]
    assert page == (SHIPPED / "tools" / "markPaid.json").read_text("utf-8"), "the page prints the tool of the folder"
    assert "examples/flowtools/" in page_text(PAGE)


def test_a_folder_that_has_files_is_refused_and_an_empty_one_is_filled(desk: Desk) -> None:
    (desk.folder / "shop").mkdir()
    assert 0 == desk.type("flow", "new", "shop").code
    before = files(desk.folder / "shop")
    (desk.folder / "shop" / "calls" / "payOrder.json").write_text("mine", "utf-8")
    done = desk.type("flow", "new", "shop")
    assert (2, True) == (done.code, "shop: has files already" in done.err)
    assert files(desk.folder / "shop") == before | {"calls/payOrder.json": b"mine"}
    for impossible in ("shop/README.md", "x" * 300):
        done = desk.type("flow", "new", impossible)
        assert (2, 1, False) == (done.code, len(done.err.splitlines()), "Traceback" in done.err)


@pytest.mark.slow
def test_the_first_block_of_the_page_runs_line_by_line(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    install, new, enter, *lines = code_blocks(PAGE, "sh")[0].splitlines()
    assert ('pip install "oauthbroker[flowtools]"', "cd shop") == (install, enter)
    typed(desk, new)
    desk.canaries.excuse(desk.folder / "shop" / "keys" / "broker.kek")
    monkeypatch.chdir(desk.folder / "shop")
    said = [typed(desk, line) for line in lines]
    assert [("markPaid@1", "succeeded"), ("createOrder@1", "succeeded")] == [
        tuple(line.split()[1:3]) for line in said[-1].splitlines()
    ]


@pytest.mark.slow
def test_the_blocks_of_the_folder_run_and_its_broker_serves_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the port is another one. Each `for` line of the shell is written out."""
    typed(desk, "oauthbroker flow new shop")
    monkeypatch.chdir(desk.folder / "shop")
    desk.canaries.excuse(desk.folder / "shop" / "keys" / "broker.kek")
    play, serve, call = code_blocks(str((SHIPPED / "README.md").relative_to(ROOT)), "sh")
    monkeypatch.setenv("OAUTHBROKER_FLOWS_DATABASE", "sqlite:///try.db")
    assert "export OAUTHBROKER_FLOWS_DATABASE=sqlite:///try.db " in play
    for line in play.splitlines():
        names = ("createOrder", "markPaid", "payOrder") if "$tool" in line else ("",)
        for name in names if "oauthbroker " in line else ():
            typed(desk, line.strip().replace("$tool", name))
    monkeypatch.delenv("OAUTHBROKER_FLOWS_DATABASE")
    make_key, _ = serve.splitlines()
    key = typed(desk, make_key.partition("  #")[0]).splitlines()[0]
    broker = Path("config/broker.yaml")
    broker.write_text(broker.read_text("utf-8").replace("spec:\n", f"spec:\n  listen: {{port: {desk.port}}}\n", 1))
    served = Desk.__new__(Desk)
    vars(served).update(vars(desk), folder=desk.folder / "shop")
    with serving(served):
        for line in call.splitlines():
            _, path = line.rsplit("8420", 1)
            body = Path(line.partition("@")[2].split()[0]).read_bytes()
            status, said = posted(desk.port, path, body, key)
            assert 200 == status, said
    assert "succeeded" == said["status"]


def posted(port: int, path: str, body: bytes, key: str) -> tuple[int, dict[str, str]]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as line:
        line.request("POST", path, body, headers)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())
