"""What a provider's token answer says beside the token: what is kept of it, and what tools are told.

A tool needs some of it to use the token: the host that its API calls go to, the id of the account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oauthbroker.apps import OAuthApp
from oauthbroker.records.grant import Grant
from oauthbroker.secret import Secret

LONGEST = 2048


def kept_facts(app: OAuthApp, facts: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a grant keeps of a token answer. What a later answer does not say again stays as it was `before`."""
    names = (*app.habits.keeps, *app.habits.tool_data)
    return {**(before or {}), **{name: facts[name] for name in names if name in facts}}


def told_to_tools(app: OAuthApp | None, grant: Grant) -> dict[str, Any]:
    """Return what the app's `toolData` declares, as far as it is plain: a text, a number or a truth, and no token.

    Without the app, which is not configured or whose values are not at hand, its provider's preset speaks for it.
    """
    if not grant.provider_data:
        return {}
    names = app.habits.tool_data if app is not None else _of_preset(grant.provider)
    found = {name: grant.provider_data[name] for name in names if name in grant.provider_data}
    return {name: value for name, value in found.items() if _is_plain(value, _secrets_of(grant))}


def _of_preset(provider: str) -> tuple[str, ...]:
    from oauthbroker.providers import presets  # here: a client has these nouns, and no presets

    preset = presets().get(provider)
    return tuple(preset.tool_data) if preset is not None else ()


def _is_plain(value: object, secrets: list[Secret]) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST and not any(secret.reveal() in value for secret in secrets if secret)
    return isinstance(value, bool | int | float)


def _secrets_of(grant: Grant) -> list[Secret]:
    token = grant.token
    own = [] if token is None else [token.access_token, token.refresh_token, grant.renewal.spare]
    return [secret for secret in own if secret is not None]
