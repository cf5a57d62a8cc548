"""Write the tables of codes in docs/errors.md (English) and docs/errors-korean.md, from `Code` and its sentences.

Each code leads to its section of docs/troubleshooting.md, and has the anchor that the command line prints.

    make errors
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from oauthbroker.cli.output.error_output import anchor_of
from oauthbroker.core.errors import Code

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"en": DOCS / "errors.md", "ko": DOCS / "errors-korean.md"}
BEGIN, END = "<!-- codes: written by `make errors` -->\n", "<!-- end of codes -->\n"


def sections() -> dict[str, str]:
    """Return the anchor of the section of docs/troubleshooting.md whose table has a code, by code."""
    found: dict[str, str] = {}
    for section in re.split(r"(?m)^## ", (DOCS / "troubleshooting.md").read_text("utf-8"))[1:]:
        anchor = section.partition("\n")[0].lower().replace(" ", "-")
        for row in re.findall(r"(?m)^\|(.*)", section):
            for code in re.findall(r"`(\w+)`", row):
                found.setdefault(code, anchor)
    return found


def table(locale: str) -> Iterator[str]:
    """Yield the rows of a language. The English page has the anchors, statuses and causes."""
    if locale != "en":
        yield from ("| code | sentence |", "|---|---|")
        for code in Code:
            yield f"| [`{code.value}`](errors.md#{anchor_of(code)}) | {code.sentence(locale)} |"
        return
    causes = sections()
    yield from ("| code | status | again | sentence | |", "|---|---|---|---|---|")
    for code in Code:
        again, cause = "yes" if code.retryable else "no", f"[cause](troubleshooting.md#{causes[code.value]})"
        row = (f'<a id="{anchor_of(code)}"></a>`{code.value}`', str(code.status), again, code.sentence(), cause)
        yield f"| {' | '.join(row)} |"


def written(page: str, locale: str) -> str:
    """Return a page with its table. Raises ValueError for a page without its two marks."""
    if (page.count(BEGIN), page.count(END)) != (1, 1):
        raise ValueError(f"the page has to have {BEGIN.strip()} and {END.strip()} once each")
    head, _, rest = page.partition(BEGIN)
    rows = "".join(f"{row}\n" for row in table(locale))
    return f"{head}{BEGIN}{rows}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    for locale, path in PAGES.items():
        path.write_text(written(path.read_text("utf-8"), locale), "utf-8")
