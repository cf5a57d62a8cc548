"""List the unverified facts of a preset that an app relies on, without those that the app sets itself."""

from __future__ import annotations

from collections.abc import Mapping

from oauthbroker.config.values.preset_merge import Merged
from oauthbroker.config.written.client_spec import ENDPOINT_NAMES
from oauthbroker.config.written.resource_specs import QuirksSpec
from oauthbroker.model.apps import Flow

_ENDPOINTS = {written: name for name, written in ENDPOINT_NAMES.items()}
_QUIRKS = {info.alias or name: name for name, info in QuirksSpec.model_fields.items()}
_OPTIONS = {"authorizeParams": "authorize", "tokenParams": "token", "refreshParams": "refresh"}

# What a flow never uses; a name ending in * stands for all that begin so. RFC 8628 has the options and the scopes of
# the authorization request go with the device request.
_ONLY_WITH_A_PAGE = frozenset(
    {"endpoints.authorizationUrl", "endpoints.pushedAuthorizationUrl", "pkce", "issuerPromised"}
)
_UNUSED: Mapping[Flow, frozenset[str]] = {
    "authorizationCode": frozenset({"endpoints.deviceAuthorizationUrl"}),
    "deviceCode": _ONLY_WITH_A_PAGE,
    "clientCredentials": _ONLY_WITH_A_PAGE | {
        "endpoints.deviceAuthorizationUrl", "endpoints.userInfoUrl", "endpoints.jwksUrl", "endpoints.refreshUrl",
        "authorizeParams.*", "userInfo*", "idToken*", "issuer*", "alwaysScopes", "scopeParam",
        "refresh*",
    },
}  # fmt: skip

_OF_A_HOST = frozenset({"params", "derived", "endpoints", "apiHosts", "issuerTemplate", "issuerPromised"})


def unverified(app: Merged) -> tuple[str, ...]:
    """Return the paths of those facts, as in the preset's file: `endpoints.issuer`, `revoke.reach`."""
    preset = app.preset
    return tuple(path for path in preset.unverified() if _matters(app, path)) if preset else ()


def is_unusual(app: Merged) -> bool:
    """Return whether the app's flow is none of those that the preset knows to work there."""
    return app.preset is not None and app.spec.flow is not None and app.spec.flow not in app.preset.flows


def _matters(app: Merged, path: str) -> bool:
    """Return whether it is no note, not for another flow, and not set by the app."""
    name, _, inner = path.partition(".")
    spec = app.spec
    if _is_unused(app, path) or (app.place.is_elsewhere and name in _OF_A_HOST):
        return False
    match name:
        case "notes" | "refreshTokenIdleDays" | "refreshTokenDays":  # a forecast's business, no flow's
            return False
        case "flows":
            return spec.flow != "authorizationCode"
        case "endpoints":
            said = getattr(spec.endpoints, _ENDPOINTS[inner], None) if spec.endpoints else None
            return said is None
        case "identity":
            mode, _, half = inner.partition(".")
            return mode in app.identities_used and not _wrote_identity(app, mode, half)
        case "authMethod":
            return not (spec.client and spec.client.auth_method)
        case "assertionAudience":
            said_audience = spec.client.assertion_audience if spec.client else None
            return app.auth_method == "private_key_jwt" and said_audience is None
        case "authorizeParams" | "tokenParams" | "refreshParams":
            return inner not in (spec.options or {}).get(_OPTIONS[name], {})
        case _:
            return spec.quirks is None or _QUIRKS.get(name) not in spec.quirks.model_fields_set


def _is_unused(app: Merged, path: str) -> bool:
    """Return whether no step of the app's flow uses it."""
    flow = app.spec.flow or "authorizationCode"
    if path == "endpoints.issuer" and flow == "clientCredentials":
        return bool(app.endpoints.token_url)  # else it is found by its issuer
    return any(path == it or (it.endswith("*") and path.startswith(it[:-1])) for it in _UNUSED[flow])


def _wrote_identity(app: Merged, mode: str, half: str) -> bool:
    written = app.spec.owner.identity if app.spec.owner else None
    said = (written.global_ if mode == "global" else written.user) if written else None
    return said is not None and (said.template if half == "template" else said.source) is not None
