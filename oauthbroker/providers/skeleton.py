"""Print an OAuthApp to start from, for any preset: it loads as it is, and asks for the values that only its owner
knows."""

from __future__ import annotations

import re
from importlib import resources

from jinja2 import Environment

from oauthbroker.providers.preset import Param, Preset

_EXAMPLES = ("example.com", "example", "https://example.com", "12345", "us")


def app_yaml(preset: Preset, mode: str = "") -> str:
    """Return the YAML of an app with this preset, in one of its modes."""
    variant = preset.in_mode(mode) if mode else preset
    asks = variant.flows[0] != "clientCredentials"  # else the token is the app's own, and no user is asked
    person = asks and _is_for_a_person(preset, variant, mode)
    identity = variant.identity.user if person else variant.identity.global_
    needs_identity = asks and (identity is None or not identity.template)
    ends = variant.endpoints
    tells = ends.issuer or variant.issuer_template or ends.user_info_url or not ends.token_url or preset.modes
    where = "idToken" if variant.endpoints.issuer or variant.issuer_template else "userInfo"
    text = resources.files(__package__).joinpath("skeleton.j2").read_text("utf-8")
    template = Environment(trim_blocks=True, autoescape=False).from_string(text)  # noqa: S701  (YAML)
    return template.render(
        preset=variant,
        name=app_name(preset, mode),
        mode="user" if person else "global",
        env=re.sub(r"[^A-Z0-9]", "_", variant.name.upper()),
        example=example,
        asks=asks,
        needs_identity=needs_identity,
        nothing_tells=needs_identity and not tells,
        source="" if identity else f"from: {where}, ",
        modes=preset.modes if mode else None,
        variant=mode,
    )


def app_name(preset: Preset, mode: str = "") -> str:
    """Return the name of the app to start from."""
    return f"my-{preset.name}-{mode}".strip("-")


def _is_for_a_person(preset: Preset, variant: Preset, mode: str) -> bool:
    """Choose user mode, unless the preset knows only a team's account, or this mode is the one for teams."""
    usual, teams = (preset.modes.default, preset.modes.teams) if preset.modes else ({}, [])
    if mode and (usual.get("global") == mode != usual.get("user") or mode in teams):
        return False
    return variant.identity.user is not None or variant.identity.global_ is None


def example(param: Param) -> str:
    """Return a value that fits."""
    return next((it for it in (param.default, *_EXAMPLES) if it and re.fullmatch(param.pattern, it)), "")
