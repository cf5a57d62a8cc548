"""Which of a preset's quirks no play shows: each quirk has one thing that a play must demand or answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from oauthbroker.protocol.answer_checks import lookup
from oauthbroker.providers.preset import Preset
from tests.kit.preset_plays import Play, Said

Shown = Callable[[Preset, Play], bool]
_NO_QUIRKS = {"api_base_path", "api_hosts", "no_api", "assertion_audience", "derived", "name", "title", "documentation", "register_at", "params", "endpoints", "flows", "pkce", "refresh_tokens", "identity",
              "sample_scopes", "refresh_token_idle_days", "refresh_token_days", "refresh_token_leeway_seconds", "access_token_idle_days", "token_limit",
              "notes", "modes", "evidence", "error_words", "environment", "public_flows", "pkce_refused_at"}  # fmt: skip


def unplayed(preset: Preset, plays: Iterable[Play]) -> list[str]:
    """The quirks that none of the plays shows: a mode's own (`mode.quirk`) in that mode, the others in any."""
    played = [(play.preset, play) for play in plays]
    found = [
        name
        for name in sorted(preset.model_fields_set - _NO_QUIRKS)
        if not any(_SHOWN[name](variant, play) for variant, play in played)
    ]
    for mode, variant in preset.variants().items():
        own = {name for name in variant.model_fields_set if getattr(variant, name) != getattr(preset, name)}
        for name in sorted(own - _NO_QUIRKS):
            if not any(_SHOWN[name](variant, play) for shown, play in played if shown == variant):
                found.append(f"{mode}.{name}")  # noqa: PERF401 - two loops read better than one long line
    found += [f"flow {flow}" for flow in preset.flows if flow not in {play.app.flow for _, play in played}]
    if preset.endpoints.refresh_url and not any(play.expects.refresh for _, play in played):
        found.append("endpoints.refresh_url")
    if any(it.refresh_tokens != "none" for it in preset.variants().values()):
        found += [] if any(play.result.after_refresh for _, play in played) else ["a refresh"]
    return found + _unsaid(preset, [play for _, play in played])


def _unsaid(preset: Preset, played: list[Play]) -> list[str]:
    """The provider's words for a refusal, and for a token that is dead already, which no answer of a play has."""
    variants = [preset, *preset.variants().values()]
    refused = [json.dumps(it.answer.body) for play in played for it in play.refusals]
    revoked = [json.dumps(play.answers.revoke.body) for play in played if play.expects.revoke]
    words = sorted({word for it in variants for word in it.error_words})
    dead = sorted({word for it in variants for word in it.revocation().dead_words})
    return [f"error word {word}" for word in words if not _said_in(word, refused)] + [
        f"dead word {word}" for word in dead if not _said_in(word, revoked)
    ]


def _said_in(word: str, answers: list[str]) -> bool:
    return any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", answer) for answer in answers)


def _bodies(play: Play) -> list[dict[str, Any]]:
    answers = (play.answers.token, play.answers.refresh)
    return [it.body for it in answers if it is not None and isinstance(it.body, dict)]


def _text(play: Play) -> str:
    """Everything that the token endpoint answers."""
    said = [play.answers.token, play.answers.refresh, *(it.answer for it in play.refusals)]
    return json.dumps([it.body for it in said if isinstance(it, Said)])


def _inner(variant: Preset, play: Play) -> list[dict[str, Any]]:
    """The objects that hold the tokens."""
    paths = (
        variant.token_path,
        variant.token_path if variant.refresh_token_path is None else variant.refresh_token_path,
    )
    found = [lookup(body, ".".join(path)) if path else body for body, path in zip(_bodies(play), paths, strict=False)]
    return [it for it in found if isinstance(it, dict)]


def _asked_scopes(variant: Preset, play: Play) -> list[str]:
    text = play.expects.authorize.get(variant.scope_param) or ""
    return text.split(variant.scope_separator) if text else []


def _answered(variant: Preset, play: Play) -> list[str]:
    separator = variant.answer_scope_separator or variant.scope_separator
    name = variant.token_names.get("scope", "scope")
    values = [it.get(name) for it in _inner(variant, play)]
    texts = [value for value in values if isinstance(value, str)]
    return [scope for text in texts for scope in text.split(separator)] + [
        scope for value in values if isinstance(value, list) for scope in value
    ]


def _within(wanted: dict[str, str], demanded: dict[str, str | None] | None) -> bool:
    return demanded is not None and wanted.items() <= {k: v for k, v in demanded.items() if v is not None}.items()


def _headers(wanted: dict[str, str], demanded: dict[str, str | None] | None) -> bool:
    return demanded is not None and {name.lower() for name in wanted} <= {name.lower() for name in demanded}


def _demand(play: Play, step: str, name: str) -> Any:
    demand = getattr(play.expects, step)
    return getattr(demand, name) if demand is not None else None


def _is_prefixed(variant: Preset, play: Play) -> bool:
    asked = set(play.app.scopes or [])
    return any(
        scope not in asked and scope.startswith(tuple(prefix.partition("{")[0] for prefix in variant.scope_prefixes))
        for scope in _answered(variant, play)
    )


_SHOWN: dict[str, Shown] = {
    "auth_method": lambda it, play: bool(_demand(play, "token", "auth")),
    "scope_separator": lambda it, play: len(_asked_scopes(it, play)) > 1,
    "answer_scope_separator": lambda it, play: any(
        str(it.answer_scope_separator) in str(inner.get("scope")) for inner in _inner(it, play)
    ),
    "scope_param": lambda it, play: it.scope_param in play.expects.authorize,
    "param_names": lambda it, play: (
        set(it.param_names.values())
        <= {
            *play.expects.authorize,
            *(_demand(play, "token", "params") or {}),
            *(_demand(play, "refresh", "params") or {}),
        }
    ),
    "code_param": lambda it, play: bool(play.expects.authorize),
    "always_scopes": lambda it, play: set(it.always_scopes) <= set(_asked_scopes(it, play)),
    "scope_aliases": lambda it, play: bool(set(it.scope_aliases) & set(_answered(it, play))),
    "scope_prefixes": _is_prefixed,
    "unlisted_scopes": lambda it, play: bool(
        set(it.unlisted_scopes) & (set(_asked_scopes(it, play)) - set(_answered(it, play)))
    ),
    "extra_scopes": lambda it, play: bool(set(_answered(it, play)) - set(_asked_scopes(it, play))),
    "scopeless": lambda it, play: (
        set(_answered(it, play)) != set(play.result.scopes) or play.expects.authorize.get(it.scope_param, "") is None
    ),
    "token_request_format": lambda it, play: _demand(play, "token", "body") == it.token_request_format,
    "token_headers": lambda it, play: _headers(it.token_headers, _demand(play, "token", "headers")),
    "authorize_params": lambda it, play: _within(it.authorize_params, play.expects.authorize),
    "token_params": lambda it, play: _within(it.token_params, _demand(play, "token", "params")),
    "refresh_params": lambda it, play: _within(it.refresh_params, _demand(play, "refresh", "params")),
    "second_exchange": lambda _, play: bool(play.expects.exchange),
    "refresh_with": lambda _, play: play.answers.refresh is not None,
    "refresh_scope": lambda it, play: "scope" in (_demand(play, "refresh", "params") or {}),
    "token_response_format": lambda it, play: (
        isinstance(play.answers.token.body, list)
        if it.token_response_format == "list"
        else (play.answers.token.type == "application/json") == (it.token_response_format == "json")
    ),
    "token_path": lambda it, play: any("{access}" in inner.values() for inner in _inner(it, play)),
    "refresh_token_path": lambda it, play: play.answers.refresh is not None,
    "token_names": lambda it, play: all(
        any(name in inner for inner in _inner(it, play)) for name in it.token_names.values()
    ),
    "token_type_aliases": lambda it, play: any(
        inner.get("token_type") in it.token_type_aliases for inner in _inner(it, play)
    ),
    "token_type_optional": lambda it, play: any("token_type" not in inner for inner in _inner(it, play)),
    "lifetime_field": lambda it, play: any(it.lifetime_field in inner for inner in _inner(it, play)),
    "lifetime_form": lambda it, play: (
        (play.result.lifetime_seconds == it.default_lifetime_seconds)
        if it.lifetime_form == "none"
        else play.result.lifetime_seconds is not None
    ),
    "default_lifetime_seconds": lambda it, play: (
        play.result.lifetime_seconds == it.default_lifetime_seconds
        and any(it.lifetime_field not in inner for inner in _inner(it, play))
    ),
    "error_members": lambda it, play: (
        any(path.split(".")[0] in _text(play) for path in it.error_members) and bool(play.refusals)
    ),
    "ok_members": lambda it, play: (
        any(path.split(".")[0] in _text(play) for path in it.ok_members) and bool(play.refusals)
    ),
    "id_token_algorithms": lambda it, play: play.answers.id_token is not None,
    "issuer_template": lambda it, play: play.answers.id_token is not None,
    "issuer_promised": lambda it, play: bool(play.expects.authorize),
    "user_info_method": lambda it, play: (
        play.answers.user_info is not None and play.expects.user_info.method == it.user_info_method
    ),
    "user_info_body": lambda it, play: play.expects.user_info.body == it.user_info_body,
    "user_info_headers": lambda it, play: _headers(it.user_info_headers, play.expects.user_info.headers),
    "user_info_kind": lambda it, play: play.answers.user_info is not None,
    "token_header": lambda it, play: "{access}" in str(play.expects.user_info.headers.get(str(it.token_header))),
    "token_scheme": lambda it, play: f"{it.token_scheme} {{access}}" in play.expects.user_info.headers.values(),
    "user_info_token_scheme": lambda it, play: (
        f"{it.user_info_token_scheme} {{access}}" in play.expects.user_info.headers.values()
    ),
    "api_headers": lambda it, play: bool(it.api_hosts),  # the tool of every play calls the API
    "connection_facts": lambda it, play: bool(play.result.facts),
    "keeps": lambda it, play: any(name in body for body in _bodies(play) for name in it.keeps),
    "tool_data": lambda it, play: any(name in body for body in _bodies(play) for name in it.tool_data),
    "revoke": lambda it, play: it.revocation().kind == "none" or play.expects.revoke is not None,
}
