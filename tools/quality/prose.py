"""Find the words that make prose hard to read, in pages, docstrings, comments, messages, templates and names of tests.

In the package, also find docstrings of functions that open without a verb, and in pages cells of tables with more than
40 words. `make check` runs this file. It fails where a file has more hits than prose_left.json allows, and where a file has fewer, so that the table only shrinks.
`make prose` writes the table anew, unless the total has grown. `ARGS=path` lists the hits of the files whose path
starts with it. Text in `backticks` is code and is not read.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LEFT = Path(__file__).with_name("prose_left.json")
OWN = {Path(__file__), Path(__file__).with_name("test_prose.py")}  # they say the hard words

# What to say instead. The rules are in CONTRIBUTING.md, "Plain English"; the terms are in docs/glossary.md.
INSTEAD = {
    r"who(?:m|so)?ever\b|who else\b|\bhe who": "the person: the user, the operator, the caller, the provider",
    r"(?:some|any|no|every)body(?:'s)?": "the person: the user, the operator, the caller",
    r"someone|no one|everyone|(?<!authorizers: )anyone": "the person: the user, the operator, the caller",
    r"whatever|whichever|whithersoever": "any, each, or the noun",
    r"what(?: else)? (?:is|was|are|were|has|had|it|they)\b(?![^.\n]*\?)": "the noun: the stored values, the scopes",
    r"(?:he|him|his|himself)": "they, them, their",
    r"not (?:there )?any more|no more(?! than)": "no longer, ended, deleted",
    r"it is for others to": "name who does it",
    r"told (?:this )?once|telling it (?:once|twice)": "printed once; idempotent",
    r"renew(?:s|ed|ing|al|als|able)?": "refresh",
    r"agreements?": "grant",
}
WORDS = re.compile("|".join(rf"(?P<w{number}>\b(?:{word})\b)" for number, word in enumerate(INSTEAD)), re.IGNORECASE)

THIRD_PERSON = re.compile(r"(?!Raises)[A-Z][a-z]*[^s]s")  # Ends, for End. "Raises X." may be all that a function does

# A function's docstring opens with a verb. These words open a fragment instead; properties may begin with their noun.
NO_VERB = frozenset(
    [
        "a",
        "all",
        "also",
        "alone",
        "always",
        "an",
        "another",
        "any",
        "as",
        "both",
        "by",
        "each",
        "every",
        "everything",
        "for",
        "from",
        "how",
        "in",
        "inside",
        "into",
        "it",
        "its",
        "like",
        "no",
        "not",
        "nothing",
        "of",
        "off",
        "on",
        "one",
        "only",
        "our",
        "over",
        "rfc",
        "something",
        "that",
        "the",
        "their",
        "these",
        "they",
        "this",
        "those",
        "to",
        "until",
        "what",
        "when",
        "where",
        "whether",
        "who",
        "whom",
        "whose",
        "why",
        "with",
        "without",
    ]
)
OPENING = "a verb: Return, Yield, Raise, Write"
MOST_WORDS = 40  # of a table's cell
SHORTER = f"it in {MOST_WORDS} words at most: in two rows, or in a sentence below the table"


class Hit(NamedTuple):
    file: str
    line: int
    word: str
    instead: str


def files() -> Iterator[Path]:
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "store/README.md",
        "clients/*/README.md",
        "clients/*/src/*.ts",
    ):
        yield from sorted(path for path in ROOT.glob(pattern) if path.name != "CHANGELOG.md")
    for folder in ("oauthbroker", "tests", "tools", "bench", "examples"):
        found = (path for kind in ("py", "html", "yaml", "md") for path in ROOT.glob(f"{folder}/**/*.{kind}"))
        yield from sorted(path for path in found if path not in OWN and "node_modules" not in path.parts)


def prose(name: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) for each line of prose: of Python the docstrings, comments, messages and names of tests, of other
    files all."""
    if not name.endswith(".py"):
        yield from enumerate(source.splitlines(), 1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield from enumerate(node.value.splitlines(), node.lineno)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def openings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, first word) of each docstring of a function that opens without a verb."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_property(node):
            continue
        opening = (ast.get_docstring(node) or "Do nothing").split()[0]
        word = opening.strip(",.:;")
        if word.lower() in NO_VERB or THIRD_PERSON.fullmatch(word) or opening[0] in "(0123456789":
            yield node.body[0].lineno, opening


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(each) for each in node.decorator_list)


def long_cells(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, first words) of each cell of a table, outside of code, that is too long to read."""
    code = False
    for number, line in enumerate(source.splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        for cell in re.split(r"(?<!\\)\|", line) if line.startswith("|") and not code else ():
            if len(cell.split()) > MOST_WORDS:
                yield number, " ".join(cell.split()[:5])


def hits(name: str, source: str) -> list[Hit]:
    """Return the forbidden words and long cells of one file, by line."""
    sayings = [*INSTEAD.values()]
    words = [
        Hit(name, line, found[0], sayings[int(str(found.lastgroup)[1:])])
        for line, text in prose(name, source)
        for found in WORDS.finditer(re.sub(r"``?[^`]*``?", "` `", text))
    ]
    begun = openings(source) if name.endswith(".py") and name.startswith("oauthbroker/") else ()
    is_page = name.endswith(".md") and not name.startswith("tests/")
    cells = long_cells(source) if is_page else ()
    return sorted(
        [
            *words,
            *(Hit(name, line, word, OPENING) for line, word in begun),
            *(Hit(name, line, cell, SHORTER) for line, cell in cells),
        ]
    )


def found(paths: Iterable[Path]) -> list[Hit]:
    return [hit for path in paths for hit in hits(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))]


def faults(now: list[Hit], left: dict[str, int]) -> list[str]:
    """Name every hit of a file that has more than the table allows, and every row of the table that is too high."""
    counts = Counter(hit.file for hit in now)
    grown = {file for file, count in counts.items() if count > left.get(file, 0)}
    lines = [f"{hit.file}:{hit.line}: {hit.word!r}; say {hit.instead}" for hit in now if hit.file in grown]
    fewer = sorted(file for file, count in left.items() if counts[file] < count)
    return lines + [f"{file}: {counts[file]} instead of {left[file]} are left; run `make prose`" for file in fewer]


def lowered(now: list[Hit], left: dict[str, int]) -> dict[str, int]:
    """Return the new table. A file that moved takes its hits along; the total never grows."""
    if len(now) > sum(left.values()):
        raise SystemExit("\n".join([*faults(now, left), "There are more hits than before: reword the new ones."]))
    return dict(sorted(Counter(hit.file for hit in now).items()))


def main(words: list[str]) -> str | None:
    left: dict[str, int] = json.loads(LEFT.read_text("utf-8"))
    now = found(files())
    if words == ["--lower"]:
        LEFT.write_text(json.dumps(lowered(now, left), indent=0) + "\n", "utf-8")
        return None
    if words:
        for hit in now:
            if hit.file.startswith(tuple(words)):
                print(f"{hit.file}:{hit.line}: {hit.word!r}; say {hit.instead}")
        return None
    return "\n".join(faults(now, left)) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
