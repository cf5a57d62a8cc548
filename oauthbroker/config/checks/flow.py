"""Check one app's flow: the settings that it needs, and those without a meaning in it (12.5.7)."""

from __future__ import annotations

from oauthbroker.config.values.preset_merge import MCP, Merged
from oauthbroker.config.written.resource_specs import QuirksSpec
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import CONFIRMATIONS


def check_flow(app: Merged) -> None:
    """Check the flow (12.5.7). An impossible one is refused here, not at the first call."""
    if app.spec.flow is None:
        app.written.missing(("flow",), "write flow: authorizationCode, deviceCode or clientCredentials")
    elif app.spec.flow == "deviceCode":
        _check_device_code(app)
    elif app.spec.flow == "clientCredentials":
        _check_client_credentials(app)
    if app.spec.flow in {"deviceCode", "clientCredentials"}:
        _check_quirks_of_callbacks(app)


def _check_quirks_of_callbacks(app: Merged) -> None:
    """Check that no written quirk is about a callback, or the exchange of its code, in a flow without one."""
    quirks = app.spec.quirks or QuirksSpec.empty()
    written = {
        ("codeParam",): "code_param" in quirks.model_fields_set,
        ("issuerPromised",): "issuer_promised" in quirks.model_fields_set,
        ("paramNames", "code"): "code" in quirks.param_names,
        ("paramNames", "redirect_uri"): "redirect_uri" in quirks.param_names,
    }
    for at in (at for at, is_written in written.items() if is_written):
        app.written.refuse(("quirks", *at), f"flow: {app.spec.flow} has no callback", "remove it", key=True)


def _check_device_code(app: Merged) -> None:
    """Check the device code flow. RFC 8628 has no browser to bind a session to, so the owner is compared, or it is the
    person at this machine, to whom alone the code is shown (`localOperator`, on loopback)."""
    code = Code.DEVICE_CODE_UNSUPPORTED
    if app.spec.provider and not _may_have_device_endpoint(app):
        what = f"{code.value}: no device endpoint is known here"
        hint = "write endpoints.deviceAuthorizationUrl, or flow: authorizationCode"
        app.written.refuse(("flow",), what, hint, code)
    hint = "write providerIdentity, or flow: authorizationCode"
    if app.binding in CONFIRMATIONS:
        what = f"{code.value}: no browser comes back with a device code, so no binding can confirm its user"
        app.written.refuse(("owner", "binding"), what, hint, code)
    if app.redirect.link == "direct":
        what = "a device code has no direct link: the user would not see its purpose"
        app.written.refuse(("redirect", "link"), what, "remove it, or write link: connect")


def _may_have_device_endpoint(app: Merged) -> bool:
    """Return whether it is named, or left to discovery. A preset that names its endpoints would name this one too."""
    if app.endpoints.device_authorization_url:
        return True
    names_its_own = app.preset is not None and bool(app.preset.endpoints.token_url) and not app.place.is_elsewhere
    return bool(app.endpoints.issuer) and not names_its_own


def _check_client_credentials(app: Merged) -> None:
    """Check client credentials (RFC 6749 section 4.4). Our client gets the token for itself: no setting about a user or
    a browser applies, and a public client gets none."""
    spec = app.spec
    if spec.subject_mode == "user":
        what = "client credentials speak for no person"
        app.written.refuse(("subjectMode",), what, "write subjectMode: global, or another flow")
    if app.auth_method == "none":
        what = "a public client has no credentials"
        app.written.refuse(("client", "authMethod"), what, "write how the client proves itself, or another flow")
    for name, written in (
        ("redirect", spec.redirect),
        ("owner", spec.owner),
        ("pushedAuthorization", spec.pushed_authorization),
        ("options.authorize", (spec.options or {}).get("authorize")),
        ("accounts", spec.accounts if spec.accounts == "several" else None),
    ):
        if written is not None:
            what = "no user is asked, and no browser comes back, with flow: clientCredentials"
            app.written.refuse(tuple(name.split(".")), what, "remove it", key=True)


def check_pushing(app: Merged) -> None:
    """Check pushed authorization requests (RFC 9126). They live about a minute, so they are pushed for a waiting
    browser only."""
    if app.spec.flow == "deviceCode" and app.spec.pushed_authorization is not None:
        what = "no browser is sent anywhere with flow: deviceCode"
        app.written.refuse(("pushedAuthorization",), what, "remove it", key=True)
    elif app.spec.flow != "clientCredentials" and app.spec.pushed_authorization == "required":
        _check_push_required(app)


def _check_push_required(app: Merged) -> None:
    if app.redirect.link == "direct":
        what = "a direct link is used later than a pushed request lives"
        app.written.refuse(("redirect", "link"), what, "write link: connect, or pushedAuthorization: auto")
    if not app.endpoints.pushed_authorization_url and not app.endpoints.issuer and app.spec.provider != MCP:
        hint = "write it, or an issuer whose discovery names it"
        app.written.missing(("endpoints", "pushedAuthorizationUrl"), hint)
