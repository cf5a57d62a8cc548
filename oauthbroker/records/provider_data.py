"""The extra data of a provider's token answer: what the grant stores, and what tools get.

A tool needs some of it to use the token, such as the API's host or the account's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import OAuthApp
from oauthbroker.records.grant import Grant

LONGEST = 2048


def kept_facts(app: OAuthApp, facts: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the data that a grant stores from a token answer. Members missing from the answer keep their value from
    `before`."""
    names = (*app.habits.keeps, *app.habits.tool_data)
    return {**(before or {}), **{name: facts[name] for name in names if name in facts}}


def visible_to_tools(app: OAuthApp | None, grant: Grant) -> dict[str, Any]:
    """Return the connection's parameters, and the app's `toolData`: texts, numbers and booleans that are not tokens.

    Without the app (not configured, or its values unavailable) its provider's preset is used.
    """
    if not grant.provider_data:
        return dict(grant.params)
    names = app.habits.tool_data if app is not None else _of_preset(grant.provider)
    found = {name: grant.provider_data[name] for name in names if name in grant.provider_data}
    kept = {name: value for name, value in found.items() if _is_plain(value, _secrets_of(grant))}
    return {**kept, **grant.params}


def _of_preset(provider: str) -> tuple[str, ...]:
    from oauthbroker.providers import presets  # imported here: a client uses the records without presets

    preset = presets().get(provider)
    return tuple(preset.tool_data) if preset is not None else ()


def _is_plain(value: object, secrets: list[Secret]) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST and not any(secret.reveal() in value for secret in secrets if secret)
    return isinstance(value, bool | int | float)


def _secrets_of(grant: Grant) -> list[Secret]:
    token = grant.token
    own = [] if token is None else [token.access_token, token.refresh_token, grant.refresh_state.spare]
    return [secret for secret in own if secret is not None]
