"""Requests of tools to the public internet speak to who asked: of the URL, and of no app or provider."""

from __future__ import annotations

import pytest

from oauthbroker import BrokerError, Code
from oauthbroker.plugins import PublicWeb
from tests.unit.protocol.kit import RawServer, says


async def failure(web: PublicWeb, url: str, method: str = "GET", **headers: str) -> BrokerError:
    async with web:
        with pytest.raises(BrokerError) as failed:
            await web.send(method, url, headers=headers, seconds=5)
    return failed.value


@pytest.mark.parametrize("locale", ["en", "ko"])
@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("https://169.254.169.254/latest", {}),
        ("https://127.0.0.1/", {}),
        ("https://localhost/", {}),
        ("http://example.com/", {}),
        ("https://example.com/", {"X Y": "b"}),
    ],
)
async def test_an_address_that_is_not_public_is_the_requests_fault(url, headers, locale):
    refused = await failure(PublicWeb(), url, **headers)
    assert (Code.REQUEST_INVALID, False) == (refused.code, refused.retryable)
    assert {"en": "https URL of a public address", "ko": "공용 주소의 HTTPS URL"}[locale] in refused.message(locale)
    assert "OAuthApp" not in str(refused)
    assert "rovider" not in str(refused)


async def test_a_host_without_an_answer_is_no_provider():
    async with RawServer(says(200, b"")) as server:
        port = server.port
    gone = await failure(PublicWeb(allow_plain_http_loopback=True), f"http://127.0.0.1:{port}/")
    assert (Code.PROVIDER_UNREACHABLE, True) == (gone.code, gone.retryable)
    assert gone.message().startswith("The host gives no usable answer right now")
