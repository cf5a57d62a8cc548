"""`make proof` checked on small parts: it ends in time, says what failed, and asks for nothing that a part lacks."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import long_forms, proof, proof_record
from tests.faults.proof import PARTS, Done, Part, page, prove

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


def test_a_part_that_takes_too_long_is_stopped_with_its_children_and_the_next_is_not_begun():
    began = time.monotonic()
    first, second = proven("echo begun; sleep 60 & sleep 60", "echo never", minutes=0.01)
    assert ("stopped", "begun") == (first.result, first.figures)
    assert ("stopped", "not begun") == (second.result, second.figures)
    assert time.monotonic() - began < 30


def test_the_status_is_that_of_all_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(proof, "ROOT", tmp_path)
    monkeypatch.setattr(proof, "PAGE", tmp_path / "build" / "proof.md")
    monkeypatch.setattr(proof_record, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(long_forms, "files", list)
    monkeypatch.setattr("sys.argv", ["proof"])
    for lines, status in ((["true"], 0), (["true", "false"], 1)):
        monkeypatch.setattr(proof, "PARTS", [Shell(line, line, {"kills": 1}) for line in lines])
        assert status == proof.main()


def test_the_record_says_when_each_part_last_ran_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(proof, "ROOT", tmp_path)
    monkeypatch.setattr(proof, "PAGE", tmp_path / "build" / "proof.md")
    monkeypatch.setattr(proof_record, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(long_forms, "files", list)
    parts = [
        Shell(title, line, {"kills": 1}) for title, line in (("good", "true"), ("bad", "false"), ("unrun", "true"))
    ]
    monkeypatch.setattr(proof, "PARTS", parts)
    for words in (["--scale", "0.5", "--only", "unrun"], ["--only", "good"], ["--only", "bad"]):
        monkeypatch.setattr("sys.argv", ["proof", *words])
        proof.main()
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", ["proof", "--list"])
    assert 0 == proof.main()
    good, bad, unrun = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"good: \d{4}-\d\d-\d\d at \S+: passed in 0 s", good)
    assert re.fullmatch(r"bad: \d{4}-\d\d-\d\d at \S+: failed in 0 s", bad)
    assert "unrun: never" == unrun


def test_the_record_has_the_last_figure_of_a_table():
    assert "problems: it waited" == proof._last_line("refreshes: 7\n│ problems   │ it waited │\n└──┘")
    assert "" == proof._last_line("")


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
<testcase file="tests/a.py" time="1.5"/><testcase file="tests/a.py" time="1"><skipped/></testcase>
<testcase file="tests/b.py" time="2"><failure/></testcase><testcase file="tests/c.py" time="0"><skipped/></testcase>
</testsuite></testsuites>"""


def test_a_file_ran_whole_when_a_test_of_it_ran_and_failed_when_one_failed():
    expected = {"tests/a.py": ("passed", 2.5, "1 passed, 1 skipped"), "tests/b.py": ("failed", 2.0, "1 failed")}
    assert expected == long_forms.results(XML)
