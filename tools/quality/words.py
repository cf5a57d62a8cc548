"""Count the words of each page, those of them that are written by hand, and the longest cell of a table.

No page has more than MOST_OF_PAGE words: prose, every row of every table, and pages and blocks that a command writes. Only
blocks of code are left out. CHANGELOG.md is the one exception: it is a record of each change, in which readers search, and tools and
forges look for it in one file.

By hand are all words but those that a command writes (`<!-- name: written by ... -->` to `<!-- end of name -->`), and the
tables of references, each of whose rows a test holds to the code.

    .venv/bin/python -m tools.quality.words
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MOST_OF_PAGE = 2_500
COPY = ROOT / "oauthbroker" / "flowtools" / "example" / "README.md"  # of examples/flowtools; `flow new` writes it
MOST = 60_000  # words by hand on all pages; lower it when they get fewer
FOLDERS = ("bench", "clients/typescript", "deploy", "docs", "examples", "oauthbroker", "release", "store")
REFERENCES = {
    f"docs/{name}.md"
    for name in (
        "api",
        "api-hostile-tools",
        "audit",
        "configuration",
        "settings",
        "how-to/monitoring",
        "promises",
        "quirks",
    )
}
LEFT_OUT = re.compile(r"(?ms)^ *```.*?^ *```$|^<!-- (\w+): written by .*?<!-- end of \1 -->|<!--.*?-->")
CODE = re.compile(r"(?ms)^ *```.*?^ *```$|<!--.*?-->")
WRITTEN = re.compile(r"\n\s*Written by `make ")  # the whole page is
CELL = re.compile(r"(?<!\\)\|")


class Count(NamedTuple):
    page: str
    words: int
    by_hand: int
    longest_cell: int


def pages() -> Iterator[Path]:
    """Yield all pages but CHANGELOG.md and the copy of a page."""
    for name in ("CONTRIBUTING.md", "README.md", "SECURITY.md"):
        yield ROOT / name
    for folder in FOLDERS:
        for page in sorted((ROOT / folder).rglob("*.md")):
            if "node_modules" not in page.parts and page != COPY:
                yield page


def count(name: str, text: str) -> Count:
    """Return the number of words in a page, of those by hand, and of its longest cell."""
    whole = CODE.sub("", text)
    own = LEFT_OUT.sub("", text).splitlines() if not WRITTEN.search(text) else []
    counted = [line for line in own if name not in REFERENCES or not line.startswith("|")]
    cells = (cell for row in whole.splitlines() if row.startswith("|") for cell in CELL.split(row))
    return Count(name, words_in(whole), words_in("\n".join(counted)), max(map(words_in, cells), default=0))


def words_in(text: str) -> int:
    """Return the number of words; punctuation alone is none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def counts() -> list[Count]:
    """Return the count of each page, the longest first."""
    found = [count(page.relative_to(ROOT).as_posix(), page.read_text("utf-8")) for page in pages()]
    return sorted(found, key=lambda each: -each.words)


if __name__ == "__main__":
    table = counts()
    print(f"{'page':45} {'words':>6} {'by hand':>8} {'longest cell':>13}")
    for row in table:
        print(f"{row.page:45} {row.words:6} {row.by_hand:8} {row.longest_cell:13}")
    print(f"{'all pages':45} {sum(row.words for row in table):6} {sum(row.by_hand for row in table):8}")
