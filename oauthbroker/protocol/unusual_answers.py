"""Read an answer after a consent whose form is unusual: its label or its encoding. What a provider has issued cannot be
had again, so it is kept and marked."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Literal
from urllib.parse import parse_qsl

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.strict_json import Json, decode_leniently
from oauthbroker.model.apps import App
from oauthbroker.protocol.answer_checks import is_json
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.token_fields import FORM, body_members, tells_error, the_one

Unusual = Literal["status", "mediaType", "encoding", "lifetime"]
SUCCESSES = frozenset({200, 201, 202, 203})
_MOST_FIELDS = 1000


def unusual_members(app: App, answer: ProviderResponse) -> tuple[dict[str, Json], tuple[Unusual, ...]] | None:
    """Return the members of an answer that is refused by its label or encoding, and its unusual parts. With any label
    it is JSON, or else a form: no body is both. None for an error, and where the body itself is refused, such as for a
    member twice."""
    body, declared = utf8_body(answer), app.habits.token_response_format
    for form in ("json" if declared == "form" else declared, "form"):
        reader = replace(app, habits=replace(app.habits, token_response_format=form))
        plain = replace(answer, body=body, content_type=FORM if form == "form" else "application/json")
        with suppress(BrokerError):
            members = body_members(reader, plain)
            is_labelled = form == declared and (answer.media_type == FORM if form == "form" else is_json(answer))
            marks: dict[Unusual, bool] = {"encoding": body != answer.body, "mediaType": not is_labelled}
            unusual = tuple(mark for mark, is_unusual in marks.items() if is_unusual)
            return None if tells_error(app, members) else (members, unusual)
    return None


def salvaged_members(answer: ProviderResponse) -> Iterator[Mapping[str, Json]]:
    """Yield what the body of a refused answer may mean, only to save a token from it: as JSON and as a form, with the
    last and with the first of equal names. No label counts, and no number is read. Raises nothing."""
    body = utf8_body(answer)
    for is_first in (False, True):
        with suppress(ValueError, RecursionError):
            found = the_one(decode_leniently(body, first_wins=is_first))
            if isinstance(found, dict):
                yield found
    with suppress(ValueError):
        pairs = parse_qsl(body.decode("ascii"), max_num_fields=_MOST_FIELDS)
        yield dict(pairs)
        yield dict(reversed(pairs))


def unusual_parts(answer: ProviderResponse) -> tuple[Unusual, ...]:
    """Return the unusual parts of an answer in JSON."""
    parts: dict[Unusual, bool] = {
        "status": answer.status != 200,
        "encoding": utf8_body(answer) != answer.body,
        "mediaType": not is_json(answer),
    }
    return tuple(part for part, is_unusual in parts.items() if is_unusual)


def utf8_body(answer: ProviderResponse) -> bytes:
    """Return the body without a byte order mark, and in UTF-8 where that mark says UTF-16. Another body as it is."""
    if answer.body.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        with suppress(UnicodeError):
            return answer.body.decode("utf-16").encode("utf-8")
    return answer.body.removeprefix(BOM_UTF8)
