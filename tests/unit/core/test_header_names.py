"""Names of headers are compared as the servers behind a request read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.header_names import ORDINARY, is_never_sent, is_relayed, overrides_method, spelled, spelled_text

NAMES = st.text("aAzZ09-_.!~'`|+*^&%$#", min_size=1, max_size=20).map(str.encode)


@given(NAMES)
def test_two_names_are_one_exactly_if_cgi_puts_them_into_the_same_variable(name):
    variable = "".join(each.upper() if each.isalnum() else "_" for each in name.decode())
    assert variable.replace("_", "-").lower().encode() == spelled(name)
    assert spelled(name) == spelled(spelled(name)) == spelled_text(name.decode()).encode()


@pytest.mark.case("104")
@pytest.mark.parametrize(
    "name",
    ["Accept", "X-Ms-Client-Request-Id", "X-Goog-User-Project", "X-Client-Data", "X-User-Agent", "Idempotency-Key",
     "X-Request-Source", "Content-Location", "Origin", "X-Amz-Source-Account", "Client-Id", "X-User-Id"],
)  # fmt: skip
def test_headers_of_apis_belong_to_no_family(name):
    assert not is_relayed(spelled(name.encode())), "it would never reach its API"
    assert not overrides_method(spelled(name.encode()))


@pytest.mark.case("104")
@pytest.mark.parametrize("name", ["Proxy", "proxy", "Proxy-Authorization", "Proxy_Connection"])
def test_a_name_that_becomes_a_variable_of_the_proxy_is_never_sent(name):
    """CGI makes HTTP_PROXY of `Proxy`, and many clients of HTTP take their proxy from it."""
    assert is_never_sent(spelled(name.encode()))


def test_no_proxy_says_anything_by_an_ordinary_name():
    for name in ORDINARY:
        assert name == spelled(name)
        assert name != b"via"
        assert not is_relayed(name)
        assert not overrides_method(name)
