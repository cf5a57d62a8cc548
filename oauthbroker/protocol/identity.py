"""Determine the account behind fresh tokens from the provider's answers, by the app's identity rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import Json
from oauthbroker.model.apps import ANYONE, App, IdentityRule, IdentitySource
from oauthbroker.model.owner_check import LONGEST_PART, Account, OwnerFacts
from oauthbroker.model.settings import Limits
from oauthbroker.protocol.account_names import name_of
from oauthbroker.protocol.answer_checks import lookup
from oauthbroker.protocol.discovery import Discovery
from oauthbroker.protocol.id_token import VerifiedClaims, read_id_token, verify_id_token
from oauthbroker.protocol.network.transport import Transport, send_for
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.protocol.unusual_answers import Unusual, unusual_parts
from oauthbroker.protocol.userinfo import userinfo_request, userinfo_response

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_WITH_COLONS = re.compile(r"[^{}]*\{\*[^{}]+\}")  # one fact, and nothing after it
_RUN_TOGETHER = re.compile(r"\}[^:{}]*\{")  # only a colon is in no fact: with a `-`, (a, b-c) would equal (a-b, c)


def render(template: str, facts: Json | Mapping[str, Json]) -> str:
    """Render a template such as `slack:user:{team.id}:{authed_user.id}` from the provider's facts.

    Raises `subjectUnverifiable` for a value that is missing, null, empty, neither text nor whole number, or that
    contains `:` or unprintable characters: it could pass for another account. A number indexes a list,
    `{accounts.0.id}`, which must have one element: a token may open several accounts, and their order may change. A
    claim whose own name is a URL is written as it is, `{https://slack.com/team_id}`. Ids that contain colons are
    `{*account_id}`, allowed only as the template's one fact at its end.

    Raises `appMisconfigured` for a template without facts (all users would be one account), for two facts without a `:`
    between them (they could be divided in two ways), and for a `*` elsewhere.
    """
    names = _PLACEHOLDER.findall(template)
    if not names:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the identity template names no fact")
    starred = any(name.startswith("*") for name in names)
    if _RUN_TOGETHER.search(template) or (starred and not _WITH_COLONS.fullmatch(template)):
        raise BrokerError(Code.APP_MISCONFIGURED, note="the identity template could not tell accounts apart")
    parts = {name: _part(fact_at(facts, name.lstrip("*")), colons=name.startswith("*")) for name in names}
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], template)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReader:
    """Determines the owner of fresh tokens: verifies the ID token, and calls userinfo only where a rule needs it."""

    transport: Transport
    discovery: Discovery
    clock: Clock
    limits: Limits

    async def read(
        self, app: App, tokens: TokenResponse, nonce: Secret | None, sent_at: datetime | None = None
    ) -> OwnerFacts:
        """Return the account that agreed. `nonce` and `sent_at` are those of the requests.

        (1) verify an ID token wherever the issuer is known, also where no rule reads it (2) call userinfo if a deciding
        rule reads it (3) require the same `sub` in both (4) render the rules.

        Raises `idTokenInvalid`, `subjectMismatch`, `subjectUnverifiable`, and what discovery and the transport raise.
        """
        claims = await self._verified(app, tokens, nonce, sent_at)  # (1)
        unusual: tuple[Unusual, ...] = ()
        known: dict[IdentitySource, Json | Mapping[str, Json]] = {"tokenResponse": tokens.facts}
        if claims is not None:
            known["idToken"] = claims
        if any(rule.source == "userInfo" for rule in _deciding(app)):  # (2)
            known["userInfo"], unusual = await self._userinfo(app, tokens.access_token)
            _check_same_person(app, claims, known["userInfo"])  # (3)
        return OwnerFacts(  # (4)
            global_identity=_identity(app, app.owner.global_identity, known),
            user_identity=_identity(app, app.owner.user_identity, known),
            account=_account(claims),
            user_info=known.get("userInfo"),
            unusual=unusual,
            name=name_of(app, known),
        )

    async def read_again(self, app: App, tokens: TokenResponse, sent_at: datetime) -> OwnerFacts:
        """Return the owner facts in the answer to a refresh. Facts that it does not repeat are None. Sends no further
        request, except for signing keys.

        Raises `subjectMismatch` for an ID token of another issuer or another client (case 62), `idTokenInvalid` for an
        invalid one, and what fetching its keys raises.
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
                person = None  # only an ID token names for certain the person who agreed on behalf of all users
            return OwnerFacts(
                global_identity=_repeated(app.owner.global_identity, known),
                user_identity=_repeated(person, known),
                account=_account(claims),
            )
        if refused.code is Code.ID_TOKEN_INVALID and refused.note in {"iss", "aud", "azp"}:
            refused = BrokerError(Code.SUBJECT_MISMATCH, note=f"the ID token's {refused.note}")
        raise refused.with_traceback(None)

    async def ask(self, app: App, access_token: Secret) -> OwnerFacts | None:
        """Return the account of an access token that came from elsewhere, as userinfo names it. None if a deciding rule
        reads another answer, which only a consent or a refresh brings.

        Raises `reauthRequired` where userinfo does not answer with facts, `subjectUnverifiable` for facts that name no
        account, and what discovery and the transport raise.
        """
        if {rule.source for rule in _deciding(app)} != {"userInfo"}:
            return None
        try:
            known: dict[IdentitySource, Json] = {"userInfo": (await self._userinfo(app, access_token))[0]}
        except BrokerError as error:
            refused = error.with_traceback(None)
        else:
            return OwnerFacts(
                global_identity=_identity(app, app.owner.global_identity, known),
                user_identity=_identity(app, app.owner.user_identity, known),
                name=name_of(app, known),
            )
        if refused.code is Code.SUBJECT_UNVERIFIABLE:
            refused = BrokerError(Code.REAUTH_REQUIRED, note=refused.note)
        raise refused

    async def claims(self, app: App, tokens: TokenResponse, nonce: Secret, sent_at: datetime) -> VerifiedClaims:
        """Return the claims of a login's ID token. Raises `idTokenInvalid`, `subjectUnverifiable` for an answer
        without one, and what fetching the keys raises."""
        claims = await self._verified(app, tokens, nonce, sent_at)
        if claims is None:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="no ID token came back")
        return claims

    async def _verified(
        self, app: App, tokens: TokenResponse, nonce: Secret | None, sent_at: datetime | None
    ) -> VerifiedClaims | None:
        if tokens.id_token is None or not (app.endpoints.issuer or app.habits.issuer_template):
            return None
        id_token = read_id_token(tokens.id_token)
        keys = await self.discovery.signing_keys(app, id_token.kid)
        verified = partial(
            verify_id_token,
            app,
            id_token,
            issuer=app.endpoints.issuer,
            nonce=nonce,
            access_token=tokens.access_token,
            now=self.clock.now(),
            sent_at=sent_at,
        )
        try:
            return verified(keys=keys)
        except BrokerError as error:
            refused = error.with_traceback(None)
        newer = await self.discovery.newer_keys(app, keys) if refused.note in {"key", "signature"} else keys
        if newer is keys:
            raise refused
        return verified(keys=newer)

    async def _userinfo(self, app: App, access_token: Secret) -> tuple[Json, tuple[Unusual, ...]]:
        request = userinfo_request(app, await self.discovery.endpoints(app), access_token)
        answer = await send_for(app, request, "userinfo", self.transport, self.limits)
        facts = userinfo_response(answer, lists=app.habits.user_info_kind == "own", ok=app.habits.ok_members)
        return facts, unusual_parts(answer)


def _deciding(app: App) -> tuple[IdentityRule, ...]:
    """Return the rules that decide. The others are rendered only if their facts are at hand."""
    rules = [app.owner.user_identity]
    if app.subject_mode == "global":
        rules = [app.owner.global_identity]
        if app.owner.authorizers != ANYONE:
            rules.append(app.owner.user_identity)
    return tuple(rule for rule in rules if rule is not None)


def _identity(
    app: App, rule: IdentityRule | None, known: Mapping[IdentitySource, Json | Mapping[str, Json]]
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
    """Render the rule if the answer holds all facts that it reads; else None."""
    if rule is None or rule.source not in known:
        return None
    try:
        return _read(rule, known[rule.source])
    except BrokerError:
        return None


def _read(rule: IdentityRule, facts: Json | Mapping[str, Json]) -> str:
    """Render the account if the rule's other requirements hold. Raises `subjectUnverifiable`."""
    for name, wanted in rule.requires:
        found = fact_at(facts, name)
        if type(found) is not type(wanted) or found != wanted:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="the account is of another kind than the app is for")
    return render(rule.template, facts)


def _check_same_person(app: App, claims: VerifiedClaims | None, userinfo: Json) -> None:
    """Check that ID token and userinfo have the same `sub`, else userinfo may belong to another token (OpenID Connect
    Core 1.0 section 5.3.2).

    A "who am I" call outside OpenID has no `sub`. If it has one, it is compared.
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


def fact_at(facts: Json | Mapping[str, Json], name: str) -> Json:
    """Return the fact at a dotted path, or of a name that is a URL; None if there is none. Raises
    `subjectUnverifiable` for a path through a list of several elements."""
    if "://" in name:
        return facts.get(name) if isinstance(facts, Mapping) else None
    found: Any = facts
    for step in name.split("."):
        if isinstance(found, list) and len(found) > 1:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="the answer lists several accounts")
        found = lookup(found, step)
    return found


def _part(value: Json, *, colons: bool) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    fits = isinstance(value, str) and 0 < len(value) <= LONGEST_PART and value.isprintable()
    if not isinstance(value, str) or not fits or (":" in value and not colons):
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE, note="a fact of the identity is missing or unusable")
    return value
