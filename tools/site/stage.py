"""Lay the pages out for the site as they lie in the repository, so that their relative links hold in both.

A page may link to a file that is no page (an example, a licence): that file is copied. A link to a folder leads to its
README, or to a list of its files. A link to the file of a preset, of the routes, of the commands, or of public names of Python
or TypeScript leads to its page in the reference, which the site alone has (tools/site/reference).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from posixpath import normpath, relpath

from tools.site.glossary import linked as with_terms

ROOT = Path(__file__).resolve().parents[2]
FIRST = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
PRESET = re.compile(r"oauthbroker/(providers/(?:credentials/)?[\w-]+)\.yaml")
FACE = re.compile(r"(oauthbroker(?:/(?:client|flowtools|mcp|plugins|testing|tools))?)/__init__\.py")


def stage(into: Path, reference: Path) -> None:
    """Copy the pages, those of the reference, all that they link to, and the pages which these link to. Raises
    FileNotFoundError for a link to nothing."""
    shutil.rmtree(into, ignore_errors=True)
    todo = [*FIRST, *(str(each.relative_to(ROOT)) for each in (ROOT / "docs").rglob("*") if each.is_file())]
    todo += [f"reference/{each.relative_to(reference)}" for each in reference.rglob("*") if each.is_file()]
    done = set[str]()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".md"):
            shutil.copyfile(_source(path, reference), target)
            continue
        text, linked = _page(path, reference)
        target.write_text(text, "utf-8")
        todo += linked
    _copy(Path(__file__).parent / "assets", into / "assets")


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


def _source(path: str, reference: Path) -> Path:
    return reference / path.removeprefix("reference/") if path.startswith("reference/") else ROOT / path


def _page(path: str, reference: Path) -> tuple[str, list[str]]:
    """Return the text of a page, with its links to folders and presets completed, and the paths that it links to."""
    if path.endswith("/files.md"):
        return _list_of(path.removesuffix("/files.md"))
    here, linked = Path(path).parent.as_posix(), list[str]()

    def completed(found: re.Match[str]) -> str:
        at = normpath(f"{here}/{found[1]}")
        if (ROOT / at).is_dir():
            at += "/README.md" if (ROOT / at / "README.md").is_file() else "/files.md"
        elif not _source(at, reference).is_file():
            raise FileNotFoundError(f"{path} links to {found[1]}, which is no file. Mend the link.")
        elif at == "oauthbroker/web/api/openapi.yaml":
            at = "reference/routes.md"
        elif at == "clients/typescript/src/index.ts":
            at = "reference/typescript.md"
        elif at == "oauthbroker/cli/__init__.py":
            at = "reference/commands.md"
        elif preset := PRESET.fullmatch(at):
            at = f"reference/{preset[1]}.md"
        elif face := FACE.fullmatch(at):
            at = f"reference/python/{face[1].replace('/', '.')}.md"
        linked.append(at)
        return f"{relpath(at, here)}{found[2] or ''}"

    parts = CODE.split(_source(path, reference).read_text("utf-8"))
    text = "".join(part if odd % 2 else LINK.sub(completed, part) for odd, part in enumerate(parts))
    return with_terms(path, text) if path.startswith(("docs/", "README", "SECURITY")) else text, linked


def _list_of(folder: str) -> tuple[str, list[str]]:
    """Return a page that lists the files of a folder, and these."""
    files = sorted(each.name for each in (ROOT / folder).iterdir() if each.is_file() and not each.name.startswith("."))
    lines = [
        f"# `{folder}/`",
        "",
        "The files of this folder in the repository:",
        "",
        *(f"- [{it}]({it})" for it in files),
    ]
    return "\n".join(lines) + "\n", [f"{folder}/{each}" for each in files]
