"""The providers' dialects: plain OIDC, Slack's nesting, GitHub's forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oauthbroker.testing.provider.http import Answer, Request, json_answer
from oauthbroker.testing.provider.token_table import Issued, RefusedError
from oauthbroker.testing.provider.types import Account, Client, Dialect

_SLACK_WORDS = {"invalid_grant": "invalid_code", "invalid_client": "bad_client_secret"}
_GITHUB_WORDS = {"invalid_grant": "bad_verification_code", "invalid_client": "incorrect_client_credentials"}


def split_scopes(text: str) -> tuple[str, ...]:
    """Split scopes at blanks or commas, each once, in order."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


def token_answer(client: Client, issued: Issued, id_token: str, request: Request) -> Answer:
    """Build the token endpoint's success answer in the client's dialect."""
    match client.dialect:
        case "slack":
            return json_answer(_slack_tokens(client, issued))
        case "github":
            wants_json = "json" in request.header("accept")
            return json_answer(_plain_tokens(client, issued, ",", "bearer"), form=not wants_json)
        case "meta":
            return json_answer(lasting_answer(client, issued) | {"user_id": issued.access.agreement.account.sub})
        case _:
            return json_answer(
                _plain_tokens(client, issued, " ", "Bearer") | ({"id_token": id_token} if id_token else {})
            )


def _plain_tokens(client: Client, issued: Issued, separator: str, token_type: str) -> dict[str, Any]:
    scopes = {"scope": separator.join(issued.access.scopes)}
    return {"access_token": issued.access.text, "token_type": token_type, **scopes, **_lifetime(client, issued)}


def lasting_answer(client: Client, issued: Issued) -> dict[str, Any]:
    """Build Meta's answer: no scopes, and no refresh token."""
    return {"access_token": issued.access.text, "token_type": "bearer", **_lifetime(client, issued)}


def _lifetime(client: Client, issued: Issued) -> dict[str, Any]:
    members = {"expires_in": client.lifetime, "refresh_token": issued.refresh and issued.refresh.text}
    return {name: value for name, value in members.items() if value is not None}


def _slack_tokens(client: Client, issued: Issued) -> dict[str, Any]:
    """Build the shape of `oauth.v2.access`: a bot token at the top, a user's token inside `authed_user`, or both."""
    agreement = issued.access.agreement
    tokens = {
        "access_token": issued.access.text,
        "token_type": "user" if agreement.user_token else "bot",
        "scope": ",".join(issued.access.scopes),
        **_lifetime(client, issued),
    }
    user: dict[str, Any] = {"id": agreement.account.sub}
    return {
        "ok": True,
        "app_id": "A0TEST",
        "team": {"id": agreement.account.team, "name": f"Team {agreement.account.team}"},
        "enterprise": None,
        "is_enterprise_install": False,
        **({"authed_user": {**user, **tokens}} if agreement.user_token else {**tokens, "bot_user_id": "B0TEST"}),
        **({} if agreement.user_token else {"authed_user": user}),
        **(_slack_tokens(client, issued.beside) if issued.beside is not None else {}),
    }


def refusal(dialect: Dialect, refused: RefusedError, request: Request) -> Answer:
    """Build an error answer in a dialect: Slack and GitHub refuse with 200."""
    if dialect == "slack":
        answer = json_answer({"ok": False, "error": _SLACK_WORDS.get(refused.error, refused.error)})
    elif dialect == "github":
        document = {"error": _GITHUB_WORDS.get(refused.error, refused.error), "error_description": refused.why}
        answer = json_answer(document, form="json" not in request.header("accept"))
    elif dialect == "meta":
        code = {"invalid_client": 1, "invalid_grant": 190}.get(refused.error, 100)
        error = {"message": refused.why, "type": "OAuthException", "code": code}
        answer = json_answer({"error": error}, 400)
    else:
        answer = json_answer({"error": refused.error, "error_description": refused.why}, refused.status)
        if refused.status == 401 and request.header("authorization"):
            answer = answer.with_headers(("www-authenticate", 'Basic realm="token"'))
    return replace(answer, document=None)  # scripts alter grants, not refusals


def profile(dialect: Dialect, account: Account, scopes: tuple[str, ...]) -> dict[str, Any]:
    """Return the user's profile as the dialect's userinfo endpoint shows it."""
    if dialect == "github":
        return {"login": account.login, "id": account.number, "name": account.display, "email": account.email}
    if dialect == "slack":
        user = dict.fromkeys(("sub", "user_id", "https://slack.com/user_id"), account.sub)
        return {"ok": True, **user, **dict.fromkeys(("team_id", "https://slack.com/team_id"), account.team)}
    return {"sub": account.sub, "team": account.team, **account.claims, **personal(account, scopes)}


def personal(account: Account, scopes: tuple[str, ...]) -> dict[str, Any]:
    """Return the claims of the scopes `profile` and `email` (OIDC Core section 5.4)."""
    claims: dict[str, Any] = {}
    if "profile" in scopes:
        claims |= {"name": account.display, "preferred_username": account.login}
    if "email" in scopes and account.email:
        claims |= {"email": account.email, "email_verified": True}
    return claims
