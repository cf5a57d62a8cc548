"""Records as the specification prints them (12.5.4, 12.5.5), for operators: secrets masked, whole seconds."""

from __future__ import annotations

from typing import Any, Final

from oauthbroker.core.clock import printed
from oauthbroker.model.static_credential import FLOW as STATIC_FLOW
from oauthbroker.records.auth_session import AuthSession
from oauthbroker.records.codec import API_VERSION
from oauthbroker.records.grant import Grant
from oauthbroker.records.provider_data import visible_to_tools

MASK: Final = "<secret>"


def grant_record(grant: Grant) -> dict[str, Any]:
    """Return an OAuthGrantRecord, without the broker's own members.

    `providerData` shows only what tools get: the rest may hold another token, such as a Slack user's.
    """
    token: dict[str, Any] = {}
    visible = visible_to_tools(None, grant)
    if grant.token is not None:
        token = {"tokenType": grant.token.token_type, "accessToken": MASK}
        if grant.token.refresh_token is not None:
            token["refreshToken"] = MASK
        if grant.token.expires_at is not None:
            token["expiresAt"] = printed(grant.token.expires_at)
    return _record("OAuthGrantRecord", grant.id, {
        "provider": grant.provider,
        "oauthAppRef": {"kind": grant.kind, "name": grant.app},
        "subject": grant.subject,
        **_account(grant.account),
        "flow": grant.flow,
        "scopesGranted": list(grant.scopes),
        "token": token,
        "createdAt": printed(grant.created_at),
        "updatedAt": printed(grant.updated_at),
        "revoked": grant.revoked,
        "providerData": {name: visible.get(name, MASK) for name in grant.provider_data},
    })  # fmt: skip


def session_record(session: AuthSession) -> dict[str, Any]:
    """Return an AuthSessionRecord. A spent verifier or state is omitted, as in the store."""
    return _record("AuthSessionRecord", session.id, {
        "provider": session.provider,
        "oauthAppRef": {"kind": session.kind, "name": session.app},
        "subjectMode": session.subject_mode,
        "subject": session.subject,
        **_account(session.account),
        "requestedScopes": list(session.scopes),
        "flow": _flow(session),
        "status": session.status,
        "createdAt": printed(session.created_at),
        "expiresAt": printed(session.expires_at),
        "resume": session.resume.to_json(),
    })  # fmt: skip


def _account(account: str) -> dict[str, str]:
    return {"account": account} if account else {}


def _record(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _flow(session: AuthSession) -> dict[str, Any]:
    if session.kind == "CredentialApp":
        return {"type": STATIC_FLOW}
    return _device_flow(session) if session.device is not None else _code_flow(session)


def _code_flow(session: AuthSession) -> dict[str, Any]:
    attempt = session.attempt
    pkce: dict[str, Any] = {"method": "S256"}
    if attempt.verifier is not None:
        pkce["codeVerifier"] = MASK
    if attempt.challenge:
        pkce["codeChallenge"] = attempt.challenge
    return {"type": "authorization_code", "pkce": pkce, **({"state": MASK} if attempt.state.reveal() else {})}


def _device_flow(session: AuthSession) -> dict[str, Any]:
    device = session.device
    assert device is not None  # noqa: S101  (the caller asked)
    codes = {"deviceCode": MASK, "userCode": MASK} if device.code is not None else {}
    return {"type": "device_code", **codes, "verificationUri": device.verification_uri, "interval": device.interval}
