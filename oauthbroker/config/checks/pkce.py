"""Check an app that leaves PKCE out because its provider refuses it, and one that does not although it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.values.preset_merge import MCP, Merged

if TYPE_CHECKING:
    from oauthbroker.providers.preset import Preset

_NO_PKCE: Final = {"deviceCode", "clientCredentials"}


def check_pkce(app: Merged) -> None:
    """Check that something else ties the code to the attempt: our secret, and the account or the nonce that comes back
    with it (RFC 9700 section 2.1.1)."""
    problem = _problem(app) if app.habits.pkce == "refused" else ""
    if problem:
        app.written.refuse(("quirks", "pkce"), problem, _hint(app))


def pkce_to_be_refused(app: Merged) -> tuple[Keys, str, str] | None:
    """Return the place, the problem and the hint of an app whose authorizations will fail for their PKCE, by what its
    preset knows of the provider."""
    preset = None if app.place.is_elsewhere or app.habits.pkce == "refused" else app.preset
    if preset is None or not preset.pkce_refused_at or app.spec.flow in _NO_PKCE:
        return None
    name = preset.title.partition(" (")[0]
    if app.endpoints.authorization_url == preset.pkce_refused_at:
        what = f"{name} refuses PKCE at this address"
        return ("endpoints", "authorizationUrl"), what, f"write {secret_hint(preset)}"
    if app.auth_method != "none":
        what = f"{name} refuses PKCE from a client with a secret"
        return ("client",), what, f"write {secret_hint(preset)}"
    return None


def secret_hint(preset: Preset) -> str:
    """Return what an app with a secret writes at a provider that refuses PKCE from such clients."""
    where = f"endpoints: {{authorizationUrl: {preset.pkce_refused_at}}}"
    return (
        f"quirks: {{pkce: refused}}, {where} and an authMethod with a secret (oauthbroker providers show {preset.name})"
    )


def _hint(app: Merged) -> str:
    if preset := _preset_with_pkce(app):
        where = f" ({preset.pkce_refused_at})" if preset.pkce_refused_at else ""
        flow = f"the authorizationUrl of a flow that refuses PKCE{where}"
        return f"remove it, or write {flow} (oauthbroker providers show {preset.name})"
    return "remove it; it is for a confidential client with binding: providerIdentity or an identity from: idToken"


def _problem(app: Merged) -> str:
    if app.spec.provider == MCP:
        return "MCP servers need PKCE"
    if app.spec.flow in _NO_PKCE:
        return f"flow: {app.spec.flow} has no PKCE"
    if preset := _preset_with_pkce(app):
        return f"{preset.title} supports PKCE at the preset's authorization endpoint"
    if app.auth_method == "none":
        return "a public client has nothing else that proves a code to be its own"
    has_nonce = any(app.identities[mode].source == "idToken" for mode in app.identities_used)
    if app.binding != "providerIdentity" and not has_nonce:
        return "without PKCE nothing here shows that a code is from this browser's attempt"
    return ""


def _preset_with_pkce(app: Merged) -> Preset | None:
    """Return the preset whose own authorization endpoint takes PKCE."""
    preset, written = app.preset, app.spec.endpoints
    is_own = preset is not None and preset.pkce == "supported" and not (written and written.authorization_url)
    return preset if is_own else None
