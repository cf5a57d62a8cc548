"""Who may finish whose session: the account that came back against the subject that asked."""

from __future__ import annotations

import re

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import Json
from oauthbroker.model.apps import App
from oauthbroker.model.grant_key import GrantKey

Account = tuple[str, str]
LONGEST_PART = 512  # characters of a claim in an identity


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """What the provider said about who agreed. `account` is (issuer, sub) of a verified ID token,
    `user_info` userinfo's answer where a rule needed it, `unusual` parts of the form of that answer. `name` is what
    people call the account: shown and never compared."""

    global_identity: str | None = None
    user_identity: str | None = None
    account: Account | None = None
    _: KW_ONLY
    user_info: Json = field(default=None, compare=False)
    unusual: tuple[str, ...] = ()
    name: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return "OwnerFacts(...)"


@dataclass(frozen=True, slots=True)
class CheckedOwner:
    """The account to pin and what people call it, and in global mode the user who consented for the team."""

    account: Account | None
    authorized_by: str | None = None
    name: str = field(default="", compare=False)


def check_owner(
    app: App, subject: str, facts: OwnerFacts, *, confirmed: bool = False, account: str = ""
) -> CheckedOwner:
    """Compare byte for byte; no folding, no e-mail, no display name.

    `confirmed`: by this app's binding, the browser that brought the code is the subject's. An app whose binding asks
    for that gets no grant without it, even if the provider's facts match. With a named `account` it may be any of the
    subject's: the binding alone tells whose browser it was.

    Raises `subjectMismatch` (another account, tenant or team), `subjectForbidden` (global mode, not an
    authorizer), `subjectUnverifiable` (nothing to compare with, and no other binding that confirms).
    """
    if app.owner.confirmation is not None and not confirmed:
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE)
    if app.subject_mode == "global":
        return _check_global(app, subject, facts)
    return _check_user(app, subject, facts, account)


def _check_user(app: App, subject: str, facts: OwnerFacts, account: str) -> CheckedOwner:
    if is_the_account(app, subject, account):
        if facts.user_identity is None:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE)
        if facts.user_identity != subject:
            raise BrokerError(Code.SUBJECT_MISMATCH)
    elif app.owner.binding != "localOperator" and app.owner.confirmation is None:  # nothing confirms
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE)
    return CheckedOwner(_pin(app, facts, facts.user_identity), facts.user_identity, facts.name)


def is_the_account(app: App, subject: str, account: str) -> bool:
    """Tell whether `identity.user` has to be the subject. The identity of one of several accounts need not be."""
    other = account and app.several_accounts and app.owner.binding != "providerIdentity"
    return not other and _speaks_of(app, subject)


def _speaks_of(app: App, subject: str) -> bool:
    """Tell whether `identity.user` can be compared with this subject. Where the binding itself confirms the browser,
    a subject may be an account of the runtime's own, in a spelling that the provider's accounts never have."""
    rule = app.owner.user_identity
    if rule is None or app.owner.binding == "providerIdentity":
        return rule is not None
    return spelling(rule.template).fullmatch(subject) is not None


def spelling(template: str) -> re.Pattern[str]:
    """Return the pattern of all identities that a template can produce: a claim never holds a colon, unless it is a
    `{*claim}`."""
    parts = re.split(r"\{[^{}]*\}", template)
    part = f"{'.' if '{*' in template else '[^:]'}{{1,{LONGEST_PART}}}"
    return re.compile(part.join(map(re.escape, parts)))


def _check_global(app: App, subject: str, facts: OwnerFacts) -> CheckedOwner:
    if app.credential is not None and app.owner.binding == "localOperator" and app.owner.global_identity is None:
        return CheckedOwner(None, name=facts.name)
    if facts.global_identity is None:
        raise BrokerError(Code.SUBJECT_UNVERIFIABLE)
    if facts.global_identity != subject:
        raise BrokerError(Code.SUBJECT_MISMATCH)
    if app.owner.authorizers != "anyone":
        if facts.user_identity is None:
            raise BrokerError(Code.SUBJECT_UNVERIFIABLE)
        if facts.user_identity not in app.owner.authorizers:
            raise BrokerError(Code.SUBJECT_FORBIDDEN)
    return CheckedOwner((_issuer(app), facts.global_identity), facts.user_identity, facts.name)


def _pin(app: App, facts: OwnerFacts, identity: str | None) -> Account | None:
    """Return the account to pin. It follows from the configuration, not from the scopes of this request."""
    if facts.account is not None and _pins_id_token(app):
        return facts.account
    return (_issuer(app), identity) if identity is not None else None


def _pins_id_token(app: App) -> bool:
    rule = app.owner.user_identity
    return "openid" in app.habits.always_scopes or rule is None or rule.source == "idToken"


def check_same_owner(
    app: App, key: GrantKey, pinned: Account | None, authorized_by: str | None, facts: OwnerFacts
) -> None:
    """Check that the answer to a refresh names no other owner than the grant's (OpenID Connect Core 1.0 section
    12.2). Raises `subjectMismatch`."""
    if app.subject_mode == "global":
        same = facts.global_identity in {None, key.subject} and (
            authorized_by is None or facts.user_identity in {None, authorized_by}
        )
    else:
        compared = pinned is not None and facts.account is not None and _pins_id_token(app)
        known = key.subject if is_the_account(app, key.subject, key.account) else (authorized_by or facts.user_identity)
        same = facts.user_identity in {None, known} and (not compared or facts.account == pinned)
    if not same:
        raise BrokerError(Code.SUBJECT_MISMATCH)


def knows_by_sub(app: App) -> bool:
    """Return whether this app's accounts are pinned by the `sub` of ID tokens of one issuer."""
    one_issuer = bool(app.endpoints.issuer) and not app.habits.issuer_template
    return app.subject_mode == "user" and one_issuer and _pins_id_token(app)


def pin_of(app: App, subject: str, sub: str | None) -> Account | None:
    """Return the account to pin for a grant that comes from elsewhere: the subject, where that is what a login would
    pin, or the `sub` that came along. None leaves it to the next login."""
    if app.subject_mode == "user" and (_pins_id_token(app) or not _speaks_of(app, subject)):
        return (app.endpoints.issuer, sub) if sub is not None and knows_by_sub(app) else None
    return _issuer(app), subject


def _issuer(app: App) -> str:
    return app.endpoints.issuer or app.facts.filled(app.endpoints.token_url, {})


def check_pin(pinned: Account | None, came: Account | None, *, switch_account: bool) -> None:
    """Check the account against the pinned one. The first success pins the account; another one later needs an explicit
    switch. Raises `subjectMismatch`."""
    if pinned is not None and came != pinned and not switch_account:
        raise BrokerError(Code.SUBJECT_MISMATCH)
