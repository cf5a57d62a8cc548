"""The script: what each endpoint is told to do wrong, once, a few times, or for ever."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from oauthbroker.testing.provider.forge import Claims, IdTokenChange
from oauthbroker.testing.provider.http import Answer, Reply
from oauthbroker.testing.provider.misbehave import (
    Cut,
    Delay,
    DripStep,
    Endless,
    Give,
    Hold,
    Raw,
    Step,
    Wait,
    gzip_bomb,
)

Change = Callable[[dict[str, Any]], object]
T = TypeVar("T")

FOREVER: int | None = None
"""`times=FOREVER`: until `reset`."""


@dataclass(slots=True)
class _Turn(Generic[T]):
    what: T
    left: int | None


class _Turns(Generic[T]):
    """Things that happen a number of times each."""

    def __init__(self) -> None:
        self._turns: list[_Turn[T]] = []

    def add(self, what: T, times: int | None) -> None:
        if times is not None and times < 1:
            raise ValueError("times is a positive number, or FOREVER (None)")
        self._turns.append(_Turn(what, times))

    def first(self) -> T | None:
        """The first in line; it leaves when its times are over."""
        return self._use(self._turns[0]) if self._turns else None

    def all(self) -> list[T]:
        """Everything in line, each counted once."""
        return [self._use(turn) for turn in list(self._turns)]

    def clear(self) -> None:
        self._turns.clear()

    def _use(self, turn: _Turn[T]) -> T:
        if turn.left is not None:
            turn.left -= 1
            if turn.left == 0:
                self._turns.remove(turn)
        return turn.what


class EndpointScript:
    """What one endpoint does wrong.

    Misbehaviours stand in line: a request takes the first, and each leaves after `times` requests
    (1 by default, FOREVER until `reset`). Alterations apply to every honest answer while they last.
    """

    def __init__(self) -> None:
        self._steps: _Turns[Step] = _Turns()
        self._changes: _Turns[Change] = _Turns()

    def reset(self) -> None:
        """Back to honesty. Requests that already hang go on hanging until released."""
        self._steps.clear()
        self._changes.clear()

    def answer(
        self,
        status: int = 200,
        body: bytes | str | Mapping[str, Any] | list[Any] = b"",
        headers: Mapping[str, str] | None = None,
        *,
        after_work: bool = False,
        times: int | None = 1,
    ) -> None:
        """Answer this instead. Mappings and lists become JSON; bytes and text are labelled so unless `headers` say."""
        sent = {"content-type": "application/json", **{k.lower(): v for k, v in (headers or {}).items()}}
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self._give(Answer(status, tuple(sent.items()), data), after_work=after_work, times=times)

    def raw(self, data: bytes, *, after_work: bool = False, times: int | None = 1) -> None:
        """Send exactly these bytes on the socket and close it: status line, headers and all."""
        self._give(Raw(data), after_work=after_work, times=times)

    def redirect(self, to: str, status: int = 302, *, times: int | None = 1) -> None:
        """Send the caller elsewhere (301, 302, 303, 307, 308)."""
        self.answer(status, b"", {"location": to}, times=times)

    def close_after_accept(self, *, reset: bool = False, after_work: bool = False, times: int | None = 1) -> None:
        """Read the request and hang up without an answer, orderly or by a TCP reset.

        `after_work=True` first does what was asked for: the code is spent, the tokens exist, the answer is lost.
        """
        self._give(Cut(reset), after_work=after_work, times=times)

    def endless(self, *, chunked: bool = True, times: int | None = 1) -> None:
        """A body that never ends."""
        self._give(Endless(chunked), times=times)

    def gzip_bomb(self, megabytes: int = 300, *, times: int | None = 1) -> None:
        """A small answer that unpacks to hundreds of megabytes."""
        self._give(gzip_bomb(megabytes), times=times)

    def drip(
        self,
        bytes_per_second: float = 1.0,
        *,
        headers_too: bool = False,
        body: bytes | None = None,
        times: int | None = 1,
    ) -> None:
        """The honest answer (or `body`, labelled JSON) byte by byte; the headers at once unless they drip too."""
        given = None if body is None else Answer(200, (("content-type", "application/json"),), body)
        self._steps.add(DripStep(bytes_per_second, headers_too, given), times)

    def delay(self, seconds: float, *, times: int | None = 1) -> None:
        """Do the work at once and answer after some real seconds."""
        self._steps.add(Delay(seconds), times)

    def hang(self, *, after_work: bool = False, times: int | None = 1) -> Hold:
        """Accept, read, and say nothing until `release()` on the returned hold, which also tells of arrivals."""
        hold = Hold()
        self._steps.add(Wait(hold, after_work), times)
        return hold

    def alter(self, change: Change, *, times: int | None = 1) -> None:
        """Change the document of an honest answer: the function returns a new dict, or changes its own in place."""
        self._changes.add(change, times)

    def next_step(self) -> Step | None:
        """The provider's side: what is wrong with this request."""
        return self._steps.first()

    def changed(self, answer: Answer) -> Answer:
        """The provider's side: an honest answer after the alterations."""
        if answer.document is None:
            return answer
        document = copy.deepcopy(answer.document)
        for change in self._changes.all():
            returned = change(document)
            document = returned if isinstance(returned, dict) else document
        return answer.with_document(document)

    def _give(self, reply: Reply, *, times: int | None, after_work: bool = False) -> None:
        self._steps.add(Give(reply, after_work), times)


class TokenScript(EndpointScript):
    """The token endpoint: also its ID tokens."""

    def __init__(self) -> None:
        super().__init__()
        self._id_tokens: _Turns[IdTokenChange] = _Turns()

    def reset(self) -> None:
        super().reset()
        self._id_tokens.clear()

    def alter_id_token(
        self,
        *,
        header: Mapping[str, Any] | None = None,
        claims: Mapping[str, Any] | Callable[[Claims], Claims] | None = None,
        key: str = "",
        times: int | None = 1,
    ) -> None:
        """Forge the next ID token; see `forge.IdTokenChange` for the words."""
        self._id_tokens.add(IdTokenChange(header or {}, {} if claims is None else claims, key), times)

    def next_id_token(self) -> IdTokenChange | None:
        """The provider's side."""
        return self._id_tokens.first()


class AuthorizeScript(EndpointScript):
    """The authorization endpoint: `alter` changes the parameters of the redirect back to the client."""

    def error(self, error: str = "access_denied", *, times: int | None = 1, **more: str) -> None:
        """Come back with an error instead of a code; `more` may hold error_description and the like."""

        def refuse(fields: dict[str, Any]) -> dict[str, Any]:
            return {**{k: v for k, v in fields.items() if k != "code"}, "error": error, **more}

        self.alter(refuse, times=times)

    def fields(self, *, times: int | None = 1, **values: str | list[str] | None) -> None:
        """Set parameters of the redirect: None takes one out, a list sends it several times."""
        self.alter(lambda found: {**found, **values}, times=times)


class Script:
    """One script an endpoint: `idp.script.token.answer(status=500)`."""

    def __init__(self) -> None:
        self.authorize = AuthorizeScript()
        self.token = TokenScript()
        self.userinfo = EndpointScript()
        self.jwks = EndpointScript()
        self.discovery = EndpointScript()
        self.revoke = EndpointScript()
        self.resource = EndpointScript()

    def reset(self) -> None:
        """Back to honesty everywhere."""
        for script in vars(self).values():
            script.reset()

    def of(self, endpoint: str) -> EndpointScript:
        """The script of an endpoint by name."""
        script = getattr(self, endpoint)
        assert isinstance(script, EndpointScript)
        return script
