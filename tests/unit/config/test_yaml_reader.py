"""The reader: plain data with places; nothing of YAML that could surprise, explode or execute."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.config.problems.problems import Problems
from oauthbroker.config.reading import yaml_reader
from oauthbroker.config.reading.files import MAX_BYTES, MAX_FILES
from oauthbroker.config.reading.yaml_reader import MAX_DEPTH, MAX_PARSED_DEPTH, YamlDocument
from oauthbroker.config.reading.yaml_scalars import AMBIGUOUS, UNREADABLE
from tests.unit.config.bundles import APP, CANARY, everything_said, refused, write


def read(text: str) -> tuple[list[YamlDocument], list[str]]:
    problems = Problems()
    documents = yaml_reader.read(text, "a.yaml", Path(), problems)
    return documents, [str(problem) for problem in problems.found]


def value(text: str) -> Any:
    [document], problems = read(text)
    assert not problems
    return document.data


def test_every_value_and_key_knows_its_line_and_column():
    [first, second], problems = read("a:\n  b: [1, two]\n---\n  - x: y\n")
    assert [] == problems
    assert {"a": {"b": [1, "two"]}} == first.data
    assert ("a.yaml:2:6", "a.yaml:2:10") == (str(first.value_at(("a", "b"))), str(first.value_at(("a", "b", 1))))
    assert "a.yaml:2:3" == str(first.key_at(("a", "b")))
    assert "a.yaml:4:5" == str(second.key_at((0, "x")))


def test_a_missing_member_is_reported_at_its_parent():
    [document], _ = read("spec:\n  client:\n    id: 1\n")
    assert "a.yaml:2:3" == str(document.value_at(("spec", "client", "secret", "env")))
    assert "a.yaml:1:1" == str(document.value_at(("metadata",)))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("word", "word"), ('"0123"', "0123"), ("'yes'", "yes"), ("|\n  0123\n", "0123\n"), ("0", 0), ("-7", -7),
        ("12.5", 12.5), ("true", True), ("False", False), ("3.14.1", "3.14.1"), ("https://a.b/c", "https://a.b/c"),
        ("-", [None]), ("chat:write", "chat:write"), ("2026", 2026),
    ],
)  # fmt: skip
def test_what_both_yaml_versions_agree_on_is_taken(text: str, expected: Any):
    assert expected == value(text)


@pytest.mark.case("95")
@pytest.mark.parametrize(
    "text",
    ["0123", "0o17", "0x1F", "0b11", "1_000", "1:20", "1e3", "+5", ".5", "1.", ".inf", ".NaN", "yes", "No", "ON", "off",
     "2026-01-01", "2026-01-01T10:00:00Z", "<<", "=", "190000000000000000000"],
)  # fmt: skip
def test_what_yaml_versions_read_differently_is_no_value(text: str):
    assert [AMBIGUOUS] == value(f"[{text}]")


@settings(deadline=None)
@given(st.text(alphabet="0123456789.:_-+eExobyn~=<> #", min_size=1, max_size=8))
def test_a_bare_scalar_is_never_another_number_than_in_the_standard_reader(text: str):
    documents, problems = read(text)
    if problems or not documents or not isinstance(documents[0].data, int | float):
        return
    assert documents[0].data == yaml.safe_load(text)


@pytest.mark.case("97")
@pytest.mark.parametrize(
    "text, line, path, what",
    [
        ("a: &x 1\nb: 2\n", 1, "?", "YAML anchors are not read"),
        ("spec: *x\n", 1, "spec", "YAML aliases are not read"),
        ("a: 1\n&k b: 2\n", 2, "", "YAML anchors are not read"),
        ("- *x\n", 1, "[0]", "YAML aliases are not read"),
        ("*x : 1\n", 1, "", "YAML aliases are not read"),
        ("spec: !!python/object/apply:os.system [x]\n", 1, "spec", "YAML tags are not read"),
        ("spec: !!python/name:os.system ''\n", 1, "spec", "YAML tags are not read"),
        ("spec: !!str 0123\n", 1, "spec", "YAML tags are not read"),
        ("spec: !own {a: 1}\n", 1, "spec", "YAML tags are not read"),
        ("spec: ! x\n", 1, "spec", "YAML tags are not read"),
        ("spec:\n  scopes: 1\n  scopes: 2\n", 3, "spec", "The same key is written twice"),
        ("spec: {? [a] : 1}\n", 1, "spec", "A key is not text"),
        ("spec: {? {a: b} : {c: d}, scopes: 1}\n", 1, "spec", "A key is not text"),
        ("spec: {12: 1}\n", 1, "spec", "A key is not text"),
        ("spec: {on: 1}\n", 1, "spec", "A key is not text"),
        ("spec: {<<: {a: 1}}\n", 1, "spec", "A key is not text"),
        ("spec: {~: 1}\n", 1, "spec", "A key is not text"),
    ],
)
def test_is_refused_at_its_place(text: str, line: int, path: str, what: str):
    _, [problem] = read(text)
    place, _, rest = problem.partition(": ")
    assert place.startswith(f"a.yaml:{line}:")
    assert path == place.partition(" ")[2]
    assert rest.startswith(what)


def test_a_refused_part_leaves_a_gap_and_nothing_else():
    [document], _ = read("a: &x {b: 1}\nc: *x\nd: !t [1, {e: 2}]\nd: 3\n? [k]\n: {v: [1]}\nf: 4\n")
    assert {"a": {"b": 1}, "c": UNREADABLE, "d": UNREADABLE, "f": 4} == document.data


@pytest.mark.case("97")
@pytest.mark.parametrize(
    "text",
    ["a: [1\n", "a: b: c\n", "a: 'x\n", "a: `\n", "{a: 1}}\n", "%YAML 9.9\n---\na: 1\n", "a: \x07\n",
     "a: @x\n", "- a\nb: 1\n", "key: [unclosed, " + CANARY + "\n", 'a: "\\q"\n', "a: !<tag:\n"],
)  # fmt: skip
def test_text_that_is_not_yaml_is_refused_in_our_own_words(text: str):
    _, [problem] = read(text)
    assert "This is not well-formed YAML. Check indentation" in problem
    assert CANARY not in problem


@pytest.mark.parametrize(
    "text, place",
    [
        ("\ta: 1\n", "1:1"), ("a:\n\tb: 1\n", "2:1"), ("a:\n  b: 1\n\tc: 2\n", "3:1"), ("a:\n  b: 1\n  \tc: 2\n", "3:3"),
        ("a:\n  - x\n\t- y\n", "3:1"), ("a: |\n\tx\n", "2:1"), ("x: 1\n---\na:\n\tb: 1\n", "4:1"),
    ],
)  # fmt: skip
def test_a_tab_in_the_indentation_is_called_a_tab(text: str, place: str):
    _, [problem] = read(text)
    assert f"a.yaml:{place}: A tab in the indentation. Indent with spaces." == problem


def test_a_tab_elsewhere_is_not_blamed():
    assert {"a": "b"} == value("a:\tb\n")
    _, [problem] = read("a:\tb\nc: [\n")
    assert "This is not well-formed YAML" in problem


def test_a_key_that_is_written_twice_comes_before_what_may_follow_from_it(tmp_path: Any):
    twice = APP.replace("  scopes: [read, write]", "  scopes: [no]\n  scopes: [read, write]")
    error = refused(write(tmp_path / "b", a_first="kind: OAuthAp\n", app=twice))
    assert "the same key is written twice in one mapping" == error.problems[0].what
    assert ["a_first.yaml", "app.yaml"] == list(dict.fromkeys(Path(it.file).name for it in error.problems[1:]))


def test_documents_before_a_mistake_are_still_read():
    [document], [problem] = read("a: 1\n---\nb: [\n")
    assert {"a": 1} == document.data
    assert problem.startswith("a.yaml:4:1")


@pytest.mark.case("97")
@pytest.mark.parametrize("text", ["[" * 33, "{a: " * 33, "".join("  " * n + "a:\n" for n in range(40)), "[" * 10_000])
def test_depth_is_limited(text: str):
    _, [problem] = read(text)
    assert "Nested deeper than 32 levels. Flatten it" in problem


DEEP = {"lists": "[" * 5000, "mappings": "{a: " * 5000, "block lists": "- " * 5000 + "x"}


@pytest.mark.case("97")
@pytest.mark.parametrize(
    "head, deepest, line",
    [("", MAX_DEPTH, 1), ("kind: Widget\nspec:\n  ", MAX_PARSED_DEPTH, 3)],
    ids=["ours", "foreign"],
)
@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP.keys())
def test_a_deep_file_is_refused_before_its_depth_costs_anything(
    head: str, deepest: int, line: int, deep: str, monkeypatch: pytest.MonkeyPatch
):
    parse, events = yaml.parse, list[Any]()

    def counted(*args: Any, **more: Any) -> Iterator[Any]:
        for event in parse(*args, **more):
            events.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    _, [problem] = read(head + deep)
    assert problem.startswith(f"a.yaml:{line}:")
    assert f"Nested deeper than {deepest} levels. Flatten it" in problem
    assert len(events) < 2 * MAX_PARSED_DEPTH + 10


def test_thirty_two_levels_are_fine():
    assert [] == read("[" * 32 + "]" * 32)[1]


@pytest.mark.case("97")
def test_an_alias_bomb_is_refused_before_it_can_explode(tmp_path: Any):
    rows = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    rows += [f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]" for p, n in zip("abcdefgh", "bcdefghi", strict=True)]
    tracemalloc.start()
    error = refused(write(tmp_path / "b", bomb="\n".join(rows)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 9 + 8 * 9 == sum(problem.what.startswith("YAML ") for problem in error.problems)
    assert peak < 8 * 1024 * 1024


@pytest.mark.case("97")
def test_a_python_tag_runs_nothing(tmp_path: Any):
    trace = tmp_path / "trace"
    text = APP.replace("provider: acme", f"provider: !!python/object/apply:os.mkdir ['{trace}']")
    [problem] = refused(write(tmp_path / "b", app=text)).problems
    assert ("spec.provider", "YAML tags are not read") == (problem.path, problem.what)
    assert not trace.exists()


@pytest.mark.case("97")
def test_a_50_mb_file_is_refused_without_being_read(tmp_path: Any):
    folder = write(tmp_path / "b", app=APP)
    with folder.joinpath("big.yaml").open("wb") as big:
        big.truncate(50 * 1024 * 1024)
    tracemalloc.start()
    [problem] = refused(folder).problems
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ("too large", f"{folder}/big.yaml") == (problem.what, problem.file)
    assert "1024 kB" in problem.hint
    assert peak < 4 * 1024 * 1024


@pytest.mark.case("97")
def test_one_megabyte_is_the_limit(tmp_path: Any):
    filler = "# " + "x" * (MAX_BYTES - len(APP) - 3) + "\n"
    assert MAX_BYTES == len(APP + filler)
    load(write(tmp_path / "b", app=APP + filler))
    [problem] = refused(write(tmp_path / "c", app=APP + filler + "\n")).problems
    assert "too large" == problem.what


def test_a_thousand_files_are_the_limit(tmp_path: Any):
    folder = write(tmp_path / "b", **{f"n{number}": "" for number in range(MAX_FILES + 1)})
    [problem] = refused(folder).problems
    assert f"more than {MAX_FILES} YAML files" == problem.what


@pytest.mark.parametrize("content, what", [(b"a: \xff\xfe\n", "not UTF-8 text"), (None, "not a readable plain file")])
def test_a_file_that_is_not_text_is_refused(content: bytes | None, what: str, tmp_path: Any):
    file = tmp_path / "a.yaml"
    if content is None:
        os.mkfifo(file)  # it has no writer: opening it must not wait
    else:
        file.write_bytes(content)
    [problem] = refused(tmp_path).problems
    assert (str(file), 0, what) == (problem.file, problem.line, problem.what)


@pytest.mark.parametrize("name, what", [("nowhere", "no such file or directory"), (".", "no YAML file here")])
def test_a_path_with_nothing_to_read_is_refused(name: str, what: str, tmp_path: Any):
    [problem] = refused(tmp_path / name).problems
    assert what in problem.what


def test_a_folder_is_read_to_its_depths_without_what_begins_with_a_dot(tmp_path: Any):
    write(tmp_path, one=APP)
    write(tmp_path / "deep", two=APP.replace("acme}", "two}").replace("callback/acme", "callback/two"))
    write(tmp_path / "..2026_11_21", one=APP)  # how mounted folders keep their older versions
    tmp_path.joinpath("three.yml").write_text("# nothing\n")
    tmp_path.joinpath("notes.txt").write_text(": not YAML [")
    assert {"acme", "two"} == set(load(tmp_path).apps)
    assert {"acme"} == set(load(tmp_path / "one.yaml").apps)


def test_a_missing_app_is_not_claimed_while_a_file_cannot_be_read(tmp_path: Any):
    tool = "apiVersion: goondan.ai/v1\nkind: Tool\nmetadata: {name: t}\nspec: {auth: {oauthAppRef: OAuthApp/acme}}\n"
    folder = write(tmp_path / "b", app=APP + "  broken: [\n", tool=tool)
    assert ["this is not well-formed YAML"] == [problem.what for problem in refused(folder).problems]


def test_a_file_name_cannot_forge_a_line_of_the_report(tmp_path: Any):
    tmp_path.joinpath("a\nb\x1b[31m.yaml").write_text("x: [", "utf-8")
    [problem] = refused(tmp_path).problems
    assert "a?b?[31m.yaml" in str(problem)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_load_or_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    file = tmp_path_factory.mktemp("any") / "a.yaml"
    file.write_bytes(content)
    outcome: Any = None
    try:
        load(file)
    except ConfigInvalidError as error:
        outcome = error
    assert outcome is None or (outcome.problems and outcome.__cause__ is outcome.__context__ is None)


def test_the_reader_of_pure_python_says_the_same(monkeypatch: pytest.MonkeyPatch):
    texts = [APP, "a: &x 1\nb: *x\n", "a: !!str 1\n", "a: 1\na: 2\n", "[" * 40, "a: [0123, yes, 1.5]\n"]
    expected = [read(text) for text in texts]
    monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)
    assert expected == [read(text) for text in texts]


def test_nothing_of_a_broken_file_is_quoted(tmp_path: Any):
    folder = write(tmp_path / "b", app=APP.replace("{env: ACME_SECRET}", f"{{value: {CANARY}"))
    assert CANARY not in everything_said(refused(folder))
