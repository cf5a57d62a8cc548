"""`python -m tests.faults.proof_page`: write docs/proof.md from the record of the proof (proof_record.json)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults import long_forms
from tests.faults.proof_parts import EVERY_FILE, PARTS, Part
from tests.faults.proof_record import Run, runs

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
MOST = 160  # characters of a figure
HEAD = """# Proof

Written by `make proof` from the record of its runs (`tests/faults/proof_record.json`). Each part is the long form of tests that `make test` runs shortened. A run that fails takes the place of one that passed; a smaller run that passed does not take the place of a larger one.
"""


def lines(text: str) -> list[str]:
    """Return the printed lines without frames and heads: a row is "name: value", or indented if it has no name."""
    return [line for line in map(_plain, text.splitlines()) if any(map(str.isalnum, line)) and not line.startswith("┃")]


def _plain(line: str) -> str:
    if not line.startswith("│"):
        return line.rstrip()
    name, *values = (cell.strip() for cell in line.strip("│").split("│"))
    return f"{name}: {' '.join(values)}" if name else f"    {' '.join(values)}"


def text(rows: Mapping[str, Run]) -> str:
    """Return the page: the sum of the parts and that of the files, a row for each part, and its figures."""
    parts = [part for part in PARTS if part.title in rows]
    sections = (f"## {part.title}\n\n```\n{chr(10).join(rows[part.title]['figures'])}\n```\n" for part in parts)
    table = ["| part | size | figures | result | seconds | day | commit |", "|---|---|---|---|---|---|---|"]
    rows_of_parts = (_row(part, rows) for part in PARTS if part is not EVERY_FILE)
    return "\n".join([HEAD, *_sums(rows), "", *table, *rows_of_parts, "", *_failures(rows), *sections])


def _sums(rows: Mapping[str, Run]) -> Iterator[str]:
    titles = [part.title for part in PARTS if part is not EVERY_FILE]
    ran = [rows[title] for title in titles if title in rows]
    whole = sum(row["scale"] >= 1 for row in ran)
    yield f"- **{_broken(ran)} of {len(ran)} parts broken**; {whole} ran at their whole size, {len(titles) - len(ran)} never ran."
    all_files = long_forms.files()
    files = {title: rows[title] for title in all_files if title in rows}
    oldest = f", the first of them on {min(row['day'] for row in files.values())}" if files else ""
    yield f"- **{_broken([*files.values()])} of {len(files)} files broken** that ran whole, each row and example{oldest}; {len(all_files) - len(files)} never ran."
    for title, row in files.items():
        if row["result"] != "passed":
            yield f"  - `{title}`: {', '.join(row['figures'])}, {row['day']} at {row['commit']}."


def _broken(ran: list[Run]) -> int:
    return sum(row["result"] != "passed" for row in ran)


def _row(part: Part, rows: Mapping[str, Run]) -> str:
    if part.title not in rows:
        return f"| {part.title} | {part.size(1)} | | never ran | | | |"
    row = rows[part.title]
    size = row["size"] if row["scale"] >= 1 else f"{row['size']} of {part.size(1)}"
    facts = (size, "; ".join(_shown(part, row["figures"])), row["result"], row["seconds"], row["day"], row["commit"])
    return f"| [{part.title}](#{part.title.lower().replace(' ', '-')}) | {' | '.join(map(str, facts))} |"


def _failures(rows: Mapping[str, Run]) -> Iterator[str]:
    """Yield a table of the runs that failed before the last ones."""
    found = [(title, each) for title, row in rows.items() for each in row["failures"]]
    if found:
        yield "## What broke, and how it was mended\n\n| part | broke | day | commit | mended |\n|---|---|---|---|---|"
        for title, each in found:
            facts = (title, _cell(each["broke"]), each["day"], each["commit"], each["mended"])
            yield f"| {' | '.join(facts)} |"
        yield ""


def _cell(text: str) -> str:
    """Return text that fits into a cell."""
    return textwrap.shorten(text, MOST).replace("|", "\\|")


def _shown(part: Part, figures: list[str]) -> Iterator[str]:
    """Yield the figures of the row: the named ones, or the last line of a part that names none."""
    if not part.shown:
        yield from map(_cell, figures[-1:])
    for name in part.shown:
        values = [line.removeprefix(f"{name}:").strip() for line in figures if line.startswith(f"{name}:")]
        if values:
            yield f"{name}: {_cell(', '.join(dict.fromkeys(values)).replace('[]', 'none'))}"


def write() -> None:
    PAGE.write_text(text(runs()), "utf-8")


if __name__ == "__main__":
    write()
    print(f"wrote {PAGE.name}")
