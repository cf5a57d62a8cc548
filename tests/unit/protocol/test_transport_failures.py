"""What the operator is told of an exchange that failed: our words, by its first cause, and never a library's."""

from __future__ import annotations

import logging
import ssl
from itertools import pairwise

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.observability.library_log import OURS
from oauthbroker.protocol.network.transport import LATE, TooLarge, Transport, TransportFailed, failure_of


def certificate(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("https://secret.example")
    error.verify_code = code
    return error


def wrapped(*errors: BaseException) -> Exception:
    """Return the first error, with each one as the context or cause of the one before."""
    for number, (outer, inner) in enumerate(pairwise(errors)):
        if number % 2:
            outer.__cause__ = inner
        else:
            outer.__context__ = inner
    first = errors[0]
    assert isinstance(first, Exception)
    return first


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (TimeoutError("secret"), LATE),
        (TooLarge("secret"), "the answer is too large"),
        (OSError("secret"), "the exchange broke off (OSError)"),
        (wrapped(OSError(), ValueError(), OSError()), "the exchange broke off (OSError)"),
        (ssl.SSLError("secret"), "TLS: no safe connection could be agreed on"),
        (wrapped(OSError(), ssl.SSLError("secret")), "TLS: no safe connection could be agreed on"),
        (wrapped(OSError(), OSError(), ssl.SSLError()), "TLS: no safe connection could be agreed on"),
        (certificate(10), "TLS: the provider's certificate is refused, it has expired by this machine's clock"),
        (wrapped(OSError(), certificate(62)), "TLS: the provider's certificate is refused, it is for another host"),
        (certificate(9999), "TLS: the provider's certificate is refused, OpenSSL's reason 9999"),
    ],
)
@pytest.mark.parametrize("sent", [True, False])
def test_a_failure_is_told_in_our_words_by_its_first_cause(error: Exception, note: str, sent: bool) -> None:
    failed = failure_of(error, sent=sent)
    assert isinstance(failed, TransportFailed)
    assert (Code.PROVIDER_UNREACHABLE, note, sent) == (failed.code, failed.note, failed.sent)


def test_a_chain_of_causes_without_an_end_is_followed_for_a_while() -> None:
    first, second = OSError(), OSError()
    first.__context__, second.__context__ = second, first
    assert "the exchange broke off (OSError)" == failure_of(first, sent=False).note


@pytest.mark.parametrize("name", ["httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2"))])
async def test_the_http_library_logs_nothing_of_our_requests_and_all_of_others(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, name)
    await Transport().close()
    outside = OURS.set(True)
    logging.getLogger(name).info("https://secret.example")
    OURS.reset(outside)
    logging.getLogger(name).info("https://others.example")
    assert ["https://others.example"] == [each.message for each in caplog.records if each.name == name]
