"""Write the tables of the pages on errors and on the command line from the product's own codes, sentences and help.

Each code leads to its section of docs/troubleshooting.md, and has the anchor that the command line prints.

    make tables
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from oauthbroker import cli
from oauthbroker.cli.output.error_output import anchor_of
from oauthbroker.core.errors import Code
from tools.site.reference.command_line import commands, summary
from tools.site.reference.markdown import prose, table

DOCS = Path(__file__).parents[2] / "docs"
ENGLISH, KOREAN, COMMANDS = DOCS / "errors.md", DOCS / "errors-korean.md", DOCS / "cli.md"
COMMON = {"--help", "--json", "--config"}  # the page names them once for all commands


class Table(NamedTuple):
    """A table between `<!-- NAME: written by ... -->` and `<!-- end of NAME -->`."""

    page: Path
    name: str
    rows: Callable[[], Iterator[tuple[str, ...]]]  # its head first

    def written(self, text: str) -> str:
        """Return the page's text with this table. Raises ValueError for a page without its two marks."""
        begin, end = f"<!-- {self.name}: written by `make tables` -->\n", f"<!-- end of {self.name} -->\n"
        if (text.count(begin), text.count(end)) != (1, 1):
            raise ValueError(f"{self.page.name} has to have {begin.strip()} and {end.strip()} once each")
        first, *others = self.rows()
        head, _, rest = text.partition(begin)
        return f"{head}{begin}{table(first, others)}{end}{rest.partition(end)[2]}"


def causes() -> dict[str, str]:
    """Return the anchor of the section of docs/troubleshooting.md whose table has a code, by code."""
    found: dict[str, str] = {}
    for section in re.split(r"(?m)^## ", (DOCS / "troubleshooting.md").read_text("utf-8"))[1:]:
        anchor = section.partition("\n")[0].lower().replace(" ", "-")
        for row in re.findall(r"(?m)^\|(.*)", section):
            for code in re.findall(r"`(\w+)`", row):
                found.setdefault(code, anchor)
    return found


def english() -> Iterator[tuple[str, ...]]:
    yield "code", "status", "again", "sentence", "what to do"
    sections = causes()
    for code in Code:
        again, section = "yes" if code.retryable else "no", f"[causes](troubleshooting.md#{sections[code.value]})"
        yield f'<a id="{anchor_of(code)}"></a>`{code.value}`', str(code.status), again, code.sentence(), section


def korean() -> Iterator[tuple[str, ...]]:
    yield "code", "sentence"
    for code in Code:
        yield f"[`{code.value}`](errors.md#{anchor_of(code)})", code.sentence("ko")


def own_commands() -> Iterator[tuple[str, ...]]:
    yield from _rows(is_ours=True)


def plugins_commands() -> Iterator[tuple[str, ...]]:
    yield from _rows(is_ours=False)


def _rows(*, is_ours: bool) -> Iterator[tuple[str, ...]]:
    yield "command", "effect", "options"
    for name, command in commands():
        if (name.split()[0] in cli.COMMANDS) == is_ours:
            yield f"`{' '.join([name, *_arguments(command)])}`", prose(summary(command)), ", ".join(_options(command))


def _arguments(command: Any) -> Iterator[str]:
    for each in command.params:
        if each.param_type_name == "argument":
            name = re.sub(r"^\[(.*)\]$|\.+", r"\1", each.metavar or each.name).upper()
            several = "..." if each.nargs != 1 else ""
            yield f"{name}{several}" if each.required else f"[{name}{several}]"


def _options(command: Any) -> Iterator[str]:
    for each in command.params:
        if each.param_type_name == "option" and not each.hidden and not COMMON & {*each.opts}:
            yield " or ".join(f"`{it}`" for it in (*each.opts, *each.secondary_opts))


TABLES = (
    Table(ENGLISH, "codes", english),
    Table(KOREAN, "codes", korean),
    Table(COMMANDS, "commands", own_commands),
    Table(COMMANDS, "plugins", plugins_commands),
)

if __name__ == "__main__":
    for each in TABLES:
        each.page.write_text(each.written(each.page.read_text("utf-8")), "utf-8")
