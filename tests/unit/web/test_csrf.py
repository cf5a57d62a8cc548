"""A form counts only from our own page, in the browser that was shown it, for the ticket it was made for."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from oauthbroker.testing.clock import TestClock
from oauthbroker.web.gate.csrf import (
    browser_cookie_name,
    cookie_header,
    csrf_matches,
    csrf_token,
    new_browser_key,
    origin_of,
    read_cookie,
    same_origin,
    session_cookie_name,
)

ORIGIN = "https://broker.example"


def mac(message: bytes) -> bytes:
    return hmac.new(b"k" * 32, message, hashlib.sha256).digest()


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode("latin-1")) for name, value in pairs])


@pytest.mark.case("87")
def test_the_token_fits_one_browser_and_one_ticket():
    mine, yours = new_browser_key(TestClock()), new_browser_key(TestClock())
    token = csrf_token(mac, mine, "ticket-1")
    assert csrf_matches(mac, mine, "ticket-1", token)
    assert not csrf_matches(mac, yours, "ticket-1", token)
    assert not csrf_matches(mac, mine, "ticket-2", token)
    assert not csrf_matches(lambda message: mac(b"other key" + message), mine, "ticket-1", token)


@pytest.mark.case("87")
@pytest.mark.parametrize("presented", [None, "", "x", "\ud800", "\u00e9" * 43, "a" * 100_000])
def test_a_token_that_is_missing_or_nonsense_never_fits(presented):
    assert not csrf_matches(mac, "a" * 43, "t", presented)


@pytest.mark.case("87")
@pytest.mark.parametrize("cookie", [None, "", "short", "a" * 44, "a" * 42 + "="])
def test_a_cookie_that_we_never_gave_never_fits(cookie):
    assert not csrf_matches(mac, cookie, "t", csrf_token(mac, cookie or "", "t"))


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_no_two_pairs_share_a_token(one, other):
    def token(pair: tuple[str, str]) -> str:
        return csrf_token(mac, *(part.encode("utf-8", "replace").decode() for part in pair))

    same = [p.encode("utf-8", "replace") for p in one] == [p.encode("utf-8", "replace") for p in other]
    assert (token(one) == token(other)) == same


def test_a_browser_key_is_256_random_bits():
    keys = {new_browser_key(TestClock()) for _ in range(50)}
    assert len(keys) == 50
    assert {len(key) for key in keys} == {43}


@pytest.mark.case("87")
@pytest.mark.parametrize(
    "sent, ours",
    [
        ([("origin", ORIGIN)], True),
        ([("origin", ORIGIN), ("sec-fetch-site", "same-origin")], True),
        ([("sec-fetch-site", "same-origin")], True),
        ([], False),
        ([("origin", "null")], False),
        ([("origin", "null"), ("sec-fetch-site", "same-origin")], False),
        ([("origin", "https://evil.example")], False),
        ([("origin", "https://broker.example.evil.example")], False),
        ([("origin", "http://broker.example")], False),
        ([("origin", "https://broker.example:8443")], False),
        ([("origin", "https://broker.example/")], False),
        ([("origin", "https://BROKER.example")], False),
        ([("origin", "")], False),
        ([("origin", ORIGIN), ("origin", "https://evil.example")], False),
        ([("origin", ORIGIN), ("origin", ORIGIN)], False),
        ([("origin", f"{ORIGIN}, https://evil.example")], False),
        ([("origin", ORIGIN), ("sec-fetch-site", "cross-site")], False),
        ([("sec-fetch-site", "same-site")], False),
        ([("sec-fetch-site", "cross-site")], False),
        ([("sec-fetch-site", "none")], False),
        ([("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], False),
        ([("referer", f"{ORIGIN}/connect/x")], False),
    ],
)
def test_a_form_from_elsewhere_is_refused(sent, ours):
    assert same_origin(headers(*sent), ORIGIN) is ours


@pytest.mark.parametrize(
    "base, origin",
    [
        ("https://broker.example", "https://broker.example"),
        ("https://Broker.Example/prefix/", "https://broker.example"),
        ("https://broker.example:443/x", "https://broker.example"),
        ("http://127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("http://localhost:80", "http://localhost"),
        ("https://[::1]:8443/", "https://[::1]:8443"),
        ("http://broker.example:443", "http://broker.example:443"),
    ],
)
def test_the_origin_is_written_as_browsers_write_it(base, origin):
    assert origin_of(base) == origin


def test_cookies_are_host_bound_on_https_and_plainly_named_on_loopback():
    assert session_cookie_name("Lx", secure=True) == "__Host-oab-Lx"
    assert session_cookie_name("Lx", secure=False) == "oab-Lx"
    assert browser_cookie_name(secure=True) == "__Host-oab"
    assert browser_cookie_name(secure=False) == "oab"
    assert cookie_header("__Host-oab-Lx", "v1", secure=True, max_age=600) == (
        "__Host-oab-Lx=v1; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"
    )
    assert cookie_header("oab-Lx", "", secure=False, max_age=0) == "oab-Lx=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"


@pytest.mark.parametrize(
    "name, value, secure",
    [
        ("a;b", "v", True),
        ("a", "v; Domain=evil.example", True),
        ("a", "v\r\nSet-Cookie: x=y", True),
        ("", "v", True),
        ("a=b", "v", True),
        ("__Host-a", "v", False),
        ("a", "v" * 600, True),
    ],
)
def test_a_cookie_that_could_break_out_is_refused(name, value, secure):
    with pytest.raises(ValueError, match="cookie"):
        cookie_header(name, value, secure=secure, max_age=1)


@pytest.mark.case("16")
@pytest.mark.parametrize(
    "sent, value",
    [
        (["__Host-oab=v1"], "v1"),
        (["a=b; __Host-oab=v1; c=d"], "v1"),
        (["a=b;__Host-oab=v1"], "v1"),
        (["a=b", "__Host-oab=v1"], "v1"),
        ([], None),
        (["__Host-oab=v1; __Host-oab=v2"], None),
        (["__Host-oab=v1; __Host-oab=v1"], None),
        (["__Host-oab=v1", "__Host-oab=v2"], None),
        (["oab=v1"], None),
        (["__host-oab=v1"], None),
        (["__Host-oab2=v1"], None),
        (["\u00a0__Host-oab=v1"], None),
        (["\u0085__Host-oab=v1"], None),
        (["$Version=1; $__Host-oab=v1"], None),
        (["__Host-oab =v1"], None),
        (["__Host-oab= v1"], None),
        (['__Host-oab="v1"'], None),
        (["__Host-oab="], None),
        (["__Host-oab"], None),
        (["x=y, __Host-oab=v1"], None),
        (["__Host-oab=v%31"], None),
        (["__Host-oab=v\u00e9"], None),
        (["__Host-oab=" + "v" * 600], None),
        (["=__Host-oab=v1"], None),
    ],
)
def test_a_cookie_is_read_strictly(sent, value):
    assert read_cookie(headers(*(("cookie", line) for line in sent)), "__Host-oab") == value
