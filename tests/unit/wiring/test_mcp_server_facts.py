"""An MCP server looked at from outside: the resources that a token for it may be for, and the texts that name none."""

from __future__ import annotations

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.wiring.mcp_server_facts import _with_parents, look_at_mcp_server


@pytest.mark.parametrize(
    ("url", "resources"),
    [
        ("https://m.example", ("https://m.example",)),
        ("https://m.example/a", ("https://m.example/a", "https://m.example")),
        ("https://m.example/a/b", ("https://m.example/a/b", "https://m.example/a", "https://m.example")),
        ("https://m.example/a?x=1", ("https://m.example/a?x=1", "https://m.example/a", "https://m.example")),
    ],
)
def test_a_token_may_be_for_the_server_or_for_what_lies_above_it(url: str, resources: tuple[str, ...]) -> None:
    assert resources == _with_parents(url)


@pytest.mark.parametrize(
    ("url", "networks"), [("https://m.example:port", ()), ("https://m.example", ("not a network",)), ("https://[", ())]
)
async def test_a_text_that_is_no_address_and_one_that_is_no_network_are_refused(
    url: str, networks: tuple[str, ...]
) -> None:
    with pytest.raises(BrokerError) as raised:
        await look_at_mcp_server(url, networks)
    assert Code.REQUEST_INVALID is raised.value.code


@pytest.mark.parametrize("url", ["http://m.example/mcp", "ftp://m.example"])
async def test_an_address_that_the_broker_would_not_ask_is_refused_before_it_is_asked(url: str) -> None:
    with pytest.raises(BrokerError) as raised:
        await look_at_mcp_server(url)
    assert Code.APP_MISCONFIGURED is raised.value.code
