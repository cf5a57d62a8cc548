"""The words of our pages: every name that a page uses is a word, every word is used, and the reader's language wins."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, nodes

from oauthbroker.web.html.scope_sentences import provider_title, scope_line
from oauthbroker.web.middleware.security_headers import TEMPLATES
from oauthbroker.web.words import SECTIONS, Words, locale_of

WEB = TEMPLATES.parent
ENGLISH = SECTIONS["en"]
PREFIX = re.compile(r"(health|state|done)_\w+")  # words that `admin_html` finds by a state's name


def section_of(file: Path) -> str:
    """The section whose words a module or a template calls `text`."""
    if file.stem.startswith(("admin_", "layout")):
        return "admin"
    return "connections" if file.stem.startswith(("connections", "people", "readable_times")) else "pages"


def names_in(file: Path) -> Iterator[tuple[str, str]]:
    """Every (section, name) that a file reads from something called `text`, or from a table of words itself."""
    if file.suffix == ".html":
        for read in Environment(autoescape=True).parse(file.read_text("utf-8")).find_all(nodes.Getattr):
            if isinstance(read.node, nodes.Name) and read.node.name == "text":
                yield section_of(file), read.attr
        return
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id="text") | ast.Attribute(attr="text"), attr=name):
                yield section_of(file), name
            case ast.Attribute(
                value=ast.Subscript(value=ast.Name(id="PAGES" | "CONNECTIONS" | "ADMIN" as table)), attr=name
            ):
                yield table.lower(), name


def names_used(web: Path) -> dict[tuple[str, str], str]:
    """Where each (section, name) is used."""
    files = [
        *web.glob("*.py"),
        *(web / "html").glob("*.py"),
        *(web / "pages").glob("*.py"),
        *(web / "gate").glob("*.py"),
        *web.glob("templates/*.html"),
    ]
    return {used: file.name for file in files for used in names_in(file)}


def test_a_page_uses_only_words_that_exist():
    used = names_used(WEB)
    assert len(used) > 150
    assert {} == {use: file for use, file in used.items() if use[1] not in ENGLISH[use[0]]}


def test_every_word_is_used():
    used = names_used(WEB)
    words = [(section, name) for section in ("pages", "connections", "admin") for name in ENGLISH[section]]
    assert [] == [word for word in words if word not in used and not (word[0] == "admin" and PREFIX.fullmatch(word[1]))]


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("html/consent_html.py", "PAGES[locale].connect_title", "PAGES[locale].conect_title"),
        ("html/consent_html.py", "text.code_title", "text.login_key"),
        ("templates/admin_login.html", "text.login_key", "text.footer"),
    ],
)
def test_the_test_sees_a_name_that_is_no_word_of_its_pages(file: str, before: str, after: str, tmp_path: Path):
    shutil.copytree(WEB, tmp_path, dirs_exist_ok=True)
    source = (tmp_path / file).read_text("utf-8")
    assert before in source
    (tmp_path / file).write_text(source.replace(before, after), "utf-8")
    strange = [use for use in names_used(tmp_path) if use[1] not in ENGLISH[use[0]]]
    assert [after.rpartition(".")[2]] == [name for _, name in strange]


def test_a_word_that_is_none_is_an_error():
    with pytest.raises(AttributeError, match="no such word: b"):
        _ = Words({"a": "one"}).b


PROGRAM = """
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.core.errors import LOCALES, BrokerError, Code
from oauthbroker.model.turn import Turn, whole_turn
from oauthbroker.web.api.request_models import TurnBody
from oauthbroker.web.html.ending_html import render_outcome
from oauthbroker.web.words import locale_of

chosen = locale_of("eo-XX, ko;q=0.5", "en")
body = TurnBody.model_validate({"agentName": "planner", "instanceKey": "1", "locale": chosen})
turn = whole_turn(Turn("planner", "1", locale=body.locale))
page = render_outcome("expired", locale=turn.locale or "en")
print(LOCALES, chosen, BrokerSpec(locale=chosen).locale, '<html lang="eo"' in page.html)
print("Ligilo mortis" in page.html, "It may have expired" in page.html)
print(BrokerError(Code.NOT_FOUND).message(chosen), BrokerError(Code.RATE_LIMITED).message(chosen)[:14])
"""


@pytest.mark.slow
def test_a_third_language_is_two_files_and_no_python(tmp_path: Path):
    shutil.copytree(WEB.parent, tmp_path / "oauthbroker", ignore=shutil.ignore_patterns("__pycache__"))
    files = {"core": {"errors": {"notFound": "Nenio."}}, "web": {"pages": {"expired_title": "Ligilo mortis"}}}
    for plugin, words in files.items():
        (tmp_path / "oauthbroker" / plugin / "words" / "eo.json").write_text(json.dumps(words), "utf-8")
    said = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ["('en', 'eo', 'ko') eo eo True", "True True", "Nenio. Too many calls"] == said.stdout.splitlines()


@pytest.mark.parametrize(
    "header, default, chosen",
    [
        (None, "ko", "ko"),
        ("", "en", "en"),
        ("ko", "en", "ko"),
        ("ko-KR,ko;q=0.9,en-US;q=0.8,en;q=0.7", "en", "ko"),
        ("en-GB,ko;q=0.9", "ko", "en"),
        ("fr-FR,fr;q=0.9,ko;q=0.3", "en", "ko"),
        ("fr, de", "ko", "ko"),
        ("*", "ko", "ko"),
        ("ko;q=0, en;q=0.1", "ko", "en"),
        ("ko;q=0", "en", "en"),
        ("en;q=0.5, ko;q=0.6", "en", "ko"),
        ("KO-kr", "en", "ko"),
        ("kok, eng", "ko", "ko"),
        ("ko;q=banana", "en", "en"),
        ("ko;level=1", "en", "ko"),
        ("ko;q=99, en", "en", "ko"),
        ("x" * 100_000 + ",ko", "en", "en"),
    ],
)
def test_the_readers_language_wins(header, default, chosen):
    assert locale_of(header, default) == chosen


@given(st.text())
def test_any_header_gives_a_language(header):
    assert locale_of(header, "en") in {"en", "ko"}


@pytest.mark.parametrize(
    "provider, scope, english",
    [
        ("slack", "chat:write", "Send messages"),
        ("github", "repo", "Full control of your private and public repositories"),
        ("oidc", "offline_access", "Stay connected while you are away"),
        ("google", "https://www.googleapis.com/auth/drive.readonly", "See all your files"),
        ("oidc", "directory.read", ""),
        ("oidc", "https://api.example/auth/things.manage", ""),
        ("oidc", "repo", ""),
        ("oidc", ":::", ""),
    ],
)
def test_a_scope_is_reported_as_it_is_spelled_and_in_words_only_where_they_are_known(provider, scope, english):
    line = scope_line(provider, scope, "en")
    assert (line.label, line.raw) == (english, scope)


def test_known_scopes_have_korean_words():
    assert scope_line("slack", "chat:write", "ko").label == "메시지 보내기"


@pytest.mark.parametrize("provider, title", [("github", "GitHub"), ("oidc", "id.example"), ("acme", "id.example")])
def test_a_provider_is_called_by_its_name_or_its_host(provider, title):
    assert provider_title(provider, "id.example") == title
