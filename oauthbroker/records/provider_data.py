"""The extra data of a connection, from the token answer and from its facts: what the grant stores, and what tools get.

A tool needs some of it to use the token, such as the API's host or the account's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.records.grant import Grant
from oauthbroker.records.open_facts import Learnt, OpenFacts, pause_after

LONGEST = 2048


def kept_facts(app: App, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data that a grant stores from a token answer."""
    return {name: facts[name] for name in (*app.habits.keeps, *app.habits.tool_data) if name in facts}


def with_learnt(grant: Grant, learnt: Learnt, before: Grant | None, now: datetime) -> Grant:
    """Return the grant with the facts that were learnt, and with those that are still open.

    `before` is the same account's grant, which keeps its choice while that is one of the candidates, and its facts
    where the provider cannot tell them now.
    """
    old = before.provider_data if before is not None else {}
    kept = next((each for each in learnt.candidates if each.facts.items() <= old.items()), None)
    missing = tuple(name for name in learnt.missing if name not in old)
    label = kept.label if kept is not None else learnt.label
    if before is not None and len(missing) < len(learnt.missing):
        label = label or before.chosen
    data = {**grant.provider_data, **{name: old[name] for name in learnt.missing if name in old}, **learnt.facts}
    data |= kept.facts if kept is not None else {}
    state = OpenFacts(candidates=learnt.candidates if kept is None else ())
    if missing:
        tries = 1 + (grant.open_facts.tries if grant.open_facts is not None else 0)
        state = replace(state, missing=missing, tries=tries, ask_after=now + pause_after(tries))
    left = state if state.missing or state.candidates else None
    return replace(grant.without_open_facts(), provider_data=data, chosen=label, open_facts=left)


def with_choice(grant: Grant, number: int) -> Grant:
    """Return the grant after the user has chosen. Raises IndexError for a number without a candidate."""
    candidates = grant.open_facts.candidates if grant.open_facts is not None else ()
    if not 0 <= number < len(candidates):
        raise IndexError(number)
    chosen, state = candidates[number], grant.open_facts
    data = {**grant.provider_data, **chosen.facts}
    left = replace(state, candidates=(), held=()) if state is not None and state.missing else None
    return replace(grant.without_open_facts(), provider_data=data, chosen=chosen.label, open_facts=left)


def visible_to_tools(app: App | None, grant: Grant) -> dict[str, Any]:
    """Return the connection's parameters, and the app's `toolData` and facts: texts, numbers and booleans that are not
    tokens.

    Without the app (not configured, or its values unavailable) its provider's preset is used.
    """
    if not grant.provider_data:
        return dict(grant.params)
    names = (*app.habits.tool_data, *app.facts.names) if app is not None else _of_preset(grant.provider)
    found = {name: grant.provider_data[name] for name in names if name in grant.provider_data}
    kept = {name: value for name, value in found.items() if _is_plain(value, _secrets_of(grant))}
    return {**kept, **grant.params}


def _of_preset(provider: str) -> tuple[str, ...]:
    from oauthbroker.providers import presets  # imported here: a client uses the records without presets

    preset = presets().get(provider)
    return (*preset.tool_data, *preset.connection_facts.names) if preset is not None else ()


def _is_plain(value: object, secrets: list[Secret]) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST and not any(secret.reveal() in value for secret in secrets if secret)
    return isinstance(value, bool | int | float)


def _secrets_of(grant: Grant) -> list[Secret]:
    token = grant.token
    own = [] if token is None else [token.access_token, token.refresh_token, grant.refresh_state.spare]
    return [secret for secret in own if secret is not None]
