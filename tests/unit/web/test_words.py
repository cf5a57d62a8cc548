"""Two languages, complete, and the right one for the reader."""

from __future__ import annotations

import dataclasses
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.web.scopes import provider_title, scope_line
from oauthbroker.web.texts import TEXTS, locale_of
from oauthbroker.web.texts_admin import ADMIN
from oauthbroker.web.texts_desk import DESK

CATALOGUES: dict[str, Any] = {"pages": TEXTS, "desk": DESK, "admin": ADMIN}
SAME = {("admin", "brand")}  # our own name


@pytest.mark.parametrize(
    ("where", "name"),
    [(where, field.name) for where, texts in CATALOGUES.items() for field in dataclasses.fields(texts["en"])],
)
def test_both_languages_say_the_same_thing_with_the_same_names(where, name):
    english, korean = getattr(CATALOGUES[where]["en"], name), getattr(CATALOGUES[where]["ko"], name)
    assert english.strip()
    assert (where, name) in SAME or any("\uac00" <= character <= "\ud7a3" for character in korean)
    assert placeholders(english) == placeholders(korean)


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


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
        ("ko;level=1", "en", "en"),
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
def test_a_scope_is_told_as_it_is_spelled_and_in_words_only_where_they_are_known(provider, scope, english):
    line = scope_line(provider, scope, "en")
    assert (line.label, line.raw) == (english, scope)


def test_known_scopes_have_korean_words():
    assert scope_line("slack", "chat:write", "ko").label == "메시지 보내기"


@pytest.mark.parametrize("provider, title", [("github", "GitHub"), ("oidc", "id.example"), ("acme", "id.example")])
def test_a_provider_is_called_by_its_name_or_its_host(provider, title):
    assert provider_title(provider, "id.example") == title
