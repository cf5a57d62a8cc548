"""The scripted misbehaviour of one endpoint."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from oauthbroker.testing.provider import faults
from oauthbroker.testing.provider.faults import Hold, Step, Work
from oauthbroker.testing.provider.http import Answer, Reply

T = TypeVar("T")
Change = Callable[[dict[str, Any]], object]
Times = int | None  # of requests
FOREVER: Times = None
"""`times=FOREVER`: until `reset`."""


class Turns(Generic[T]):
    """A queue in which each item stays for its number of times."""

    def __init__(self) -> None:
        self._left: list[tuple[T, Times]] = []

    def add(self, item: T, times: Times) -> None:
        """Append an item. Raises ValueError for a number of times below one."""
        if times is not None and times < 1:
            raise ValueError("times is a positive number, or FOREVER (None)")
        self._left.append((item, times))

    def first(self) -> T | None:
        """Return the first item; it is removed after its number of times."""
        return next(iter(self._used(1)), None)

    def all(self) -> list[T]:
        """Return all items, each counted once."""
        return self._used(len(self._left))

    def clear(self) -> None:
        self._left.clear()

    def _used(self, count: int) -> list[T]:
        used = self._left[:count]
        self._left[:count] = [(item, times and times - 1) for item, times in used if times != 1]  # others may be added
        return [item for item, _ in used]


class EndpointScript:
    """The misbehaviour of one endpoint.

    Misbehaviours are queued: a request takes the first, and each is removed after `times` requests (1 by default,
    FOREVER until `reset`). Alterations apply to every honest answer while they last.
    """

    def __init__(self) -> None:
        self._steps: Turns[Step] = Turns()
        self._changes: Turns[Change] = Turns()

    def reset(self) -> None:
        """Remove all misbehaviour. Requests that already hang do so until released."""
        self._steps.clear()
        self._changes.clear()

    def answer(
        self,
        status: int = 200,
        body: bytes | str | Mapping[str, Any] | list[Any] = b"",
        headers: Mapping[str, str] | None = None,
        *,
        after_work: bool = False,
        times: Times = 1,
    ) -> None:
        """Give this answer instead. Mappings and lists become JSON, with matching Content-Type; `headers` override
        it."""
        sent = {"content-type": "application/json", **{k.lower(): v for k, v in (headers or {}).items()}}
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self._give(Answer(status, tuple(sent.items()), data), after_work=after_work, times=times)

    def raw(self, data: bytes, *, times: Times = 1) -> None:
        """Send exactly these bytes on the socket and close it: status line, headers and body."""
        self._give(faults.Raw(data), times=times)

    def redirect(self, to: str, status: int = 302, *, times: Times = 1) -> None:
        """Redirect the caller (301, 302, 303, 307, 308)."""
        self.answer(status, b"", {"location": to}, times=times)

    def close_after_accept(self, *, reset: bool = False, after_work: bool = False, times: Times = 1) -> None:
        """Read the request and close without an answer, orderly or by a TCP reset.

        `after_work=True` first does the work: the code is spent, the tokens exist, the answer is lost.
        """
        self._give(faults.Cut(reset), after_work=after_work, times=times)

    def endless(self, *, chunked: bool = True, times: Times = 1) -> None:
        """Send a body that never ends."""
        self._give(faults.Endless(chunked), times=times)

    def gzip_bomb(self, megabytes: int = 300, *, times: Times = 1) -> None:
        """Send a small answer that unpacks to hundreds of megabytes."""
        self._give(faults.gzip_bomb(megabytes), times=times)

    def drip(
        self, bytes_per_second: float = 1.0, *, headers_too: bool = False, body: bytes | None = None, times: Times = 1
    ) -> None:
        """Send the honest answer (or `body`, labelled JSON) byte by byte; the headers at once unless they drip too."""
        given = None if body is None else Answer(200, (("content-type", "application/json"),), body)
        self._play(lambda work: faults.Drip(given or work(), bytes_per_second, headers_too=headers_too), times)

    def delay(self, seconds: float, *, times: Times = 1) -> None:
        """Do the work at once and answer after some real seconds."""

        async def late(work: Work) -> Reply:
            done = work()
            await asyncio.sleep(seconds)
            return done

        self._steps.add(late, times)

    def hang(self, *, after_work: bool = False, times: Times = 1) -> Hold:
        """Accept, read, and do not answer until `release()` on the returned hold, which also reports arrivals."""
        hold = Hold()

        async def held(work: Work) -> Reply:
            done = work() if after_work else None
            await hold.wait()
            return done or work()

        self._steps.add(held, times)
        return hold

    def alter(self, change: Change, *, times: Times = 1) -> None:
        """Change the document of an honest answer: the function returns a new dict, or changes its own in place."""
        self._changes.add(change, times)

    def reform(self, change: Callable[[Answer], Answer], *, times: Times = 1) -> None:
        """Change the form of an honest answer: its status, headers or bytes."""
        self._play(lambda work: change(work()), times)

    def refuse(
        self,
        error: str = "invalid_grant",
        status: int = 400,
        *,
        after_work: bool = False,
        times: Times = 1,
        **more: Any,
    ) -> None:
        """Refuse with an error of RFC 6749 section 5.2; `more` may hold error_description and the like."""
        self.answer(status, {"error": error, **more}, after_work=after_work, times=times)

    def busy(self, retry_after: float | str | None = None, status: int = 429, *, times: Times = 1) -> None:
        """Refuse as busy (429 or 503): `Retry-After` as seconds, as a date, as nonsense, or absent."""
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        self.answer(status, {"error": "temporarily_unavailable"}, headers, times=times)

    def fields(self, *, times: Times = 1, **values: Any) -> None:
        """Set members of the honest answer (of `authorize`, parameters of the redirect back); None removes one.

        A list repeats a parameter of the redirect.
        """

        def change(found: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in {**found, **values}.items() if value is not None}

        self.alter(change, times=times)

    def next_step(self) -> Step | None:
        """Return the misbehaviour for this request. Called by the provider."""
        return self._steps.first()

    def changed(self, answer: Answer) -> Answer:
        """Return an honest answer after the alterations. Called by the provider."""
        if answer.document is None:
            return answer
        document = copy.deepcopy(answer.document)
        for change in self._changes.all():
            returned = change(document)
            document = returned if isinstance(returned, dict) else document
        return answer.with_document(document)

    def _give(self, reply: Reply, *, times: Times, after_work: bool = False) -> None:
        def given(work: Work) -> Reply:
            if after_work:
                work()
            return reply

        self._play(given, times)

    def _play(self, reply_of: Callable[[Work], Reply], times: Times) -> None:
        async def play(work: Work) -> Reply:
            return reply_of(work)

        self._steps.add(play, times)
