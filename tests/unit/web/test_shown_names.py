"""Names from elsewhere, made fit to be shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.web.html.shown_names import counted, host_of, isolated, phrase, plain_phrase, shown

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.case("88")
@given(st.text(), st.integers(2, 60))
def test_a_shown_name_is_one_bounded_line_without_hidden_characters(text, limit):
    clean = shown(text, limit)
    assert len(clean) <= limit
    assert {unicodedata.category(c) for c in clean} & {"Cc", "Cs", "Co", "Cn", "Zl", "Zp"} == set()
    assert {c for c in clean if unicodedata.category(c) == "Cf"} <= {"\u200c", "\u200d"}
    assert shown(clean, limit) == clean
    clean.encode()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("planner", "planner"),
        ("  two\n words\t", "two words"),
        ("a\u00a0b\u2028c", "a b c"),
        ("\x1b[31mred\x00\x7f!", "[31mred !"),
        ("\u202eevil\u202c\u2066x\u2069", "evilx"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        (FAMILY, FAMILY),
        ("e\u0301", "e\u0301"),
        ("Z" + "\u0335" * 30 + "y", "Z" + "\u0335" * 4 + "y"),
        ("\ud800x", "x"),
        ("n" * 81, "n" * 79 + "\u2026"),
        ("n" * 80, "n" * 80),
        ("\u200b" * 100_000 + "late", "\u2026"),
    ],
)
def test_shown(text, expected):
    assert shown(text) == expected


def test_a_name_in_a_sentence_is_escaped_and_isolated_and_never_read_as_a_template():
    assert (
        str(phrase("<{a}> & {b}", a="{b}<i>", b=isolated("x"))) == "&lt;<bdi>{b}&lt;i&gt;</bdi>&gt; &amp; <bdi>x</bdi>"
    )


def test_a_title_isolates_by_characters():
    assert plain_phrase("Connect {app}?", app="\u202eab") == "Connect \u2068ab\u2069?"


@pytest.mark.parametrize(
    "url, host",
    [
        ("https://slack.com/oauth", "slack.com"),
        ("https://Login.Example.COM:8443/x", "login.example.com:8443"),
        ("http://127.0.0.1:41001/authorize", "127.0.0.1:41001"),
        ("http://[::1]:8/", "[::1]:8"),
        ("https://good.example@evil.example/", "evil.example"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("https://\u0440\u0430ypal.com/", "xn--ypal-43d9g.com"),
    ],
)
def test_the_host_is_told_as_the_address_bar_will(url, host):
    assert host_of(url) == host


@pytest.mark.parametrize(
    "url", ["", "/x", "https://", "https://a b/", "https://<b>/", "https://" + "a." * 200, "https://\u3002\u3002/"]
)
def test_no_usable_host_is_refused_without_repeating_it(url):
    with pytest.raises(BrokerError) as caught:
        host_of(url)
    assert caught.value.code is Code.APP_MISCONFIGURED
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("forms", "count", "said"),
    [
        ("{count} app|{count} apps", 0, "0 apps"),
        ("{count} app|{count} apps", 1, "1 app"),
        ("{count} app|{count} apps", 2, "2 apps"),
        ("앱 {count}개", 1, "앱 1개"),
        ("앱 {count}개", 2, "앱 2개"),
    ],
)
def test_one_is_said_as_one_where_a_language_has_a_plural(forms, count, said):
    assert said == counted(forms, count)
