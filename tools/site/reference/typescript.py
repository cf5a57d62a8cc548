"""The page of the TypeScript client: a section for each exported name, with its declaration and its comment.

Read from the sources, without Node: they are formatted, so a declaration ends where its first column says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.site.reference.markdown import block, code, heading, prose, slug
from tools.site.stage import ROOT

SOURCES = ROOT / "clients" / "typescript" / "src"
ENTRIES = {"@oauthbroker/client": "index.ts", "@oauthbroker/client/node": "node.ts"}
INTRO = """\
# TypeScript

Made from the client's sources. [The TypeScript client](../clients/typescript/README.md) begins with an example, and
[clients](../docs/clients.md) explains each call.

"""
_EXPORTED = re.compile(r'export (?:type )?(?:\{([^}]*)\}|(\*)) from "\./(\w+)\.js";', re.DOTALL)
_DECLARED = re.compile(
    r"(?m)^(?P<comment>/\*\*(?:(?!\*/).)*\*/\n)?export (?:async )?(?P<kind>interface|type|class|function) (?P<name>\w+)",
    re.DOTALL,
)
_DEFAULT = re.compile(r" = (?:\{\}|\w+\(\))(?=,?\s*\))")  # of the last parameter
_PARAMETER = re.compile(r"(?:(?<=\()|(?<=, )|(?<=\n    ))\w+(?=: )")
_PAGE = re.compile(r"`?docs/([\w-]+)\.md`?")


def pages() -> dict[str, str]:
    lines = [INTRO]
    for entry, file in ENTRIES.items():
        lines.append(heading(2, code(entry), slug(entry)))
        for name, place in sorted(exported(file).items(), key=lambda each: each[0].lower()):
            lines += [heading(3, code(name), slug(name)), *_section(name, place)]
    return {"typescript.md": "\n".join(lines)}


def exported(file: str) -> dict[str, Path]:
    """Return the names that an entry exports, with the files that declare them."""
    text = (SOURCES / file).read_text("utf-8")
    found = {each["name"]: SOURCES / file for each in _DECLARED.finditer(text)}
    for names, everything, module in _EXPORTED.findall(text):
        place = SOURCES / f"{module}.ts"
        declared = [each["name"] for each in _DECLARED.finditer(place.read_text("utf-8"))]
        listed = [each.strip().removeprefix("type ") for each in names.split(",") if each.strip()]
        found |= dict.fromkeys(declared if everything else listed, place)
    return found


def _section(name: str, place: Path) -> Iterator[str]:
    text = place.read_text("utf-8")
    [found] = [each for each in _DECLARED.finditer(text) if each["name"] == name]
    if found["comment"]:
        yield _PAGE.sub(r"[\1](../docs/\1.md)", prose(_words(found["comment"]))) + "\n"
    rest = text[found.start() + len(found["comment"] or "") :].removeprefix("export ").removeprefix("async ")
    yield block("\n".join(_declaration(found["kind"], rest.splitlines())), "ts")


def _words(comment: str) -> str:
    lines = comment.strip().removeprefix("/**").removesuffix("*/").splitlines()
    return " ".join(" ".join(line.strip().removeprefix("* ") for line in lines if line.strip() != "*").split())


def _declaration(kind: str, lines: list[str]) -> Iterator[str]:
    """Yield the lines of a declaration, without the bodies of functions."""
    if kind == "function":
        yield _signature(lines)
    elif kind == "class":
        yield from _class(lines)
    elif kind == "interface":
        yield from lines[: lines.index("}") + 1]
    else:
        yield from _type(lines)


def _type(lines: list[str]) -> list[str]:
    """Return the lines up to the semicolon outside of all brackets."""
    for end in range(1, len(lines) + 1):
        text = "\n".join(lines[:end])
        if text.endswith(";") and text.count("{") == text.count("}") and text.count("(") == text.count(")"):
            return lines[:end]
    raise ValueError(f"no end of {lines[0]}")


def _signature(lines: list[str]) -> str:
    """Return what comes before a body, with `?` for a default."""
    end = next(at for at, line in enumerate(lines) if line.endswith(" {"))
    text = "\n".join(lines[: end + 1]).removesuffix(" {") + ";"
    text = re.sub(r"^(\s*)(?:async )?\*?", r"\1", text)
    if default := _DEFAULT.search(text):
        before = text[: default.start()]
        last = [each.end() for each in _PARAMETER.finditer(before) if _closed(before[each.end() :])][-1]
        text = f"{before[:last]}?{before[last:]}{text[default.end() :]}"
    return text


def _closed(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in ("()", "{}", "<>"))


def _class(lines: list[str]) -> Iterator[str]:
    """Yield the head of a class and its public members, each with its comment."""
    yield lines[0]
    comment: list[str] = []
    at = 1
    while lines[at] != "}":
        end = _end(lines, at)
        member, first = lines[at : end + 1], lines[at].strip()
        at = end + 1
        if first.startswith("/**"):
            comment = member
        elif first.startswith("constructor"):
            yield from (f"{it[2:].removesuffix(',')};" for it in member if it.startswith("    readonly "))
        elif first:
            if "#" not in first.partition("(")[0]:
                yield from comment
                yield _signature(member) if first.endswith(("{", "(")) else member[0]
            comment = []
    yield "}"


def _end(lines: list[str], at: int) -> int:
    """Return the last line of a class's member, or of its comment, that begins at a line."""
    first = lines[at]
    if first.strip().startswith("/**"):
        return next(end for end in range(at, len(lines)) if lines[end].endswith("*/"))
    if not first or first.endswith(";"):
        return at
    return next(end for end in range(at + 1, len(lines)) if lines[end] in {"  }", "  };"})
