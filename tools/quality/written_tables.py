"""Write what pages repeat: the tables of errors and commands from the product's own codes, sentences and help, and the index
of docs/README.md from the navigation of the site.

Each code leads to its section of docs/troubleshooting.md, and has the anchor that the command line prints.

    make tables
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import relpath
from typing import Any, NamedTuple

import yaml

from oauthbroker import cli
from oauthbroker.cli.output.error_output import anchor_of
from oauthbroker.core.errors import Code
from tools.site.reference.command_line import commands, summary
from tools.site.reference.markdown import Rows, prose, table

DOCS = Path(__file__).parents[2] / "docs"
SITE = DOCS.parent / "tools" / "site" / "site.yml"
SECTIONS = {"Tutorials", "How-to", "Reference", "Explanation", "Project"}
ENGLISH, KOREAN, COMMANDS = DOCS / "errors.md", DOCS / "errors-korean.md", DOCS / "cli.md"
COLUMNS = ("command", "effect", "options")
COMMON = {"--help", "--json", "--config"}  # the page names them once for all commands


class Block(NamedTuple):
    """What a command writes between `<!-- NAME: written by ... -->` and `<!-- end of NAME -->`."""

    page: Path
    name: str
    text: Callable[[], str]

    def written(self, text: str) -> str:
        """Return the page's text with this block. Raises ValueError for a page without its two marks."""
        begin, end = f"<!-- {self.name}: written by `make tables` -->\n", f"<!-- end of {self.name} -->\n"
        if (text.count(begin), text.count(end)) != (1, 1):
            raise ValueError(f"{self.page.name} has to have {begin.strip()} and {end.strip()} once each")
        head, _, rest = text.partition(begin)
        return f"{head}{begin}{self.text()}{end}{rest.partition(end)[2]}"


def causes() -> Rows[str]:
    """Return the anchor of the section of docs/troubleshooting.md whose table has a code, by code."""
    found: dict[str, str] = {}
    for section in re.split(r"(?m)^## ", (DOCS / "troubleshooting.md").read_text("utf-8"))[1:]:
        anchor = section.partition("\n")[0].lower().replace(" ", "-")
        for row in re.findall(r"(?m)^\|(.*)", section):
            for code in re.findall(r"`(\w+)`", row):
                found.setdefault(code, anchor)
    return Rows("troubleshooting.md", found)


def english() -> str:
    sections, rows = causes(), []
    for code in Code:
        again, section = "yes" if code.retryable else "no", f"[causes](troubleshooting.md#{sections[code.value]})"
        rows.append(
            (f'<a id="{anchor_of(code)}"></a>`{code.value}`', str(code.status), again, code.sentence(), section)
        )
    return table(("code", "status", "again", "sentence", "what to do"), rows)


def korean() -> str:
    rows = ((f"[`{code.value}`](errors.md#{anchor_of(code)})", code.sentence("ko")) for code in Code)
    return table(("code", "sentence"), rows)


def own_commands() -> str:
    return table(COLUMNS, _rows(is_ours=True))


def plugins_commands() -> str:
    return table(COLUMNS, _rows(is_ours=False))


def _rows(*, is_ours: bool) -> Iterator[tuple[str, ...]]:
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


def index() -> str:
    """Return the lists of all pages, as the site's navigation has them; of tutorials also what one has at their end."""
    navigation = yaml.safe_load(SITE.read_text("utf-8").partition("\nnav:")[2])
    parts = [_part(title, entries) for each in navigation for title, entries in each.items() if title in SECTIONS]
    return "\n".join(parts)


def _part(title: str, entries: list[Any]) -> str:
    """Return a section: a line for each group of pages, and for the pages between two groups."""
    lines, loose = [f"## {title}\n"], list[str]()
    if title == "Tutorials":
        lines += ["Each begins in an empty folder. At its end:\n", *map(_tutorial, _places(entries))]
        return "\n".join(lines) + "\n"
    for entry in entries:
        name, inner = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        links = [*_links([entry])]
        if len(links) < 2 or not isinstance(inner, list):
            loose += links
            continue
        lines += [f"- {', '.join(loose)}."] if loose else []
        lines.append(f"- **{name}:** {', '.join(links)}.")
        loose.clear()
    return "\n".join([*lines, f"- {', '.join(loose)}." if loose else ""]).rstrip() + "\n"


def _links(entries: list[Any]) -> Iterator[str]:
    for title, place in _places(entries):
        page = (DOCS.parent / place).read_text("utf-8")
        yield f"[{title or page.partition(chr(10))[0].removeprefix('# ')}]({relpath(place, 'docs')})"


def _tutorial(titled: tuple[str, str]) -> str:
    """Return a line with the first sentence of a tutorial, which says what one has at its end."""
    title, place = titled
    first = " ".join((DOCS.parent / place).read_text("utf-8").partition("\n\nAt the end ")[2].split("\n\n")[0].split())
    sentence = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.split(r"(?<=[.:]) ", first)[0]).rstrip(".:")
    return f"- [{title}]({relpath(place, 'docs')}): {sentence}."


def _places(entries: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield title and path of each page of the repository; those of the reference are made for the site alone."""
    for entry in entries:
        title, place = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        if isinstance(place, list):
            yield from _places(place)
        elif not place.startswith("reference/") and place != "docs/README.md":
            yield title, place


BLOCKS = (
    Block(ENGLISH, "codes", english),
    Block(KOREAN, "codes", korean),
    Block(COMMANDS, "commands", own_commands),
    Block(COMMANDS, "plugins", plugins_commands),
    Block(DOCS / "README.md", "index", index),
)

if __name__ == "__main__":
    for each in BLOCKS:
        try:
            each.page.write_text(each.written(each.page.read_text("utf-8")), "utf-8")
        except ValueError as problem:
            sys.exit(f"{problem}; then run `make tables` again")
