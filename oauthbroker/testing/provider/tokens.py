"""The token endpoint (RFC 6749 section 3.2)."""

from __future__ import annotations

from oauthbroker.testing.provider import device
from oauthbroker.testing.provider.client_auth import authenticate, form_of, resources_of
from oauthbroker.testing.provider.dialects import refusal, split_scopes, token_answer
from oauthbroker.testing.provider.history import Refusal, TokenResponse
from oauthbroker.testing.provider.http import Answer, Request
from oauthbroker.testing.provider.id_tokens import id_token
from oauthbroker.testing.provider.script import DEVICE_GRANT
from oauthbroker.testing.provider.state import State
from oauthbroker.testing.provider.token_table import Agreement, Issued, RefusedError
from oauthbroker.testing.provider.types import Account, Client


def token(state: State, request: Request) -> Answer:
    """`POST /token`."""
    client: Client | None = None
    try:
        form = form_of(request)
        client = authenticate(state, request, form)
        issued = _redeem(state, client, form, resources_of(request))
    except RefusedError as refused:
        found = dict(request.form_fields)
        known = client or state.clients.get(found.get("client_id", ""))
        asked = {"client_id": known.client_id if known else "", "grant_type": found.get("grant_type", "")}
        state.refusals.append(Refusal(**asked, error=refused.error, why=refused.why, at=state.clock.now()))
        return refusal(known.dialect if known else "oidc", refused, request)
    grant_type = form["grant_type"]
    is_oidc = client.dialect == "oidc" and "openid" in issued.access.scopes and grant_type != "client_credentials"
    answer = token_answer(client, issued, id_token(state, client, issued, grant_type) if is_oidc else "", request)
    about = {"client_id": client.client_id, "login": issued.access.agreement.account.login, "grant_type": grant_type}
    state.token_responses.append(TokenResponse(**about, at=state.clock.now(), document=answer.document or {}))
    return answer


def _redeem(state: State, client: Client, form: dict[str, str], resources: tuple[str, ...]) -> Issued:
    match form.get("grant_type"):
        case "authorization_code":
            code, verifier = form.get("code", ""), form.get("code_verifier", "")
            if verifier and client.pkce == "refused":  # as LinkedIn's standard flow does
                raise RefusedError("invalid_client", "PKCE is not offered", 401)
            return state.token_table.redeem_code(client, code, form.get("redirect_uri", ""), verifier, resources)
        case "refresh_token":
            scopes = split_scopes(form.get("scope", ""))
            return state.token_table.redeem_refresh(client, form.get("refresh_token", ""), scopes, resources)
        case "client_credentials" if client.auth_method != "none":
            return _machine_tokens(state, client, split_scopes(form.get("scope", "")), resources)
        case grant_type if grant_type == DEVICE_GRANT:
            return device.redeem(state, client, form.get("device_code", ""), resources)
        case _:
            raise RefusedError("unsupported_grant_type", "not offered here")


def _machine_tokens(state: State, client: Client, scopes: tuple[str, ...], resources: tuple[str, ...]) -> Issued:
    """Issue client credentials tokens (RFC 6749 section 4.4): no user, no refresh token."""
    if client.scopes and not set(scopes) <= client.scopes:
        raise RefusedError("invalid_scope", "not registered for this scope")
    account = Account(client.client_id, client.client_id, name=client.display)
    scopes = scopes or tuple(sorted(client.scopes))
    machine = Agreement(
        client_id=client.client_id, account=account, scopes=scopes, at=state.clock.now(), resources=resources
    )
    return state.token_table.issue(client, machine, scopes, refresh=False)
