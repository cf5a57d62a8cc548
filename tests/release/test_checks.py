"""`make release`: each disagreement is one clear sentence, and nothing is built while there is one."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from release import audit, checks, dist, release, trying
from release.checks import Facts, disagreements, gathered

HEAD, OTHER = "a" * 40, "b" * 40
CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-31\n\n### Added\n\n- More.\n\n## [1.1.0] - 2026-01-01\n"
)
GOOD = Facts(
    version="1.2.0",
    head=HEAD,
    changed=(),
    npm={"package.json": "1.2.0", "package-lock.json": "1.2.0"},
    changelog=CHANGELOG,
    tags={"v1.1.0": OTHER, "v1.2.0": HEAD},
    urls=frozenset({"Changelog", "Documentation", "Issues", "Repository"}),
)


def test_where_all_agree_nothing_is_said():
    assert [] == disagreements(GOOD)
    assert [] == disagreements(replace(GOOD, changelog=CHANGELOG.replace("## [Unreleased]\n\n", "")))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"changed": ("a", "b", "c", "d", "e")}, "not committed: a, b, c and 2 more"),
        ({"changelog": "# Changelog\n\n## [Unreleased]\n"}, "begins with no released version"),
        ({"changelog": CHANGELOG.replace("1.2.0", "1.1.9")}, "begins with 1.1.9, and the version is 1.2.0"),
        ({"changelog": CHANGELOG.replace("[1.2.0] - 2026-01-31", "[1.2.0]")}, "no date for 1.2.0"),
        (
            {"changelog": CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n- New.\n")},
            "unreleased lines above 1.2.0",
        ),
        ({"npm": {**GOOD.npm, "package-lock.json": "1.1.0"}}, "package-lock.json has version 1.1.0"),
        ({"urls": frozenset({"Issues", "Repository"})}, "no Changelog, Documentation in [project.urls]"),
        ({"tags": {"v1.1.0": OTHER}}, "no tag v1.2.0"),
        ({"tags": {**GOOD.tags, "v1.2.0": OTHER}}, f"tag v1.2.0 is on {OTHER[:12]}, and this commit is {HEAD[:12]}"),
    ],
)
def test_each_disagreement_is_one_sentence(change: dict[str, Any], says: str):
    [sentence] = disagreements(replace(GOOD, **change))
    assert says in sentence
    assert sentence.endswith(".")


def test_the_size_of_an_environment_leaves_bytecode_out(tmp_path: Path):
    (tmp_path / "__pycache__").mkdir()
    for name in ("module.py", "__pycache__/module.cpython-311.pyc"):
        (tmp_path / name).write_bytes(b"x" * 3_000_000)
    (tmp_path / "link").symlink_to(tmp_path / "module.py")
    assert 3 == trying.megabytes(tmp_path)


def test_while_something_disagrees_nothing_is_built(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(checks, "gathered", lambda: replace(GOOD, changed=("a",)))
    monkeypatch.setattr(dist, "main", lambda: pytest.fail("built"))
    assert 1 == release.main()
    said = capsys.readouterr()
    assert ("", 2) == (said.out, len(said.err.splitlines()))


@pytest.mark.parametrize(("vulnerable", "built", "status"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_it_ends_before_publishing(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, vulnerable: int, built: int, status: int
):
    monkeypatch.setattr(checks, "gathered", lambda: GOOD)
    monkeypatch.setattr(audit, "main", lambda: vulnerable)
    monkeypatch.setattr(dist, "main", lambda: built)
    assert status == release.main()
    assert ("Nothing was published" in capsys.readouterr().out) is (status == 0)


def test_the_facts_are_those_of_a_repository(tmp_path: Path):
    """A small one, with a tag of each kind."""

    def git(*words: str) -> str:
        who = (
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@example.org",
            "-c",
            "commit.gpgsign=false",
            "-c",
            "tag.gpgsign=false",
        )
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    client = tmp_path / "clients/typescript"
    (client / "src").mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        (client / name).write_text('{"version": "0.9.0"}')
    (client / "src/version.ts").write_text('export const VERSION = "0.9.0";')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://code.example.org/broker"\n')
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    git("tag", "v0.8.0")
    git("tag", "-a", "v0.9.0", "-m", "two")
    git("tag", "other")
    head = git("rev-parse", "HEAD").strip()
    (tmp_path / "new").touch()
    facts = gathered(tmp_path)
    assert {"v0.8.0": head, "v0.9.0": head} == facts.tags
    assert (("new",), head) == (facts.changed, facts.head)
    assert dict.fromkeys(("package.json", "package-lock.json", "src/version.ts"), "0.9.0") == facts.npm
    assert {"Repository"} == facts.urls


FOUND = {
    "dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2", "3"]}, {"id": "X-2"}]}]
}
CLEAN = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        ({"pypi": CLEAN}, 0, "ok: no known"),
        ({"pypi": FOUND}, 1, "a 1: X-1, fixed in 2, 3\na 1: X-2, fixed in no version yet"),
        ({"pypi": None, "osv": FOUND}, 1, "a 1: X-1"),
        ({"pypi": None, "osv": None}, 0, "SKIPPED: "),
    ],
)
def test_vulnerabilities_are_told_and_a_source_that_cannot_be_read_is_too(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, answers: dict[str, Any], status: int, says: str
):
    monkeypatch.setattr(audit, "asked", lambda source, _pins: answers[source])
    assert status == audit.main()
    assert capsys.readouterr().err.startswith(says)


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (CLEAN, True),
        (FOUND, True),
        ({"dependencies": []}, False),
        ({"dependencies": [*CLEAN["dependencies"], {"name": "b", "skip_reason": "not found"}]}, False),
        ([], False),
    ],
)
def test_a_source_that_knows_not_every_package_is_no_source(answer: Any, whole: bool):
    """pip-audit ends well where a mirror has no list of vulnerabilities: every package is skipped."""
    assert whole is audit.is_whole(answer)
