"""Whose account came back: read out of what the provider answered, in the words of the app's identity rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from oauthbroker.apps import ANYONE, IdentityRule, IdentitySource, OAuthApp
from oauthbroker.binding import Account, OwnerFacts
from oauthbroker.clock import Clock
from oauthbroker.errors import BrokerError, Code
from oauthbroker.protocol.answers import lookup
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.id_token import VerifiedClaims, key_id_of, verify_id_token
from oauthbroker.protocol.token import TokenResponse
from oauthbroker.protocol.transport import Transport
from oauthbroker.protocol.userinfo import userinfo_request, userinfo_response
from oauthbroker.secret import Secret
from oauthbroker.settings import Limits
from oauthbroker.turn import Json

__all__ = ["OwnerFacts", "OwnerReader", "render", "userinfo_request", "userinfo_response", "verify_id_token"]

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_WITH_COLONS = re.compile(r"[^{}]*\{\*[^{}]+\}")  # one fact, and nothing after it
_RUN_TOGETHER = re.compile(r"\}[^:{}]*\{")  # only a colon is in no fact: with a `-`, (a, b-c) would be (a-b, c)
_MAX_PART = 512


def render(template: str, facts: Json | Mapping[str, Json]) -> str:
    """`slack:user:{team.id}:{authed_user.id}` out of the provider's facts.

    A value that is missing, null, empty, neither text nor whole number, or that contains `:` or anything
    unprintable raises `subjectUnverifiable`: it could pass for another account. A number looks into a list,
    `{accounts.0.id}`, which may have one element: of several the token opens all, and the first may be another one
    next time. A claim whose own name is a URL is written as it is, `{https://slack.com/team_id}`.
    Ids that do hold colons are `{*account_id}`, the template's only fact and its end: nothing to mix up then.
    A template that names no fact would make everybody one account, and two facts without a `:` between them could be
    divided in two ways: `appMisconfigured`, as is a `*` elsewhere.
    """
    names = _PLACEHOLDER.findall(template)
    if not names:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the identity template names no fact")
    starred = any(name.startswith("*") for name in names)
    if _RUN_TOGETHER.search(template) or (starred and not _WITH_COLONS.fullmatch(template)):
        raise BrokerError(Code.APP_MISCONFIGURED, note="the identity template could not tell accounts apart")
    parts = {name: _part(_lookup(facts, name.lstrip("*")), colons=name.startswith("*")) for name in names}
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], template)


@dataclass(frozen=True, slots=True)
class OwnerReader:
    """Learns the owner of fresh tokens: verifies the ID token, asks userinfo only where a rule needs it."""

    transport: Transport
    discovery: Discovery
    clock: Clock
    limits: Limits

    async def read(
        self, app: OAuthApp, tokens: TokenResponse, nonce: Secret | None, sent_at: datetime | None = None
    ) -> OwnerFacts:
        """Who agreed; `nonce` and `sent_at` are those of the requests that led here.

        (1) an ID token that came along is verified wherever the issuer is known, needed or not (2) userinfo is
        asked when a rule that decides reads it (3) both must speak of the same `sub` (4) the rules are rendered.

        Raises `idTokenInvalid`, `subjectMismatch`, `subjectUnverifiable`, and what discovery and the transport raise.
        """
        claims = await self._verified(app, tokens, nonce, sent_at)  # (1)
        known: dict[IdentitySource, Json | Mapping[str, Json]] = {"tokenResponse": tokens.facts}
        if claims is not None:
            known["idToken"] = claims
        if "userInfo" in _sources(_deciding(app)):  # (2)
            told = known["userInfo"] = await self._userinfo(app, tokens)
            _check_same_person(app, claims, told)  # (3)
        return OwnerFacts(  # (4)
            global_identity=_identity(app, app.owner.global_identity, known),
            user_identity=_identity(app, app.owner.user_identity, known),
            account=_account(claims),
        )

    async def read_again(self, app: OAuthApp, tokens: TokenResponse, sent_at: datetime) -> OwnerFacts:
        """What a renewal's answer says of its owner; facts that it does not repeat are None. Nobody else is asked.

        Raises `subjectMismatch` for an ID token of another issuer or for another client (case 62), `idTokenInvalid`
        for one that is not sound, and what fetching its keys raises.
        """
        try:
            claims = await self._verified(app, tokens, None, sent_at)
        except BrokerError as error:
            refused = error
        else:
            known: dict[IdentitySource, Mapping[str, Json]] = {"tokenResponse": tokens.facts}
            if claims is not None:
                known["idToken"] = claims
            person = app.owner.user_identity
            if app.subject_mode == "global" and person is not None and person.source != "idToken":
                person = None  # who happened to agree for everybody is only told for certain by an ID token
            return OwnerFacts(
                global_identity=_repeated(app.owner.global_identity, known),
                user_identity=_repeated(person, known),
                account=_account(claims),
            )
        if refused.code is Code.ID_TOKEN_INVALID and refused.note in {"iss", "aud", "azp"}:
            refused = BrokerError(Code.SUBJECT_MISMATCH, note=f"the ID token's {refused.note}")
        raise refused.with_traceback(None)

    async def claims(self, app: OAuthApp, tokens: TokenResponse, nonce: Secret, sent_at: datetime) -> VerifiedClaims:
        """What a login's answer says in its ID token. Raises `idTokenInvalid`, `subjectUnverifiable` for an answer
        without one, and what fetching the keys raises."""
        claims = await self._verified(app, tokens, nonce, sent_at)
        if claims is None:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="no ID token came back")
        return claims

    async def _verified(
        self, app: OAuthApp, tokens: TokenResponse, nonce: Secret | None, sent_at: datetime | None
    ) -> VerifiedClaims | None:
        if tokens.id_token is None or not (app.endpoints.issuer or app.habits.issuer_template):
            return None
        keys = await self.discovery.signing_keys(app, key_id_of(tokens.id_token))
        judge = partial(
            verify_id_token,
            app,
            tokens.id_token,
            issuer=app.endpoints.issuer,
            nonce=nonce,
            access_token=tokens.access_token,
            now=self.clock.now(),
            sent_at=sent_at,
        )
        try:
            return judge(keys=keys)
        except BrokerError as error:
            refused = error.with_traceback(None)
        newer = await self.discovery.newer_keys(app, keys) if refused.note in {"key", "signature"} else keys
        if newer is keys:
            raise refused
        return judge(keys=newer)

    async def _userinfo(self, app: OAuthApp, tokens: TokenResponse) -> Json:
        request = userinfo_request(app, await self.discovery.endpoints(app), tokens.access_token)
        answer = await self.transport.send(
            request.for_app(app, "userinfo"), seconds=self.limits.provider_seconds, max_bytes=self.limits.provider_bytes
        )
        return userinfo_response(answer, lists=app.habits.user_info_kind == "own")


def _deciding(app: OAuthApp) -> tuple[IdentityRule, ...]:
    """The rules whose outcome decides; another one is rendered only if its facts are at hand anyway."""
    rules = [app.owner.user_identity]
    if app.subject_mode == "global":
        rules = [app.owner.global_identity]
        if app.owner.authorizers != ANYONE:
            rules.append(app.owner.user_identity)
    return tuple(rule for rule in rules if rule is not None)


def _sources(rules: tuple[IdentityRule, ...]) -> set[IdentitySource]:
    return {rule.source for rule in rules}


def _identity(
    app: OAuthApp, rule: IdentityRule | None, known: Mapping[IdentitySource, Json | Mapping[str, Json]]
) -> str | None:
    if rule is None:
        return None
    try:
        if rule.source in known:
            return _read(rule, known[rule.source])
        refused = BrokerError(Code.SUBJECT_UNVERIFIABLE, note="the provider sent nothing to read the account from")
    except BrokerError as exc:
        refused = exc
    if rule in _deciding(app):
        raise refused
    return None


def _repeated(rule: IdentityRule | None, known: Mapping[IdentitySource, Mapping[str, Json]]) -> str | None:
    """The rule's outcome where the answer holds all that it reads, else None."""
    if rule is None or rule.source not in known:
        return None
    try:
        return _read(rule, known[rule.source])
    except BrokerError:
        return None


def _read(rule: IdentityRule, facts: Json | Mapping[str, Json]) -> str:
    """The account, if the rest is as the rule requires. Raises `subjectUnverifiable`."""
    for name, wanted in rule.requires:
        found = _lookup(facts, name)
        if type(found) is not type(wanted) or found != wanted:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="the account is of another kind than the app is for")
    return render(rule.template, facts)


def _check_same_person(app: OAuthApp, claims: VerifiedClaims | None, userinfo: Json) -> None:
    """OpenID Connect Core 1.0 section 5.3.2: otherwise the userinfo may be about somebody else's token.

    A "who am I" call that is not OpenID's knows no `sub`; if it has one all the same, it is compared.
    """
    if claims is None:
        return
    sub = lookup(userinfo, "sub")
    if sub is None and app.habits.user_info_kind == "own":
        return
    if not isinstance(sub, str) or not sub:
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="userinfo names no sub")
    if sub != claims["sub"]:
        raise BrokerError(Code.SUBJECT_MISMATCH, note="userinfo is about another account than the ID token")


def _account(claims: VerifiedClaims | None) -> Account | None:
    return None if claims is None else (claims["iss"], claims["sub"])


def _lookup(facts: Json | Mapping[str, Json], name: str) -> Json:
    if "://" in name:
        return facts.get(name) if isinstance(facts, Mapping) else None
    found: Any = facts
    for step in name.split("."):
        if isinstance(found, list) and len(found) > 1:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="a list of several accounts, and nothing says which")
        found = lookup(found, step)
    return found


def _part(value: Json, *, colons: bool) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_PART or not value.isprintable():
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="a fact of the identity is missing or unusable")
    if ":" in value and not colons:
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="a fact of the identity is missing or unusable")
    return value
