"""The check for hard words finds them in prose, leaves code alone, and its table of exceptions only shrinks."""

from __future__ import annotations

import pytest

from tools.quality.prose import Hit, faults, hits, lowered

HARD = (
    "whoever",
    "nobody's",
    "somebody",
    "Everybody",
    "anyone",
    "whatever",
    "what is not there",
    "himself",
    "no more",
    "renewed",
    "agreement",
    "told this once",
    "it is for others to",
)
SOUND = (
    "authorizers: anyone",
    "no more than ten",
    "What is a grant?",
    "the refreshed token",
    "`nobody` and ``renew()``",
)


@pytest.mark.parametrize("word", HARD)
@pytest.mark.parametrize("place", ["{}", '"""Say {}."""', "# {}", 'raise ValueError("say {}")', 'f"say {} {{x}}"'])
def test_a_hard_word_is_found_with_its_line_in_every_kind_of_prose(word: str, place: str) -> None:
    name = "page.md" if place == "{}" else "plugin.py"
    [hit] = hits(name, f"\n\n{place.format(word)}\n")
    assert (name, 3, True) == (hit.file, hit.line, hit.word in word)


@pytest.mark.parametrize("text", SOUND)
def test_plain_words_and_code_are_not_found(text: str) -> None:
    assert [] == hits("page.md", text)


def test_names_of_python_are_not_read_except_those_of_tests() -> None:
    assert [] == hits("plugin.py", 'nobody = whatever("renewed", x.he)\ndef nobody(): ...\n')
    [hit] = hits("test_plugin.py", "class Contract:\n    async def test_nobody_waits(self): ...\n")
    assert (2, "nobody") == (hit.line, hit.word)


@pytest.mark.parametrize(
    "opening", ["The newest grant.", "Whether it is over.", "204.", "(a, b) of it.", "Whom it names.", "Ends a grant."]
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_docstring_of_a_function_that_opens_without_a_verb_is_found(opening: str, kind: str) -> None:
    [hit] = hits("oauthbroker/plugin.py", f'x = 1\n{kind} call():\n    """{opening}"""\n')
    assert (3, opening.split(maxsplit=1)[0]) == (hit.line, hit.word)


def test_a_verb_may_open_a_docstring_and_a_noun_that_of_a_property_or_a_class() -> None:
    source = """
class Grant:
    '''A grant.'''

    def read(self): 'Return the newest grant.'

    @property
    def name(self): 'The name.'

    @cached_property
    def part(self): 'The part.'

    def bare(self): ...
"""
    assert [] == hits("oauthbroker/plugin.py", source)


NOW = [Hit("a.md", 1, "nobody", "..."), Hit("a.md", 7, "nobody", "..."), Hit("b.md", 2, "nobody", "...")]


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ({"a.md": 2, "b.md": 1}, []),
        ({"a.md": 1, "b.md": 1}, ["a.md:1", "a.md:7"]),
        ({"a.md": 2}, ["b.md:2"]),
        ({"a.md": 2, "b.md": 3}, ["b.md: 1 instead of 3"]),
        ({"a.md": 2, "b.md": 1, "gone.md": 1}, ["gone.md: 0 instead of 1"]),
    ],
)
def test_more_hits_than_a_file_may_have_are_named_and_fewer_too(left: dict[str, int], said: list[str]) -> None:
    found = faults(NOW, left)
    assert len(said) == len(found)
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True))


def test_the_table_is_lowered_and_follows_a_file_that_moved() -> None:
    assert {"a.md": 2, "b.md": 1} == lowered(NOW, {"a.md": 5})


def test_the_table_is_never_raised() -> None:
    with pytest.raises(SystemExit, match=r"b\.md:2"):
        lowered(NOW, {"a.md": 2})


@pytest.mark.parametrize(
    ("page", "long"),
    [
        ("| a | {} |", [1]),
        ("| {} | b |\n|---|---|\n| c | {} |", [1, 3]),
        ("| {20} \\| {20} | b |", [1]),
        ("| {} | " + "word " * 40 + "|", [1]),
        ("A paragraph: {} {}", []),
        ("```\n| {} |\n```", []),
        ("```\n| {} |\n```\n| {} |", [4]),
    ],
)
def test_a_cell_of_a_table_has_at_most_forty_words(page: str, long: list[int]) -> None:
    text = page.replace("{20}", "word " * 20)
    assert long == [hit.line for hit in hits("page.md", text.replace("{}", "word " * 41))]
    assert [] == hits("page.md", page.replace("{}", "word " * 40).replace("{20}", "word " * 19))
