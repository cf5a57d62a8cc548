"""Check an app that leaves PKCE out because its provider refuses it."""

from __future__ import annotations

from oauthbroker.config.values.preset_merge import MCP, Merged
from oauthbroker.providers import Preset


def check_pkce(app: Merged) -> None:
    """Check that something else ties the code to the attempt: our secret, and the account or the nonce that comes back
    with it (RFC 9700 section 2.1.1)."""
    problem = _problem(app) if app.habits.pkce == "refused" else ""
    if problem:
        app.written.refuse(("quirks", "pkce"), problem, _hint(app))


def _hint(app: Merged) -> str:
    if preset := _preset_with_pkce(app):
        name = preset.name
        return (
            f"remove it, or write the authorizationUrl of a flow that refuses PKCE (oauthbroker providers show {name})"
        )
    return "remove it; it is for a confidential client with binding: providerIdentity or an identity from: idToken"


def _problem(app: Merged) -> str:
    if app.spec.provider == MCP:
        return "MCP servers need PKCE"
    if app.spec.flow in {"deviceCode", "clientCredentials"}:
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
