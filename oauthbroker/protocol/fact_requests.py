"""Ask the provider for the facts of a connection, with its new access token: userinfo, and the app's own requests."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.shapes import shaped, without_stray_joiners
from oauthbroker.core.strict_json import Json, decode_json
from oauthbroker.model.apps import App
from oauthbroker.model.connection_facts import LONGEST_FACT, FactRequest, TokenClaim
from oauthbroker.model.settings import Limits
from oauthbroker.observability.logging import Log
from oauthbroker.protocol.answer_checks import is_json, lookup, refuse_if_busy
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.crash_guard import validator
from oauthbroker.protocol.network.transport import Transport, send_for
from oauthbroker.protocol.userinfo import userinfo_request, userinfo_response
from oauthbroker.records.open_facts import Candidate, Learnt

MOST_CANDIDATES = 100
_LONGEST_LABEL = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class FactReader:
    """Asks for facts. A fact that cannot be had is missing, and never an error."""

    transport: Transport
    discovery: Discovery
    limits: Limits
    log: Log

    async def learn(self, app: App, token: Secret, user_info: Json | None = None) -> Learnt:
        """Return the facts of the account behind a token. `user_info` is userinfo's answer, if it was asked already."""
        facts, missing, candidates, label = dict[str, Any](), list[str](), tuple[Candidate, ...](), ""
        if app.facts.user_info:
            found = await self._of_user_info(app, token, user_info)
            facts |= found
            missing += [name for name in app.facts.user_info if name not in found]
        for request in app.facts.requests:
            elements = await self._elements(app, request, token, user_info)
            if len(elements) == 1:
                facts |= elements[0].facts
                label = elements[0].label if request.choose else label
            elif elements and request.choose:
                candidates = elements
            else:
                missing += request.each
        return Learnt(facts=facts, missing=tuple(missing), candidates=candidates, label=label)

    async def _of_user_info(self, app: App, token: Secret, known: Json | None) -> dict[str, Any]:
        try:
            if known is None:
                request = userinfo_request(app, await self.discovery.endpoints(app), token)
                answer = await send_for(app, request, "userinfo", self.transport, self.limits)
                known = userinfo_response(answer, lists=True, ok=app.habits.ok_members)
        except BrokerError as error:
            self._note(app, error, "userinfo")
            return {}
        return _usable(known, app.facts.user_info)

    async def _elements(
        self, app: App, request: FactRequest, token: Secret, user_info: Json | None
    ) -> tuple[Candidate, ...]:
        try:
            if user_info is not None and request.url == app.endpoints.user_info_url:
                return elements_in(request, user_info, token)
            answer = await send_for(app, fact_request(app, request, token), "userinfo", self.transport, self.limits)
            return elements_in(request, fact_response(answer), token)
        except BrokerError as error:
            self._note(app, error, "a request for facts")
            return ()

    def _note(self, app: App, error: BrokerError, place: str) -> None:
        self.log.warning("facts could not be read", app=app.name, place=place, code=error.code.value, note=error.note)


def fact_request(app: App, request: FactRequest, token: Secret) -> ProviderRequest:
    """Build the GET, with the token where the provider's API has it (RFC 6750 section 2.1)."""
    header, value = app.habits.token_proof(token)
    return ProviderRequest("GET", request.url, headers={header: value})


@validator(Code.FACT_MISSING)
def fact_response(answer: ProviderResponse) -> Json:
    """Parse the answer. Raises `factMissing`, `providerUnreachable`, `providerRateLimited`."""
    refuse_if_busy(answer)
    if answer.status != 200 or not is_json(answer):
        raise BrokerError(Code.FACT_MISSING, note=f"the answer has the status {answer.status}, or is no JSON")
    return decode_json(answer.body, Code.FACT_MISSING)


@validator(Code.FACT_MISSING)
def elements_in(request: FactRequest, found: Json, token: Secret) -> tuple[Candidate, ...]:
    """Return the elements that count, each once: some providers list a site for each of its products. An element
    without one of the facts does not count. Raises `factMissing` for none, for too many, and for several of which no
    user may choose."""
    found = lookup(found, request.path) if request.path else found
    elements: list[Candidate] = []
    for each in found if isinstance(found, list) else [found]:
        facts = _usable(each, request.each)
        if len(facts) == len(request.each) and _counts(each, request, token):
            element = Candidate(label=_label(each, request, facts), facts=facts)
            if all(facts != other.facts for other in elements):
                elements.append(element)
    if not elements or len(elements) > MOST_CANDIDATES:
        raise BrokerError(Code.FACT_MISSING, note=f"{len(elements)} elements count")
    if len(elements) > 1 and not request.choose:
        raise BrokerError(Code.FACT_MISSING, note="several elements count, and the app lets no user choose")
    return tuple(elements)


def _counts(element: Json, request: FactRequest, token: Secret) -> bool:
    """Return whether the element's members equal what the request wants, in type and value."""
    for path, wanted in request.where.items():
        value = _claims_of(token).get(wanted.name) if isinstance(wanted, TokenClaim) else wanted
        found = lookup(element, path)
        if value is None or type(found) is not type(value) or found != value:
            return False
    return True


def _claims_of(token: Secret) -> Mapping[str, Any]:
    """Return the claims of an access token that is a JWT. It came from the token endpoint itself, so that its signature
    says nothing more; no claim of it decides whose token it is."""
    _, _, rest = token.reveal().partition(".")
    part, _, _ = rest.partition(".")
    claims: Json = None
    with suppress(ValueError, BrokerError):
        claims = decode_json(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), Code.FACT_MISSING)
    return claims if isinstance(claims, dict) else {}


def _usable(element: Json, paths: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts that are short printable texts, whole numbers or booleans."""
    found = {name: lookup(element, path) for name, path in paths.items()}
    return {name: value for name, value in found.items() if _is_usable(value)}


def _is_usable(value: Json) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= LONGEST_FACT and value.isprintable()
    return isinstance(value, bool | int)


def _label(element: Json, request: FactRequest, facts: Mapping[str, Any]) -> str:
    said = lookup(element, request.label) if request.label else None
    text = said if isinstance(said, str) else str(next(iter(facts.values())))
    return without_stray_joiners(shaped(text)[:_LONGEST_LABEL]).strip()
