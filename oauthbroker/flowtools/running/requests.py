"""Requests to the APIs of apps, by the broker's injecting client: a flow never gets the token or key."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import httpx2

from oauthbroker import (
    AuthorizationRequired,
    AuthorizationRequiredError,
    Broker,
    BrokerError,
    Code,
    Failed,
    RequestRefusedError,
    Turn,
    TurnAuth,
)
from oauthbroker.flowtools.running import ports
from oauthbroker.flowtools.running.ports import Effect
from oauthbroker.flowtools.specification.failures import json_fault
from oauthbroker.plugins import decode_json, wait_on

MOST_BYTES: Final = 1024 * 1024  # of an answer: the journal keeps it
MOST_VALUES: Final = 100_000  # of an answer: one with more stays a text
_SLACK_SECONDS: Final = 30.0  # beyond a request's own time, for the event loop
_SERVER_ERRORS: Final = 500
_ASKS_AGAIN: Final = frozenset({408, 425, 429})  # the API did not take the request (RFC 9110, 8470, 6585)
T = TypeVar("T")


class BrokerRequests:
    """Sends the requests of runs. Make it on the broker's event loop; runs call it from other threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._loop = broker, asyncio.get_running_loop()

    def problem(self, app: str, method: str, url: str) -> str:
        """Return why the app's token cannot be sent there: the host or method is not one of its `api`."""
        probe = Turn(ports.AGENT, "check", auth=TurnAuth(subjects={"user": "check", "global": "check"}))
        try:
            self._broker.oauth(probe).client_calls(app, None).target(method, url)
        except BrokerError as error:
            return f"{error.code.value}: {error.message()}"
        except RequestRefusedError as error:
            return f"{error.result.code.value}: {error.for_model}"
        return ""

    def ask(self, effect: Effect) -> None:
        asked = self._wait(self._ask(effect), ports.ASK_SECONDS, ports.NotSent)
        if isinstance(asked, AuthorizationRequired):
            raise ports.ConsentNeeded(asked)
        if isinstance(asked, Failed):
            raise (ports.NotSent if asked.retryable else ports.EffectRefused)(asked.code.value)

    def send(self, effect: Effect) -> Any:
        """Send a request and return `{status, body}`: the body as JSON, or as text. A GET or HEAD has no effect that
        could be lost. Raises the exceptions of the port."""
        lost = ports.NotSent if effect.operation in {"GET", "HEAD"} else ports.AnswerLost
        return self._wait(self._send(effect, lost), effect.seconds + _SLACK_SECONDS, lost)

    async def _ask(self, effect: Effect) -> AuthorizationRequired | Failed | None:
        return await self._broker.oauth(_turn(effect)).missing_consent(effect.fields["app"])

    async def _send(self, effect: Effect, lost: type[Exception]) -> Any:
        fields, body = effect.fields, bytearray()
        given: dict[str, Any] = {"params": fields["query"] or None, "json": fields["body"], "timeout": effect.seconds}
        given["headers"] = {} if lost is ports.NotSent else {"Idempotency-Key": effect.key}
        client = self._broker.oauth(_turn(effect)).client(fields["app"])
        sending = client.stream(effect.operation, fields["url"], **given)
        try:
            async with asyncio.timeout(effect.seconds), client, sending as answer:
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise lost(f"an answer of more than {MOST_BYTES} bytes")
        except AuthorizationRequiredError as error:
            raise ports.ConsentNeeded(error.result) from None
        except RequestRefusedError as error:
            raise _refusal(error.result, lost) from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise ports.NotSent("the API cannot be reached") from None
        except (httpx2.TransportError, TimeoutError):
            raise lost("no whole answer in time") from None
        return _answer(answer.status_code, answer.headers.get("content-type", ""), bytes(body), lost)

    def _wait(self, work: Coroutine[Any, Any, T], seconds: float, lost: type[Exception]) -> T:
        ended = self._loop.is_closed()
        with suppress(TimeoutError):
            try:
                return wait_on(self._loop, work, seconds)
            except BrokerError as error:
                if error.code is not Code.BROKER_UNREACHABLE:
                    raise
        raise (ports.NotSent if ended else lost)("the broker has ended, or gave no answer in time")


def _turn(effect: Effect) -> Turn:
    """Return the turn for which a token is asked; one without subjects gets none."""
    return effect.turn or Turn(ports.AGENT, "check")


def _refusal(failed: Failed, lost: type[Exception]) -> Exception:
    """Return the exception of a request that the broker did not finish. Only codes of the caller or the configuration,
    and those that ask for another try, are certain to come before the request."""
    if failed.code.status >= _SERVER_ERRORS:
        return lost(failed.code.value)
    return ports.NotSent(failed.code.value) if failed.retryable else ports.EffectRefused(failed.code.value)


def _answer(status: int, kind: str, body: bytes, lost: type[Exception]) -> dict[str, Any]:
    """Return the answer to a flow. Raises for another status than 2xx: an API that fails may have acted before."""
    if status >= _SERVER_ERRORS:
        raise lost(f"the API answered {status}")
    if not 200 <= status < 300:
        raise ports.EffectRefused(f"the API answered {status}", again=status in _ASKS_AGAIN)
    text: Any = body.decode("utf-8", "replace") or None
    if "json" in kind and body:
        with suppress(BrokerError):  # it stays a text
            text = decode_json(body, Code.REQUEST_INVALID, most_values=MOST_VALUES)
    if json_fault(text) is not None:
        raise lost("an answer with a value that no flow takes")
    return {"status": status, "body": text}
