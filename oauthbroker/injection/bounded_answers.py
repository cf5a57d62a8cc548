"""Bound the bytes and the values of answers before a library parses them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from oauthbroker.core.json_values import ValueCounter

MOST_BYTES: Final = 64 * 1024 * 1024
MOST_VALUES: Final = 100_000


class AnswerTooLarge(httpx2.ReadError):
    """An answer of too many bytes or values."""


class Allowance:
    """The bytes and values that may still come, in one answer or in several."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_values: int = MOST_VALUES) -> None:
        self._bytes_left, self._values = most_bytes, ValueCounter(most_values)

    def spend(self, piece: bytes) -> None:
        """Count a piece. Raises AnswerTooLarge."""
        self._bytes_left -= len(piece)
        if self._bytes_left < 0 or not self._values.feed(piece):
            raise AnswerTooLarge("the answers are too large")


async def bounded_answer(answer: httpx2.Response, allowance: Allowance) -> httpx2.Response:
    """Return an answer within the allowance. JSON is read here, and a stream while it is read. Raises AnswerTooLarge in
    both cases."""
    body = _BoundedBody(answer, allowance)
    if not answer.headers.get("content-type", "").lower().startswith("application/json"):
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=body)
    try:
        content = b"".join([piece async for piece in body])
    finally:
        await body.aclose()
    return httpx2.Response(answer.status_code, headers=answer.headers, content=content)


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, answer: httpx2.Response, allowance: Allowance) -> None:
        self._answer, self._allowance = answer, allowance

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._answer.stream, httpx2.AsyncByteStream)  # noqa: S101  (of an async client)
        self._allowance.spend(b"\n")  # an answer that ends within a text does not change how the next one is counted
        async for piece in self._answer.stream:
            self._allowance.spend(piece)
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()
