"""Answer `POST /v1/tokens` from its bytes, without a wait, where the same holder has asked for the same before.

`Endpoint` is the general way, and decides everything. Only a call that it would answer with `ready` again is answered
here: with the same authentication, limit, audit entry, count and line in the log, and the same bytes. In any doubt the
general way answers, and nothing has happened before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.access.turns import AdmittedTurn, Turns, token_digest
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError
from oauthbroker.tokens.issuance import Issuance, Words
from oauthbroker.tokens.token_issuer import TokenIssuer
from oauthbroker.web.api.authentication import TURN_BEARER, bearer_of
from oauthbroker.web.api.handlers_tokens import printed
from oauthbroker.web.api.request_models import TokenRequest
from oauthbroker.web.api.request_parsing import LONGEST_BODY, is_json, parsed
from oauthbroker.web.gate.request_limits import is_ours
from oauthbroker.web.middleware.access_log import Begun, RequestLog
from oauthbroker.web.middleware.rate_limits import RequestLimits
from oauthbroker.web.middleware.security_headers import raw_security_headers

ROUTE = "/v1/tokens"
ASK_SECONDS = 1.0  # for the store's word, before the general way begins
_CODED = frozenset({b"transfer-encoding", b"content-encoding"})  # headers of a body that is read by the general way
Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class WarmHead:
    """The head of a request for a token, with the digest of its turn token and the length of its body."""

    digest: bytes
    length: int


class WarmTokens:
    """The warm calls of one application. `hosts` are those that it answers for; `limits` are those of its API."""

    def __init__(
        self,
        *,
        hosts: frozenset[str],
        https: bool,
        turns: Turns,
        issuer: TokenIssuer,
        limits: RequestLimits,
        log: RequestLog,
    ) -> None:
        self._hosts, self._turns, self._issuer, self._limits, self._log = hosts, turns, issuer, limits, log
        fixed = [(b"content-type", b"application/json"), *raw_security_headers(https=https)]
        self._fixed = b"".join(b"\r\n%b: %b" % pair for pair in fixed) + b"\r\nx-request-id: "

    def head(self, headers: Headers, *, check_host: bool) -> WarmHead | None:
        """Return a head of a POST to the route if `answer` may answer its requests: as the gate, `Callers` and
        `read_body` check it, with a turn token that was admitted. None for any other."""
        said = dict(headers)
        named = [name for name, _ in headers]
        if not all(named.count(name) == 1 for name in (b"authorization", b"content-type", b"content-length")):
            return None
        if check_host and not (named.count(b"host") == 1 and is_ours(said[b"host"], self._hosts)):
            return None
        token, length = bearer_of(said[b"authorization"]), said[b"content-length"]
        if not token.startswith(TURN_BEARER) or not is_json(said[b"content-type"]) or said.keys() & _CODED:
            return None
        if not length.isdigit() or len(length) > 4 or int(length) > LONGEST_BODY:
            return None
        digest = token_digest(token.encode("utf-8", "surrogatepass"))
        return None if self._turns.admitted(digest) is None else WarmHead(digest, int(length))

    def answer(self, head: WarmHead, body: bytes) -> bytes | None:
        """Return the header lines after the status line, and the body. None where the general way has to answer."""
        token_holder = self._turns.holder(head.digest)
        return None if token_holder is None else self._answer(self._log.begin_request(), token_holder, body)

    def question(self, head: WarmHead, body: bytes) -> Coroutine[Any, Any, bytes | None] | None:
        """Return what asks the store whether this holder may have this answer again, and returns as `answer` does. None
        if the store need not be asked."""
        admitted = self._turns.admitted(head.digest)
        words = _words(body) if admitted is not None and admitted.token_holder.issued else None
        if admitted is None or words is None or words not in admitted.token_holder.issued:
            return None
        return self._ask(head.digest, admitted, body, words)

    async def _ask(self, digest: bytes, admitted: AdmittedTurn, body: bytes, words: Words) -> bytes | None:
        begun, confirmed = self._log.begin_request(), None
        with suppress(BrokerError, TimeoutError):  # the general way asks again, and reports it
            async with asyncio.timeout(ASK_SECONDS):
                confirmed = await self._issuer.confirm(admitted.token_holder, words, turn=admitted.version)
        if confirmed is None or self._turns.admitted(digest) != admitted:
            return None
        return self._answer(begun, admitted.token_holder, body, confirmed)

    def _answer(
        self, begun: Begun, token_holder: TurnTokenHolder, body: bytes, confirmed: Issuance | None = None
    ) -> bytes | None:
        words = _words(body)
        if words is None or not self._limits.admits(token_holder.turn_id):
            return None
        issuance = self._issuer.reissue(token_holder, words, confirmed=confirmed)
        if issuance is None:
            self._limits.give_back(token_holder.turn_id)
            return None
        if confirmed is not None:
            self._issuer.note_ready(begun.at)
        text = issuance.printed_by(printed).encode()
        answer = b"content-length: %d%b%b\r\n\r\n%b" % (len(text), self._fixed, begun.id.encode(), text)
        try:  # noqa: SIM105  (on the warm path of a token call)
            self._log.end_request(begun, ROUTE, "POST", 200)
        except (OSError, ValueError):  # a full, closed or broken log costs no answer
            pass
        return answer


def _words(body: bytes) -> Words | None:
    """Return what the body asks for, which its bytes alone say. None if it is invalid or asks for more."""
    try:
        return parsed(TokenRequest, body).words
    except BrokerError:
        return None
