"""Who a caller is behind proxies: only a listed proxy's word counts, and only for the address."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.web.middleware.forwarded import MOST_HOPS, Proxies

PROXY, STRANGER = "10.0.0.7", "203.0.113.9"
TRUSTED = ["10.0.0.0/24", "2001:db8:1::/64", "192.0.2.1"]


@pytest.mark.case("84")
@pytest.mark.parametrize(
    "peer, said, client",
    [
        (PROXY, "198.51.100.4", "198.51.100.4"),
        (PROXY, "6.6.6.6, 198.51.100.4", "198.51.100.4"),  # what the client itself wrote stands further left
        (PROXY, "198.51.100.4, 192.0.2.1, 10.0.0.9", "198.51.100.4"),
        (PROXY, "198.51.100.4:5123", "198.51.100.4"),
        (PROXY, "[2001:db8::5]:5123", "2001:db8::5"),
        (PROXY, "2001:db8::5", "2001:db8::5"),
        (PROXY, "::ffff:198.51.100.4", "198.51.100.4"),
        ("::ffff:10.0.0.7", "198.51.100.4", "198.51.100.4"),
        ("2001:db8:1::1", "198.51.100.4", "198.51.100.4"),
        (PROXY, "10.0.0.8", "10.0.0.8"),
        (PROXY, "127.0.0.1", PROXY),
        (PROXY, "198.51.100.4, ::1", PROXY),
        (PROXY, "198.51.100.4, ::ffff:127.0.0.1", PROXY),
        (PROXY, "198.51.100.4, unknown", PROXY),
        (PROXY, "198.51.100.4,", PROXY),
        (PROXY, "198.51.100.4, evil.example, 10.0.0.9", "10.0.0.9"),
        (PROXY, "", None),
        (STRANGER, "198.51.100.4", None),
        ("192.0.2.2", "198.51.100.4", None),
        ("127.0.0.1", "198.51.100.4", None),
        ("not an address", "198.51.100.4", None),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_no_proxy_of_ours(peer, said, client):
    assert client == Proxies(TRUSTED).client(peer, said)


@pytest.mark.case("84")
@pytest.mark.parametrize(
    "trusted, peer, seen", [(TRUSTED, PROXY, "198.51.100.4"), (TRUSTED, STRANGER, STRANGER), ([], PROXY, PROXY)]
)
def test_it_becomes_the_client_of_the_request(trusted, peer, seen):
    headers = [(b"x-forwarded-for", b"6.6.6.6"), (b"host", b"x"), (b"x-forwarded-for", b"198.51.100.4")]
    scope: dict[str, Any] = {"client": (peer, 40000), "headers": headers}
    Proxies(trusted).look_behind(scope)
    assert seen == scope["client"][0]


def test_a_connection_without_an_address_stays_as_it_is():
    scope: dict[str, Any] = {"client": None, "headers": [(b"x-forwarded-for", b"198.51.100.4")]}
    Proxies(TRUSTED).look_behind(scope)
    assert scope["client"] is None


def test_a_header_of_a_thousand_hops_is_read_from_its_end_only():
    said = ", ".join(["198.51.100.4"] + ["10.0.0.9"] * 1000)
    assert "10.0.0.9" == Proxies(TRUSTED).client(PROXY, said)
    short = ", ".join(["198.51.100.4"] + ["10.0.0.9"] * (MOST_HOPS - 1))
    assert "198.51.100.4" == Proxies(TRUSTED).client(PROXY, short)


@given(st.text(max_size=200))
def test_no_header_of_a_stranger_makes_a_caller_local(said):
    assert Proxies(TRUSTED).client(STRANGER, said) is None
    found = Proxies(TRUSTED).client(PROXY, said)
    assert found is None or not found.startswith(("127.", "::1"))


@pytest.mark.case("84")
@pytest.mark.parametrize(
    "name",
    [b"x_forwarded_for", b"x.forwarded.for", b"forwarded", b"true-client-ip", b"cf_connecting_ip", b"x-original-url",
     b"x-override-url", b"x-real-ip", b"x-envoy-original-path", b"x-remote-user", b"client-cert"],
)  # fmt: skip
def test_what_only_a_proxy_may_say_reaches_no_route_and_makes_no_caller_local(name):
    scope: dict[str, Any] = {"client": ("127.0.0.1", 4), "headers": [(b"host", b"localhost"), (name, b"127.0.0.1")]}
    assert Proxies().look_behind(scope)
    assert [(b"host", b"localhost")] == scope["headers"]
