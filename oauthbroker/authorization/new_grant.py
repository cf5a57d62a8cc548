"""Make the grant and the events of a finished authorization from verified tokens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.owner_check import CheckedOwner, is_the_account
from oauthbroker.model.static_credential import FLOW as STATIC_FLOW
from oauthbroker.protocol.access_exchange import next_token_of
from oauthbroker.protocol.token_endpoint import TokenResponse
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.records.connection_event import session_event
from oauthbroker.records.device_authorization import FLOW as DEVICE_FLOW
from oauthbroker.records.open_facts import Learnt
from oauthbroker.records.provider_data import kept_facts, with_learnt
from oauthbroker.records.refresh_end import next_end
from oauthbroker.records.retired_tokens import Retired
from oauthbroker.records.unrevoked_tokens import beside, passed_on

_OF_THE_SUBJECT = frozenset({Code.SCOPE_EXCEEDED, Code.FACT_MISSING})  # of `Finish.verify`, after the owner's check


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Tokens that passed every check, with the values to store beside them. Only `Finish.verify` and `CredentialEntry`
    make one. `unverified`: no provider was asked for the account. `is_second`: they came beside those of the session's
    own app. `unusual`: of the answer of userinfo."""

    tokens: TokenResponse
    owner: CheckedOwner
    scopes: tuple[str, ...]
    missing: tuple[str, ...]
    learnt: Learnt = field(default_factory=Learnt)
    unverified: bool = False
    is_second: bool = False
    unusual: tuple[str, ...] = ()


def next_grant(
    app: App, session: AuthSession, verified: Verified, old: Grant | None, sent_at: datetime, now: datetime
) -> Grant:
    """Return the grant that replaces `old`, with its event, or `old` itself as `_kept_grant` says. The token's lifetime
    counts from `sent_at`."""
    if (faster := _kept_grant(app, session, verified, old, now)) is not None:
        return faster
    tokens, before = verified.tokens, old
    old = old if old is not None and old.registration == app.registration else None
    kept = _kept_refresh(old, verified) if tokens.refresh_token is None else None
    token, before_end = tokens.token(sent_at, next_token_of(app, tokens, is_first=True) or kept), None
    if kept is not None and old is not None and old.ends is not None:  # the kept token's own end stays
        before_end = replace(old.ends, consent_at=None) if old.ends.token_at is not None else None
    grant = Grant(
        app=app.name,
        provider=app.provider,
        subject=session.subject,
        flow=_flow_of(app, session),
        scopes=verified.scopes,
        token=token,
        exchange_due=app.habits.second_exchange is not None and tokens.refresh_token is None,
        ends=next_end(before_end, token, tokens.ends, sent_at, app.habits.refresh_token_days),
        created_at=old.created_at if old is not None and not old.revoked else now,
        updated_at=now,
        account=session.account,
        label=session.label or (old.label if old is not None else ""),
        account_name=verified.owner.name,
        params=session.params,
        pinned=verified.owner.account,
        authorized_by=verified.owner.authorized_by,
        auth_session_id=session.id,
        registration=app.registration,
        unverified=verified.unverified or (kept is not None and old is not None and old.unverified),
        resume=session.resume,
        declined=_declined(old, session, verified),
        provider_data=kept_facts(app, tokens.facts),
        unusual=tuple(dict.fromkeys((*tokens.unusual, *verified.unusual))),
    )
    if app.facts.names:
        grant = with_learnt(grant, verified.learnt, _same_account(old, verified), now)
    missing = {"scopesMissing": list(verified.missing)} if verified.missing else {}
    event = granted_event(session, grant, now, **missing)
    if verified.is_second:
        event = replace(event, id=f"{event.id}-{app.name}")  # the session's other grant has the plain id
    return passed_on(before, _with_event(grant, before, event), app)


def _kept_grant(app: App, session: AuthSession, verified: Verified, old: Grant | None, now: datetime) -> Grant | None:
    """Return the grant of another link's consent that was faster, with the new tokens among those to be revoked: it has
    all their scopes, and some that this consent was not asked for. None where the new tokens replace it."""
    old = _same_account(old, verified)
    if old is None or old.registration != app.registration or old.needs_choice or app.credential is not None:
        return None
    alive = old.refresh_tokens or (old.token is not None and old.token.lives(0, now))
    asked_anew = session.switch_account or session.claims or set(old.scopes) <= set(session.scopes)
    if asked_anew or not alive or not set(verified.scopes) <= set(old.scopes):
        return None
    issued, by = verified.tokens.issued, verified.owner.authorized_by
    unused = Retired(now, issued.refresh, issued.access, registration=app.registration, authorized_by=by)
    return beside(old, replace(unused, params=session.params), app)


def _with_event(grant: Grant, old: Grant | None, event: AgentEvent) -> Grant:
    """Return the grant with its event and those of the old grant. While the user has to choose, the event waits."""
    if grant.open_facts is None or not grant.needs_choice:
        return replace(grant, outbox=(*(old.without_open_facts().outbox if old is not None else ()), event))
    held = old.open_facts.held if old is not None and old.open_facts is not None else ()
    waiting = replace(grant.open_facts, held=(*held, event))
    return replace(grant, outbox=old.outbox if old is not None else (), open_facts=waiting)


def unstored_grant(app: App, session: AuthSession, code: Code, at: datetime) -> Grant | None:
    """Return the grant that the tokens of a refused answer would have been, ended: others may end with it. None if
    none can, and if it may be another account's than the subject's: the refusal came before that was compared, or there
    is nothing to compare."""
    is_own = app.subject_mode == "user" and is_the_account(app, session.subject, session.account)
    is_second = session.config_digest != app.config_digest  # of one consent with a grant that may stand
    if code not in _OF_THE_SUBJECT or not is_own or is_second or app.revocation.reach == "token":
        return None
    return Grant(
        app=app.name, provider=app.provider, subject=session.subject, flow=_flow_of(app, session), scopes=(),
        token=None, created_at=at, updated_at=at, revoked=True, account=session.account, params=session.params,
        authorized_by=session.subject, registration=app.registration,
    )  # fmt: skip


def granted_event(session: AuthSession, grant: Grant, at: datetime, **more: Any) -> AgentEvent:
    named = {"accountName": grant.account_name} if grant.account_name else {}
    return session_event(
        session, "auth.granted", at, scopesGranted=list(grant.scopes), grantId=grant.id, **named, **more
    )


def carries(grant: Grant, session: AuthSession) -> bool:
    """Return whether this session's commit reached the grant, even if a later one replaced it."""
    granted = f"evt-{session.id}-auth.granted"
    held = grant.open_facts.held if grant.open_facts is not None else ()
    return grant.auth_session_id == session.id or any(event.id == granted for event in (*grant.outbox, *held))


def _flow_of(app: App, session: AuthSession) -> str:
    if app.credential is not None:
        return STATIC_FLOW
    return "authorization_code" if session.device is None else DEVICE_FLOW


def _declined(old: Grant | None, session: AuthSession, verified: Verified) -> dict[str, int]:
    """Return the scopes that consent did not grant, with how often in a row. Scopes that were not requested keep their
    count."""
    before: Mapping[str, int] = {}
    if old is not None and not old.revoked and old.pinned == verified.owner.account:
        before = old.declined
    answered = {*session.scopes, *verified.scopes}
    kept = {scope: times for scope, times in before.items() if scope not in answered}
    return kept | {scope: before.get(scope, 0) + 1 for scope in verified.missing}


def _same_account(old: Grant | None, verified: Verified) -> Grant | None:
    """Return the living grant that is certainly the same account's."""
    if old is None or old.revoked or old.pinned is None or old.pinned != verified.owner.account:
        return None
    return old


def _kept_refresh(old: Grant | None, verified: Verified) -> Secret | None:
    """Return the refresh token to keep when the same account connects again and the provider sends none."""
    if old is None or old.pinned is None or old.pinned != verified.owner.account or old.renews_itself:
        return None
    return next(iter(old.refresh_tokens), None)  # empty for a revoked grant and without tokens known to be dead
