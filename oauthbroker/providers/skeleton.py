"""An OAuthApp to start from, for any preset: it loads as it is, and asks for what only its owner knows."""

from __future__ import annotations

import re

from oauthbroker.providers import Param, Preset, PresetIdentity

_EXAMPLES = ("example.com", "example", "https://example.com", "12345", "us")


def app_yaml(preset: Preset, mode: str = "") -> str:
    """The YAML of an app with this preset, in one of its modes."""
    variant = preset.in_mode(mode) if mode else preset
    person = _is_for_a_person(preset, variant, mode)
    lines = [
        "apiVersion: agents.example.io/v1alpha1",
        "kind: OAuthApp",
        f"metadata: {{name: {f'my-{variant.name}-{mode}'.strip('-')}}}",
        "spec:",
        f"  provider: {variant.name}",
        *_params(variant.params),
        f"  flow: {variant.flows[0]}",
        f"  subjectMode: {'user' if person else 'global'}",
        *_client(variant),
        *([] if _is_addressed(variant) else ['  endpoints: {issuer: "https://login.example.com"} # yours']),
        _scopes(variant),
        *_owner(variant, person=person),
    ]
    if mode and preset.modes:
        lines.append(f"  options: {{{preset.name}: {{{preset.modes.option}: {mode}}}}}")
    return "\n".join(lines) + "\n"


def _is_for_a_person(preset: Preset, variant: Preset, mode: str) -> bool:
    """User mode, unless the preset knows only a team's account, or this mode is the one for teams."""
    usual, teams = (preset.modes.default, preset.modes.teams) if preset.modes else ({}, [])
    if mode and (usual.get("global") == mode != usual.get("user") or mode in teams):
        return False
    return variant.identity.user is not None or variant.identity.global_ is None


def _scopes(preset: Preset) -> str:
    """Two scopes as an example, or none where the provider has none."""
    said = ", ".join(f'"{scope}"' for scope in preset.sample_scopes)
    return f"  scopes: [{said}] # {'for example; ' if said else ''}the most this app may ever have"


def _params(params: dict[str, Param]) -> list[str]:
    if not params:
        return []
    return ["  params:", *(f'    {name}: "{example(param)}" # {param.description}' for name, param in params.items())]


def example(param: Param) -> str:
    """A value that fits."""
    return next((it for it in (param.default, *_EXAMPLES) if it and re.fullmatch(param.pattern, it)), "")


def _client(preset: Preset) -> list[str]:
    name = re.sub(r"[^A-Z0-9]", "_", preset.name.upper())
    if preset.auth_method == "none":
        return [f"  client: {{clientId: {{valueFrom: {{env: {name}_CLIENT_ID}}}}}}"]
    return [
        "  client:",
        f"    clientId: {{valueFrom: {{env: {name}_CLIENT_ID}}}}",
        f"    clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/{preset.name}, key: client_secret}}}}}}",
    ]


def _is_addressed(preset: Preset) -> bool:
    return bool(preset.endpoints.issuer or preset.endpoints.token_url)


def _owner(preset: Preset, *, person: bool) -> list[str]:
    known = preset.identity.user if person else preset.identity.global_
    lines = _identity(preset, "user" if person else "global", known)
    if not person:
        lines.append("    authorizers: anyone # or a list: who may connect it for the team")
    return ["  owner:", *lines] if lines else []


def _identity(preset: Preset, mode: str, known: PresetIdentity | None) -> list[str]:
    if known is not None and known.template:
        return []
    said = (
        "" if known else "from: idToken, " if preset.endpoints.issuer or preset.issuer_template else "from: userInfo, "
    )
    return [
        "    identity:",
        f'      {mode}: {{{said}template: "{preset.name}:{mode}:{{sub}}"}} # as your runtime spells it',
    ]
