"""Count the words that are written by hand in the pages, and name the longest cell of a table in each.

Left out: blocks of code, pages and blocks that a command writes (`<!-- name: written by ... -->` to `<!-- end of name -->`),
the tables of references, each of whose rows a test holds to the code, and CHANGELOG.md, which grows with each release.

    .venv/bin/python -m tools.quality.words
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MOST = 60_000  # words by hand on all pages; lower it when they get fewer
FOLDERS = ("bench", "clients/typescript", "deploy", "docs", "examples", "oauthbroker", "release", "store")
WRITTEN = {
    "docs/credential-presets.md",
    "docs/performance.md",
    "docs/providers.md",
}  # by make providers, make performance
REFERENCES = {
    f"docs/{name}.md"
    for name in (
        *("api", "audit", "cli", "configuration", "settings", "errors", "how-to/monitoring", "promises"),
        "quirks",
    )
}
LEFT_OUT = re.compile(r"(?ms)^ *```.*?^ *```$|^<!-- (\w+): written by .*?<!-- end of \1 -->|<!--.*?-->")
CELL = re.compile(r"(?<!\\)\|")


class Count(NamedTuple):
    page: str
    words: int
    longest_cell: int


def pages() -> Iterator[Path]:
    """Yield the pages that are written by hand."""
    for name in ("CONTRIBUTING.md", "README.md", "SECURITY.md"):
        yield ROOT / name
    for folder in FOLDERS:
        for page in sorted((ROOT / folder).rglob("*.md")):
            if "node_modules" not in page.parts and page.relative_to(ROOT).as_posix() not in WRITTEN:
                yield page


def count(name: str, text: str) -> Count:
    """Return the number of words by hand in a page, and of its longest cell."""
    lines = LEFT_OUT.sub("", text).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    counted = [line for line in lines if name not in REFERENCES or line not in rows]
    longest = max((words_in(cell) for row in rows for cell in CELL.split(row)), default=0)
    return Count(name, words_in("\n".join(counted)), longest)


def words_in(text: str) -> int:
    """Return the number of words; punctuation alone is none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def counts() -> list[Count]:
    """Return the count of each page, the longest first."""
    found = [count(page.relative_to(ROOT).as_posix(), page.read_text("utf-8")) for page in pages()]
    return sorted(found, key=lambda each: -each.words)


if __name__ == "__main__":
    table = counts()
    print(f"{'page':45} {'words':>6} {'longest cell':>13}")
    for row in table:
        print(f"{row.page:45} {row.words:6} {row.longest_cell:13}")
    print(f"{'all pages':45} {sum(row.words for row in table):6}")
