"""Revoke a token at the provider: by RFC 7009, or by the provider's own request, which the preset describes as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

from oauthbroker.core.clock import Clock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Endpoints
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.protocol.answer_checks import members_of, refuse_if_busy
from oauthbroker.protocol.client_auth import authenticated_post, refusal_note
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse, Value, reveal
from oauthbroker.protocol.network.crash_guard import validator

Hint = Literal["refresh_token", "access_token"]

_PLACEHOLDER = re.compile(r"\{(client_id|client_secret|token)\}")
# RFC 7009 allows others too; these are the words that providers use for an unknown token.
_DEAD = frozenset({"invalid_token", "invalid_grant"})


def takes(revocation: Revocation, hint: Hint) -> bool:
    """Tell whether the provider can revoke tokens of this kind."""
    return revocation.kind != "none" and revocation.tokens in {"both", hint.removesuffix("_token")}


def also_in_body(app: App) -> bool:
    """Tell whether a refused revocation is sent once more with the client's secret in the body, too. Servers made with
    MCP's SDK demand it there beside Basic, and from public clients an empty one."""
    return app.mcp is not None and app.client.auth_method in {"client_secret_basic", "none"}


def revoke_request(
    app: App, endpoints: Endpoints, token: Secret, hint: Hint, *, clock: Clock, in_body: bool = False
) -> ProviderRequest:
    """Build the revocation request (RFC 7009 section 2.1, or the app's own). Revoke the refresh token before the access
    token: it lives longer. `in_body` is for the second attempt of `also_in_body`.

    `clock` dates a client assertion. Raises `appMisconfigured`, also for an app without a revocation endpoint.
    """
    if app.revocation.kind == "own":
        return _own_request(app, endpoints, token, clock)
    form: dict[str, Value] = {"token": token, "token_type_hint": hint}
    if in_body:
        form["client_secret"] = app.client.client_secret or ""
    return authenticated_post(app, endpoints, _address(app, endpoints.revoke_url), form, clock)


@validator(Code.APP_MISCONFIGURED)
def revoke_response(app: App, answer: ProviderResponse) -> bool:
    """Validate the answer. True: the token is dead. False: this provider does not revoke tokens of that kind.

    A token unknown to the provider counts as dead (RFC 7009 section 2.2). Raises `providerUnreachable` or
    `providerRateLimited` (retry later: section 2.2.1), `appMisconfigured`.
    """
    refuse_if_busy(answer)
    way = app.revocation
    if answer.status in {200, 202, 204} and not way.ok_field:
        return True
    if answer.status in way.dead_statuses:
        return True
    members = members_of(answer)
    if answer.status == 200 and members.get(way.ok_field) is True:
        return True
    said = members.get(way.error_field)
    word = said if isinstance(said, str) else ""
    if word in {*_DEAD, *way.dead_words} and answer.status < 500:
        return True
    if word == "unsupported_token_type":
        return False
    if word in {"ratelimited", "rate_limited"}:
        raise BrokerError(Code.PROVIDER_RATE_LIMITED, retry_after_seconds=answer.retry_after)
    said = f": {refusal_note(app, word)}" if word == "invalid_client" else ""
    raise BrokerError(Code.APP_MISCONFIGURED, note=f"the provider refused the revocation{said}")


def _own_request(app: App, endpoints: Endpoints, token: Secret, clock: Clock) -> ProviderRequest:
    way, url = app.revocation, _address(app, endpoints.revoke_url)
    members: dict[str, Value] = {name: _filled(app, text, token) for name, text in way.params.items()}
    if way.token_field:
        members[way.token_field] = token
    request = _proved(app, endpoints, url, members if way.body != "none" else {}, token, clock)
    headers = {**request.headers, **{name: _filled(app, text, token) for name, text in way.headers.items()}}
    return replace(
        request,
        method=way.method,
        headers=headers,
        form=request.form if way.body != "none" else None,
        encoding="json" if way.body == "json" else "form",
    )


def _proved(
    app: App, endpoints: Endpoints, url: str, members: Mapping[str, Value], token: Secret, clock: Clock
) -> ProviderRequest:
    """Build the request with its authentication: the client's, the token itself, or none."""
    match app.revocation.authenticate:
        case "client":
            return authenticated_post(app, endpoints, url, members, clock)
        case "basic":
            basic = replace(app, client=replace(app.client, auth_method="client_secret_basic"))
            return authenticated_post(basic, endpoints, url, members, clock)
        case "bearer":
            return ProviderRequest(
                "POST", url, headers={"Authorization": Secret(f"Bearer {token.reveal()}")}, form=members
            )
        case "none":
            return ProviderRequest("POST", url, form=members)


def _address(app: App, url: str) -> str:
    """Fill in the address. It never contains a secret, because addresses are logged."""
    if not url:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the app has no such endpoint")
    return url.replace("{client_id}", quote(app.client.client_id, safe=""))


def _filled(app: App, text: str, token: Secret) -> str | Secret:
    """Fill in the text. The result is a Secret once it contains a secret or token. Raises `appMisconfigured` where
    the secret is missing."""
    wanted = set(_PLACEHOLDER.findall(text))
    if "client_secret" in wanted and app.client.client_secret is None:
        raise BrokerError(Code.APP_MISCONFIGURED, note="the client secret is missing")
    values: dict[str, str | Secret] = {"client_id": app.client.client_id, "token": token}
    values["client_secret"] = app.client.client_secret or ""
    filled = _PLACEHOLDER.sub(lambda found: reveal(values[found[1]]), text)
    return Secret(filled) if wanted - {"client_id"} else filled
