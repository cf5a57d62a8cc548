"""`make proof` checked on small parts: it ends in time, says what failed, and asks for nothing that a part lacks."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import long_forms, proof, proof_page, proof_record
from tests.faults.proof import Done, page, prove
from tests.faults.proof_parts import PARTS, Part
from tests.faults.proof_record import note, ran, runs

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Shell(Part):
    """A part that is a line of shell."""

    def command(self, scale: float) -> list[str]:
        return ["sh", "-c", self.module]


def proven(*lines: str, minutes: float = 1.0) -> list[Done]:
    return prove([Shell(line, line, {"kills": 10}) for line in lines], 0.5, minutes, lambda _: None)


def test_the_page_shows_the_figures_and_the_result_of_each_part():
    text = page(proven("echo refreshes: 7", "echo problems: lost; exit 1"), 0.5)
    assert "| echo refreshes: 7 | 5 kills | passed |" in text
    assert "| echo problems: lost; exit 1 | 5 kills | failed |" in text
    assert "```\nrefreshes: 7\n```" in text


def test_a_part_that_takes_too_long_tidies_up_and_ends_with_its_children_and_the_next_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(proof, "END_SECONDS", 1.0)
    began = time.monotonic()
    first, second = proven("trap 'echo removed' INT; echo begun; sleep 60 & sleep 60", "echo never", minutes=0.01)
    assert ("stopped", "begun\nremoved") == (first.result, first.figures)
    assert ("stopped", "not begun") == (second.result, second.figures)
    assert time.monotonic() - began < 30


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let a run write its record and its pages to a folder of its own."""
    monkeypatch.setattr(proof, "ROOT", tmp_path)
    monkeypatch.setattr(proof, "PAGE", tmp_path / "build" / "proof.md")
    monkeypatch.setattr(proof_page, "PAGE", tmp_path / "proof.md")
    monkeypatch.setattr(proof_record, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(long_forms, "files", list)


@pytest.mark.usefixtures("elsewhere")
def test_the_status_is_that_of_all_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", ["proof"])
    for lines, status in ((["true"], 0), (["true", "false"], 1)):
        monkeypatch.setattr(proof, "PARTS", [Shell(line, line, {"kills": 1}) for line in lines])
        assert status == proof.main()


@pytest.mark.usefixtures("elsewhere")
def test_the_record_and_its_page_say_when_each_part_last_ran_and_at_which_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    titles = {"good": "echo 'problems: none'", "bad": "echo problems: lost; false", "half": "true", "unrun": "true"}
    parts = [Shell(title, line, {"kills": 4}) for title, line in titles.items()]
    monkeypatch.setattr(proof, "PARTS", parts)
    monkeypatch.setattr(proof_page, "PARTS", parts)
    for words in (["--only", "good"], ["--only", "bad"], ["--scale", "0.5", "--only", "half"]):
        monkeypatch.setattr("sys.argv", ["proof", *words])
        proof.main()
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["proof", "--list"])
    assert 0 == proof.main()
    good, bad, half, unrun = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"good \(4 kills\): \d{4}-\d\d-\d\d at \S+: passed in 0 s", good)
    assert re.fullmatch(r"bad \(4 kills\): \d{4}-\d\d-\d\d at \S+: failed in 0 s", bad)
    assert half.startswith("half (2 kills): ")
    assert "unrun: never" == unrun
    written = (tmp_path / "proof.md").read_text("utf-8")
    assert "**1 of 3 parts broken**; 2 ran at their whole size, 1 never ran." in written
    assert "| [good](#good) | 4 kills | problems: none | passed |" in written
    assert "| [bad](#bad) | 4 kills | problems: lost | failed |" in written
    assert "| [half](#half) | 2 kills of 4 kills | " in written
    assert "| unrun | 4 kills | | never ran |" in written


@pytest.mark.usefixtures("elsewhere")
def test_a_smaller_run_is_noted_if_it_failed_and_never_hides_a_larger_one():
    def noted(result: str, scale: float) -> tuple[str, float]:
        note({"kills": ran(result, 1, [], scale=scale)})
        return runs()["kills"]["result"], runs()["kills"]["scale"]

    assert ("passed", 1) == noted("passed", 1)
    assert ("passed", 1) == noted("passed", 0.5)
    assert ("failed", 0.5) == noted("failed", 0.5)
    assert ("failed", 0.5) == noted("passed", 0.1)
    assert ("passed", 0.5) == noted("passed", 0.5)


@pytest.mark.usefixtures("elsewhere")
def test_the_page_names_each_file_that_failed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(long_forms, "files", lambda: ["tests/a.py", "tests/b.py", "tests/c.py"])
    note({"tests/a.py": ran("passed", 1, ["3 passed"]), "tests/b.py": ran("failed", 1, ["1 failed"])})
    written = proof_page.text(runs())
    assert re.search(r"\*\*1 of 2 files broken\*\* that ran whole, .*, the first of them on \S+; 1 never ran", written)
    assert re.search(r"(?m)^  - `tests/b.py`: 1 failed, ", written)


@pytest.mark.usefixtures("elsewhere")
def test_files_that_never_ran_come_first_and_each_is_noted_when_its_batch_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(long_forms, "files", lambda: ["tests/a.py", "tests/b.py", "tests/c.py"])
    monkeypatch.setattr(long_forms, "RESULTS", tmp_path / "results.xml")
    monkeypatch.setattr(long_forms, "BATCH", 1)
    note({"tests/a.py": ran("passed", 1, ["3 passed"])})
    seen: list[tuple[str, set[str]]] = []

    def pytest_runs(_: int, chosen: list[str]) -> int:
        seen.append((chosen[-1], set(runs())))
        name = chosen[-1].removesuffix(".py").replace("/", ".")
        case = f'<testsuite><testcase classname="{name}" time="1"/></testsuite>'
        (tmp_path / "results.xml").write_text(case)
        return int(chosen[-1] == "tests/b.py")

    monkeypatch.setattr(long_forms, "_pytest", pytest_runs)
    assert 1 == long_forms.in_memory(long_forms.longest_ago_first(), 2)
    assert seen == [
        ("tests/b.py", {"tests/a.py"}),
        ("tests/c.py", {"tests/a.py", "tests/b.py"}),
        ("tests/a.py", {"tests/a.py", "tests/b.py", "tests/c.py"}),
    ]


@pytest.mark.usefixtures("elsewhere")
def test_a_failure_stays_on_the_page_when_a_later_run_has_passed():
    for result, figure in (("failed", "problems: a|b"), ("passed", "problems: none"), ("passed", "problems: none")):
        note({"tests/a.py": ran(result, 1, [figure])})
    (failure,) = runs()["tests/a.py"]["failures"]
    assert ("problems: a|b", "") == (failure["broke"], failure["mended"])
    assert re.search(r"(?m)^\| tests/a.py \| problems: a\\\|b \| \S+ \| \S+ \|  \|$", proof_page.text(runs()))


def test_each_failure_of_the_record_says_how_it_was_mended():
    """Write it into tests/faults/proof_record.json."""
    assert [] == [title for title, row in runs().items() for each in row["failures"] if not each["mended"]]


def test_the_page_in_the_docs_is_that_of_the_record():
    """`.venv/bin/python -m tests.faults.proof_page` writes it."""
    assert proof_page.text(runs()) == proof_page.PAGE.read_text("utf-8")


def test_a_run_counts_as_that_of_a_commit_though_it_has_written_its_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@a.example")
        return subprocess.run(
            ("git", *identity, *words), cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    monkeypatch.setattr(proof_record, "ROOT", tmp_path)
    for name in ("code.py", *proof_record.WRITTEN):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    head = git("rev-parse", "--short", "HEAD").strip()
    for name in proof_record.WRITTEN:
        (tmp_path / name).write_text("2\n")
    assert head == proof_record.commit()
    (tmp_path / "code.py").write_text("2\n")
    assert f"{head}-dirty" == proof_record.commit()


def test_the_record_has_the_figures_of_a_table_without_its_frame():
    table = "┏━━┓\n┃ figure ┃ value ┃\n│ answers │ ready: 7 │\n│         │ late: 2  │\n│ problems │ none │\n└──┘\nkills: 3\n"
    expected = ["answers: ready: 7", "    late: 2", "problems: none", "kills: 3"]
    assert expected == proof_page.lines(table)


def test_the_record_names_parts_that_there_are():
    """Delete the rows of parts and files that are gone."""
    assert proof_record.runs().keys() <= {part.title for part in PARTS} | set(long_forms.files())


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.title)
def test_a_part_is_a_program_that_has_these_options(part: Part):
    source = (ROOT / part.module.replace(".", "/")).with_suffix(".py").read_text("utf-8")
    known = set(re.findall(r'add_argument\("(--\w+)"', source))
    assert {word for word in part.command(1) if word.startswith("--")} <= known
    assert 'if __name__ == "__main__"' in source


@pytest.mark.parametrize("scale, kills, minutes", [(1, "300", "6"), (0.1, "30", "1"), (0.001, "1", "1")])
def test_a_smaller_scale_asks_for_less_and_never_for_nothing(scale: float, kills: str, minutes: str):
    kills_part = next(part for part in PARTS if part.module == "tests.faults.kills")
    assert ["--kills", kills] == kills_part.command(scale)[-2:]
    assert ["--minutes", minutes] == PARTS[-1].command(scale)[-2:]


SOURCES = {
    "table": "import pytest\n@pytest.mark.sample(3)\ndef test_a(): ...",
    "law": "from hypothesis import given",
    "sweep": "from tests.kit.forms import swept",
    "form": "from tests.kit import forms",
    "kit": "from tests.crash_kit import broken",
    "plain": "from tests.other_kit import anything",
}


def test_a_file_has_a_long_form_by_its_own_or_by_that_of_a_kit(tmp_path: Path):
    kits = {"crash_kit": "from tests.kit.forms import swept", "other_kit": "import json"}
    for name, source in {**kits, **{f"test_{name}": text for name, text in SOURCES.items()}}.items():
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "tests" / f"{name}.py").write_text(source, "utf-8")
    expected = sorted(f"tests/test_{name}.py" for name in SOURCES if name != "plain")
    assert expected == long_forms.files(tmp_path / "tests")


def test_each_file_is_a_part_that_can_run_alone():
    file = "tests/unit/core/test_clock.py"
    (part,) = proof.parts_with("core/test_clock")
    assert (file, ["--file", file]) == (part.title, part.command(1)[-2:])
    assert list(PARTS) == proof.parts_with("")


XML = """<testsuites><testsuite>
<testcase classname="tests.a" time="1.5"/><testcase classname="tests.a.TestOfAKit" file="tests/kit.py" time="1"><skipped/></testcase>
<testcase classname="tests.b" time="2"><failure/></testcase><testcase classname="tests.c" time="0"><skipped/></testcase>
</testsuite></testsuites>"""


def test_a_file_ran_whole_when_a_test_of_it_ran_and_failed_when_one_failed():
    expected = {"tests/a.py": ("passed", 2.5, "1 passed, 1 skipped"), "tests/b.py": ("failed", 2.0, "1 failed")}
    assert expected == long_forms.results(XML)
