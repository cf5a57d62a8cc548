"""`oauthbroker serve` says where its pages and its API are."""

from __future__ import annotations

import pytest

from oauthbroker.cli.serve import addresses
from oauthbroker.model.settings import ApiSocket, Settings

BASE = "https://agents.example.com/oauth"


@pytest.mark.parametrize(
    ("settings", "api"),
    [
        (Settings(BASE), f"{BASE}/docs"),
        (Settings(BASE, api_host="127.0.0.1", api_port=8421), "http://127.0.0.1:8421/docs"),
        (Settings(BASE, api_host="::1", api_port=8421), "http://[::1]:8421/docs"),
        (Settings(BASE, api_socket=ApiSocket("/run/api.sock")), "unix:/run/api.sock"),
    ],
    ids=["beside the pages", "a port of its own", "IPv6", "a socket"],
)
def test_the_addresses_are_those_of_the_listeners(settings: Settings, api: str) -> None:
    assert {"url": BASE, "operators": f"{BASE}/admin", "api": api} == addresses(settings)
