"""One API request and the parsing of its answer. No I/O: `retries` sends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code, Locale, known_code
from oauthbroker.core.strict_json import MAX_DEPTH, decode_object
from oauthbroker.model.token_request import WrongArgument

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
PASSING = frozenset({408, 429, 502, 503, 504})  # the same call may succeed a moment later
ORIGIN = "oauthbroker-status"  # the header that tells the proxy's answers from the provider's
CODE = "oauthbroker-code"  # of the proxy's refusals, also where HEAD has no body
_MAX_WAIT = 3600
_MOST_ERRORS = 16
_LONGEST_SENTENCE = 4096
_OWN_LEVELS = 8  # of an answer, around what a turn or an event holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes = field(repr=False)
    media_type: str = ""
    retry_after: int | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    @property
    def forwarded(self) -> bool:
        """Return whether the answer is a provider's. Only answers of the proxy have headers."""
        return self.headers is not None and self.headers.get(ORIGIN) == "forwarded"


@dataclass(frozen=True, slots=True)
class ClientCall(Generic[T_co]):
    """One call. `repeatable`: a repetition has no further effect. `patience`: seconds that the broker may wait on
    purpose. `locale`: of the calling turn. `content` and `headers` are those of a request to forward."""

    method: str
    path: str
    validate: Callable[[Reply], T_co] = field(repr=False)
    _: KW_ONLY
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    repeatable: bool = True
    patience: float = 0
    locale: Locale | None = None
    content: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def may_repeat(self, reply: Reply) -> bool:
        """Tell whether to repeat the call. 429 was refused before any work, so it is repeated for every call. The
        answer of a provider is never a reason."""
        if reply.forwarded:
            return False
        return reply.status == 429 or (self.repeatable and reply.status in PASSING)


def reply_of(status: int, body: bytes, headers: Mapping[str, str]) -> Reply:
    """Return the answer with what its headers say about it. `headers` has lower-case names."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    of_proxy = dict(headers) if ORIGIN in headers else None
    return Reply(
        status=status,
        body=body,
        media_type=media_type,
        retry_after=_seconds(headers.get("retry-after", "")),
        headers=of_proxy,
    )


def members_of(reply: Reply, *statuses: int) -> dict[str, Any]:
    """Return the JSON of an answer with one of these statuses (200). Raises the error that any other answer names."""
    if reply.status not in (statuses or (200,)):
        raise refusal_of(reply)
    if reply.media_type != "application/json":
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="not JSON")
    # the broker is no stranger: its answers hold the payloads and origins that it has accepted
    levels = MAX_DEPTH + _OWN_LEVELS
    return decode_object(reply.body, Code.BROKER_ANSWER_INVALID, most_values=len(reply.body), levels=levels)


def found(reply: Reply, unless: Code) -> dict[str, Any] | None:
    """Return the JSON of an answer; None for the refusal `unless`."""
    if reply.status != 200 and refusal_of(reply).code is unless:
        return None
    return members_of(reply)


def done(reply: Reply, unless: Code | None = None) -> bool:
    """Return True for an answer without content, False for the refusal `unless`. Raises other refusals."""
    if reply.status == 204:
        return True
    error = refusal_of(reply)
    if error.code is not unless:
        raise error
    return False


def list_in(members: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the list of objects in an answer. Raises `brokerAnswerInvalid`."""
    each = members.get(name)
    if not isinstance(each, list) or not all(isinstance(item, dict) for item in each):
        raise BrokerError(Code.BROKER_ANSWER_INVALID, note="not a list")
    return each


def listed(path: str, name: str) -> ClientCall[list[dict[str, Any]]]:
    """Return the call that reads a whole list."""
    return ClientCall("GET", path, lambda reply: list_in(members_of(reply), name))


def segment(text: str) -> str:
    """Encode one segment of a path. Raises `requestInvalid` for a text that would change the path."""
    if not isinstance(text, str) or text in {"", ".", ".."}:
        raise WrongArgument("emptyName")
    return quote(text, safe="", errors="replace")


def refusal_of(reply: Reply) -> BrokerError:
    """Return the error of an RFC 9457 problem. Other refusals come from a proxy before the broker:
    `brokerUnreachable` for a temporary status, else `brokerAnswerInvalid`."""
    problem = _problem_in(reply)
    word = problem.get("code", (reply.headers or {}).get(CODE))
    if isinstance(word, str):
        code = known_code(word) or Code.BROKER_ANSWER_INVALID
    else:
        code = Code.BROKER_UNREACHABLE if reply.status in PASSING else Code.BROKER_ANSWER_INVALID
    wrong = _errors_in(problem)
    note = "; ".join([f"HTTP {reply.status}", *(" ".join(each.values()) for each in wrong)])
    refused = BrokerError(code, note=note, retry_after_seconds=reply.retry_after)
    refused.errors = wrong
    refused.sentence = _sentence_in(problem) if code.value == word else ""
    return refused


def understood(read: Callable[[], T]) -> T:
    """Return the result of `read`. Raises `brokerAnswerInvalid` if the answer lacks a member."""
    with suppress(KeyError, ValueError, TypeError, AttributeError):
        return read()
    raise BrokerError(Code.BROKER_ANSWER_INVALID, note="the answer lacks a member")


def _problem_in(reply: Reply) -> dict[str, Any]:
    """Return the members of an RFC 9457 problem; none for another answer."""
    with suppress(BrokerError):
        if reply.media_type == "application/problem+json":
            return decode_object(reply.body, Code.BROKER_ANSWER_INVALID)
    return {}


def _sentence_in(problem: Mapping[str, Any]) -> str:
    """Return the broker's sentence, which names what this process does not know. Empty for a text that is none."""
    said = problem.get("detail")
    return said if isinstance(said, str) and said.isprintable() and len(said) <= _LONGEST_SENTENCE else ""


def _errors_in(problem: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    """Return where the request is wrong, and why: pairs of short texts, which never repeat a value."""
    listed = problem.get("errors")
    each = [it for it in listed if isinstance(it, dict)] if isinstance(listed, list) else []
    pairs = [{name: str(it.get(name, "")) for name in ("pointer", "problem")} for it in each[:_MOST_ERRORS]]
    return tuple(pair for pair in pairs if all(it.isprintable() for it in pair.values()))


def _seconds(retry_after: str) -> int | None:
    """Parse the broker's Retry-After in seconds (RFC 9110 section 10.2.3). A date, sent by a proxy, is ignored."""
    if not (retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10):
        return None
    return min(int(retry_after), _MAX_WAIT)
