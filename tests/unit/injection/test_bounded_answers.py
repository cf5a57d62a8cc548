"""An answer has so many bytes and values, and the rest is not read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from oauthbroker.injection.bounded_answers import Allowance, AnswerTooLarge, bounded_answer


class Body(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces, self.closed = pieces, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.pieces:
            yield self.pieces.pop(0)

    async def aclose(self) -> None:
        self.closed = True


async def read(body: Body, allowance: Allowance, kind: str = "application/json") -> bytes:
    answer = httpx2.Response(200, headers={"content-type": kind}, stream=body)
    return await (await bounded_answer(answer, allowance)).aread()


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("bound", ["most_bytes", "most_values"])
async def test_an_answer_that_is_too_large_is_closed_and_the_rest_is_not_read(kind: str, bound: str) -> None:
    body = Body([b"[[[[[[[[[" * 12] * 9)
    with pytest.raises(AnswerTooLarge):
        await read(body, Allowance(**{bound: 50}), kind)
    assert (8, True) == (len(body.pieces), body.closed)


async def test_the_answers_of_a_session_share_an_allowance() -> None:
    allowance = Allowance(most_values=10)
    assert b"[1,2,3]" == await read(Body([b"[1,2,", b"3]"]), allowance)
    assert b"[1,2,3]" == await read(Body([b"[1,2,3]"]), allowance)
    with pytest.raises(AnswerTooLarge):
        await read(Body([b"[1,2,3]"]), allowance)


async def test_an_answer_that_ends_within_a_text_hides_nothing_of_the_next_one() -> None:
    allowance = Allowance(most_values=10)
    assert b'"\\' == await read(Body([b'"\\']), allowance)
    with pytest.raises(AnswerTooLarge):
        await read(Body([b"[[[[[[[[[[[[[["]), allowance)


async def test_an_answer_that_takes_the_whole_allowance_is_read() -> None:
    assert b"[1,2]" == await read(Body([b"[1,2]"]), Allowance(most_bytes=6)), "with the line break before it"
    with pytest.raises(AnswerTooLarge):
        await read(Body([b"[1,23]"]), Allowance(most_bytes=6))
