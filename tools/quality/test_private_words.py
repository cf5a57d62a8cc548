"""No public text uses the pictures that we had for standard things: `room`, `renewal`, `visit`, `door`.

The first was a plug-in, the second a refresh, the third a browser session, the last a listener. Public are the exported names,
settings, routes, audit types, metrics, help, words, templates and pages.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

from tools.quality.architecture import PACKAGE, ROOT

WORD = re.compile(
    r"(?<![a-z])(?:rooms?|renew(?:s|ed|als?|ing)?|visit(?:s|ed|ors?|ing)?|doors?)(?![a-z])", re.IGNORECASE
)
TOLD = re.compile(r"\b(?:is|are|was|were) (?:told|said) (?:by (?:its|the|their)|as|in|with|at)\b|(?<!If )\bin doubt\b")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
FACES = ("oauthbroker", "oauthbroker.plugins", "oauthbroker.client", "oauthbroker.testing")
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "store" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = [  # settings, routes, audit types and members, metrics, help, and the entry points
    PACKAGE / "audit" / "__init__.py",
    PACKAGE / "observability" / "metrics.py",
    PACKAGE / "core" / "errors.py",
    PACKAGE / "web" / "api" / "call_table.py",
    PACKAGE / "web" / "api" / "openapi.yaml",
    ROOT / "pyproject.toml",
    *sorted((PACKAGE / "config" / "written").glob("*.py")),
    *sorted((PACKAGE / "cli").rglob("*.py")),
    *sorted((PACKAGE / "web" / "pages").glob("*.py")),
    *sorted(PACKAGE.rglob("commands.py")),
    *sorted(PACKAGE.rglob("spec.py")),
    *sorted(PACKAGE.rglob("words/*.json")),
    *sorted(PACKAGE.rglob("templates/*.html")),
]
PLAIN = {  # in another sense than ours: the file, and what the line says
    ("docs/providers.md", "developers.zoom.us/docs/rooms"),
    ("docs/providers.md", "spark:rooms_read"),
    ("docs/gateway.md", "BOOK_ROOM"),  # the actions of a hotel
    ("docs/gateway.md", "CLOSE_ROOM"),
    ("docs/gateway.md", "action_type, room"),
    ("docs/gateway.md", "{room: "),
    ("docs/gateway.md", "field: room"),
    ("docs/testing.md", "visit"),  # the test browser visits an address
}


def private_words(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if WORD.search(CAMEL.sub(" ", line).replace("_", " ")) and not any(
            name == where and said in line for where, said in PLAIN
        ):
            yield f"{name}:{number}: {line.strip()[:100]}"


@pytest.mark.parametrize("path", [*PAGES, *CODE], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_page_and_no_public_code_uses_a_private_word(path):
    assert [] == list(private_words(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")))


@pytest.mark.parametrize("path", [*PAGES, *sorted(PACKAGE.rglob("*.py"))], ids=lambda path: str(path.relative_to(ROOT)))
def test_things_are_reported_or_uncertain_and_not_told_or_in_doubt(path):
    text = re.sub(r"\s+", " ", path.read_text("utf-8"))
    assert [] == TOLD.findall(text)


@pytest.mark.parametrize("face", FACES)
def test_no_exported_name_has_a_private_word(face: str):
    assert [] == list(private_words(face, "\n".join(importlib.import_module(face).__all__)))


@pytest.mark.parametrize(
    "text", ["RoomState", "room_state", "/admin/rooms/x", "TokenRenewed", "notRenewed", "a visit", "broker.doors"]
)
def test_a_private_word_is_found_in_each_spelling(text: str):
    assert 1 == len(list(private_words("docs/api.md", text)))
    assert [] == list(private_words("docs/api.md", "There is headroom in the bedroom; outdoors, Renewables."))
